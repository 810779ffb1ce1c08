"""The bounds within which a case runs, and what its ending means."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import runpy
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pdadmm_g.errors import InputError

#: Address space that a case may take beyond what the libraries have, and its time, also on a busy machine.
MEMORY, SECONDS = 3 << 30, 30.0
#: Characters of an error line.
LONGEST_LINE = 1000


@contextmanager
def limits() -> Iterator[None]:
    """Bound the memory of this process, and let :func:`ending` end a case that takes too long."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    bounds = {resource.RLIMIT_AS: used + MEMORY, resource.RLIMIT_CORE: 0}
    before = {kind: resource.getrlimit(kind) for kind in bounds}

    def late(*_: object) -> None:
        raise AssertionError(f"took more than {SECONDS} s")

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


def ending(case: Callable[[], None]) -> str:
    """Whether the case was accepted or refused in one line; whatever else it raises is a violation."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case()
    except InputError as error:
        message = str(error)
    else:
        return "accepted"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert 0 < len(message) <= LONGEST_LINE, f"a message of {len(message)} characters"
    assert "\n" not in message, message
    return "refused"


def command(arguments: Sequence[str]) -> int:
    """Run the command as ``python -m pdadmm_g`` does; its exit code, if its manners are as they should be.

    In this process, since another one would need seconds to import torch.
    """
    err = io.StringIO()
    shown, given = warnings.showwarning, sys.argv
    code: Any = "none"
    try:
        sys.argv = ["pdadmm-g", *arguments]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
            runpy.run_module("pdadmm_g", run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    finally:
        warnings.showwarning, sys.argv = shown, given
    errors = [line for line in err.getvalue().splitlines() if line.startswith("error:")]
    assert code in (0, 2, 3), f"exit code {code}"
    assert len(errors) == (code == 2), errors
    assert "Traceback" not in err.getvalue()
    return int(code)
