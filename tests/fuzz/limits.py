"""The bounds within which a case runs, and what its ending means."""

from __future__ import annotations

import os
import resource
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pdadmm_g.errors import InputError

#: Address space that a case may take beyond what the libraries have, and its time, also on a busy machine.
MEMORY, SECONDS = 3 << 30, 30
#: Characters of an error line.
LONGEST_LINE = 1000
#: Where the code under test is, and what in there is our own.
PACKAGE, OWN = Path(__file__).parents[2], Path(__file__).parent


class Violation(AssertionError):
    """The property does not hold."""


@contextmanager
def limits() -> Iterator[None]:
    """Bound the memory of this process, and let :func:`judge` end a case that takes too long."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    bounds = {resource.RLIMIT_AS: used + MEMORY, resource.RLIMIT_CORE: 0}
    before = {kind: resource.getrlimit(kind) for kind in bounds}

    def late(*_: object) -> None:
        raise Violation(f"took more than {SECONDS} s")

    handler = signal.signal(signal.SIGALRM, late)
    try:
        for kind, most in bounds.items():
            resource.setrlimit(kind, (most, before[kind][1]))
        yield
    finally:
        signal.signal(signal.SIGALRM, handler)
        for kind, limit in before.items():
            resource.setrlimit(kind, limit)


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in ``folder``, then where it was before. Python 3.10 has no contextlib.chdir."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def judge(case: Callable[[], None]) -> tuple[str, str]:
    """(ending, what was found): accepted, refused, or violation with the exception and where it came from."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case()
        return "accepted", ""
    except InputError as error:
        if "\n" in str(error) or len(str(error)) > LONGEST_LINE or not str(error):
            return "violation", f"InputError of {len(str(error))} characters: {str(error)[:80]!r}"
        return "refused", ""
    except BaseException as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        message = str(error).splitlines()[0][:150] if str(error) else ""
        return "violation", f"{type(error).__name__} at {_place(error)}: {message}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _place(error: BaseException) -> str:
    """The last line of the code under test that the error passed."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(PACKAGE) and not path.is_relative_to(OWN):
            return f"{path.name}:{frame.lineno}"
    return "fuzz"
