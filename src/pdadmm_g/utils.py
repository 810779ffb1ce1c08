"""Files and locks, records as JSON, the tasks of a run, and what this machine computes with.

Nothing here imports torch before it is needed: settings are read without it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from .errors import InputError

if TYPE_CHECKING:
    import torch

Kind = TypeVar("Kind")

# -------------------------------------------------------------------------------------------------------------- files

#: How the names of our temporary folders begin, and the file in one that is locked as long as it is used.
TEMPORARY, TEMPORARY_LOCK = "pdadmm-g-", "in.use"
#: Names of the streams that a process is started with.
STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}


@contextmanager
def _named(problem: str, remedy: str) -> Iterator[None]:
    """What the system says, a full disk for instance, or a ValueError becomes an :class:`InputError`."""
    try:
        yield
    except InputError:
        raise
    except UnicodeDecodeError:
        raise InputError(f"{problem}: not UTF-8 text{remedy}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{problem}: {getattr(error, 'strerror', None) or error}{remedy}") from None


def reading(path: Path, what: str, remedy: str = "") -> AbstractContextManager[None]:
    """What goes wrong while ``path`` is read becomes an :class:`InputError` that says why ``what`` cannot be read."""
    return _named(f"{path}: cannot read {what}", remedy)


def writing(path: Path, remedy: str = "") -> AbstractContextManager[None]:
    """The same while it is written."""
    return _named(f"{path}: cannot write", remedy)


def read_text(path: Path, what: str) -> str:
    """The content of a regular UTF-8 file, or an :class:`InputError` that says why ``what`` cannot be read."""
    return "".join(read_lines(path, what))


def read_lines(path: Path, what: str) -> Iterator[str]:
    """The lines of such a file with their ends, one after the other: all at once take twice the room of the file.

    Pipes and devices, which may never end, are refused unread.
    """
    with reading(path, what):
        if path.exists() and not path.is_file():
            raise ValueError("not a regular file")
        with path.open(encoding="utf-8", newline="\n") as file:
            yield from file


def find_graph(path: Path, root: str | Path | None) -> Path:
    """The file of that name, which is looked for under ``root`` (default: $PDADMM_G_DATA) if it is not here."""
    root = root or os.environ.get("PDADMM_G_DATA")
    return Path(root, path) if root and not path.exists() and Path(root, path).exists() else path


def check_folder(path: Path) -> None:
    """Raise unless a file of that name can be written as far as its folder goes, before the work that fills it."""
    if path.is_dir():
        raise InputError(f"{path}: cannot write: it is a folder; name a file")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: cannot write: {path.parent} is no folder, or not one that may be written to")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a whole file or nothing: under a temporary name, then renamed. Links and devices stay what they are."""
    with writing(path):
        data = content.encode() if isinstance(content, str) else content
        target, stream = path.resolve(), STREAMS.get(str(path))
        if stream is not None or (target.exists() and not target.is_file()):
            # Opened anew, what is in a stream already would be overwritten.
            with target.open("wb") if stream is None else os.fdopen(os.dup(stream), "wb") as file:
                file.write(data)
            return
        temporary = target.with_name(target.name + ".tmp")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold the lock that a file stands for, as long as it is there; the system lets go of it when a process dies.

    False where another process holds it and we do not ``wait``.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=-1 if wait else 0)
    with writing(path), suppress(Timeout):
        lock.acquire()
    try:
        yield lock.is_locked
    finally:
        if lock.is_locked:
            with suppress(OSError):
                path.unlink(missing_ok=True)  # while it is ours: whoever waits for it looks again
            lock.release()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder for data that processes hand to each other; those that killed processes have left are removed first."""
    import shutil
    import tempfile

    from filelock import FileLock

    for left in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*/{TEMPORARY_LOCK}"):
        with suppress(OSError):  # it is used, of another user, or gone meanwhile
            if not left.parent.is_symlink():
                with FileLock(left, timeout=0):
                    shutil.rmtree(left.parent, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as name:
        lock = Path(name, TEMPORARY_LOCK)
        with FileLock(lock.with_suffix(".new")) as own:
            Path(own.lock_file).rename(lock)  # nobody finds it before it is locked
            yield Path(name)


# ------------------------------------------------------------------------------------------------------------ records

Count = Annotated[int, msgspec.Meta(ge=1)]
Size = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]


def decoded(kind: type[Kind], value: Any) -> Kind:
    """JSON, as text or parsed, as a record of that kind; a ValueError names the field that is missing or wrong."""
    try:
        if isinstance(value, (str, bytes)):
            return msgspec.json.decode(value, type=kind)
        return msgspec.convert(value, kind)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


def read_record(kind: type[Kind], path: Path, what: str, remedy: str = "") -> Kind:
    """The record that a file of ours holds, or an :class:`InputError`."""
    with reading(path, what, remedy):
        return decoded(kind, read_text(path, what))


# -------------------------------------------------------------------------------------------------------------- tasks

#: Seconds of a run that belong to no task.
OTHER = "other"


@dataclass(frozen=True)
class Event:
    """A task that begins (nothing done yet), goes on, or ended after so many seconds in all."""

    task: str
    done: int
    total: int | None
    #: None until it ended.
    seconds: float | None = None


class Tasks:
    """What a run is doing, a task at a time, and the seconds that each took. Use as a context manager around the work.

    Work names its task where it happens, ``with task("choosing features", 12) as step``, and calls ``step()`` for each
    piece that is done. Whoever started the work listens, ``with Tasks(listener) as tasks``; where nobody does, nothing
    happens. A task within another stops the clock of the outer one, so that seconds add up to the whole.
    """

    def __init__(self, *listeners: Callable[[Event], None], seconds: dict[str, float] | None = None) -> None:
        self.listeners = list(listeners)
        #: By task, in the order in which they began, those before this was made among them.
        self.seconds: dict[str, float] = seconds or {}
        self._open: list[str] = []
        self._since = time.perf_counter()
        self._start = self._since - sum(self.seconds.values())

    def __enter__(self) -> Tasks:
        self._token: Token[Tasks | None] = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)

    def times(self) -> dict[str, float]:
        """Seconds by task so far, which add up to the seconds since the start."""
        self._settle()
        return self.seconds | {OTHER: max(0.0, self._since - self._start - sum(self.seconds.values()))}

    @contextmanager
    def doing(self, name: str, total: int | None = None) -> Iterator[Callable[[], None]]:
        """Within it, time counts for this task; call what it gives for each of ``total`` pieces that is done."""
        self._settle()
        self._open.append(name)
        before, done = self.seconds.setdefault(name, 0.0), -1

        def step(seconds: float | None = None, pieces: int = 1) -> None:
            nonlocal done
            done += pieces
            self.tell(Event(name, done, total, seconds))

        step()
        try:
            yield step
        finally:
            self._settle()
            self._open.pop()
            step(self.seconds[name] - before, 0)

    def _settle(self) -> None:
        """The time since the last change belongs to the innermost task."""
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def tell(self, event: Event) -> None:
        """Tell whoever listens, also of what another process does."""
        self.seconds.setdefault(event.task, 0.0)
        for listener in self.listeners:
            listener(event)


_current: ContextVar[Tasks | None] = ContextVar("tasks", default=None)


@contextmanager
def run_tasks() -> Iterator[Tasks]:
    """The tasks of the run that this is part of, or those of a new one."""
    tasks = _current.get()
    if tasks is not None:
        yield tasks
        return
    with Tasks() as tasks:
        yield tasks


@contextmanager
def task(name: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """A task of the run that this is part of, see :meth:`Tasks.doing`."""
    with run_tasks() as tasks, tasks.doing(name, total) as step:
        yield step


# ------------------------------------------------------------------------------------------------------- this machine


@contextmanager
def compute_threads(threads: int) -> Iterator[None]:
    """Compute with so many threads, then with as many as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def checked_device(name: str) -> torch.device:
    """The torch device of that name, "auto" for a GPU where there is one; an error if this machine does not have it."""
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InputError(f"device '{name}' is not available here; use 'cpu'") from None
    return device
