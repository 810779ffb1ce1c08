"""Reading text files that somebody else may have written, and writing and locking files of our own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from .errors import InputError

#: Bytes of a settings file or a description; 65,536 explicit levels take 1.5 million.
LARGEST_TEXT = 1 << 22
#: How the names of our temporary folders begin, and the file in one that is locked as long as it is used.
TEMPORARY, TEMPORARY_LOCK = "pdadmm-g-", "in.use"
#: Names of the streams that a process is started with.
STREAMS = {"/dev/stdout": 1, "/dev/stderr": 2}


def read_text(path: Path, what: str, *, largest: int = LARGEST_TEXT) -> str:
    """The content of a regular UTF-8 file, or an :class:`InputError` that says why ``what`` cannot be read.

    Pipes and devices, which may never end, and files above ``largest`` bytes are refused unread.
    """
    with _readable(path, what, largest):
        return path.read_text(encoding="utf-8")


def read_lines(path: Path, what: str, *, largest: int = LARGEST_TEXT) -> Iterator[str]:
    """The lines of such a file with their ends, one after the other: all at once take twice the room of the file."""
    with _readable(path, what, largest), path.open("rb") as file:
        begin = 0
        for line in file:
            try:
                yield line.decode()
            except UnicodeDecodeError as error:
                error.start += begin
                raise
            begin += len(line)


@contextmanager
def _readable(path: Path, what: str, largest: int) -> Iterator[None]:
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: cannot read {what}: not a regular file")
        size = path.stat().st_size
        if size > largest:
            raise InputError(f"{path}: cannot read {what}: {size} bytes are too many")
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot read {what}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: cannot read {what}: not UTF-8 text at byte {error.start}") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot read {what}: no such file") from None  # a name with a null byte


def find_graph(path: Path, root: str | Path | None) -> Path:
    """The file of that name, which is looked for under ``root`` (default: $PDADMM_G_DATA) if it is not here."""
    root = root or os.environ.get("PDADMM_G_DATA")
    return Path(root, path) if root and not path.exists() and Path(root, path).exists() else path


@contextmanager
def writing(path: Path, remedy: str = "") -> Iterator[None]:
    """What the system says while ``path`` is written, a full disk for instance, becomes an :class:`InputError`."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror or error}{remedy}") from None


def check_folder(path: Path) -> None:
    """Raise unless a file of that name can be written as far as its folder goes, before the work that fills it."""
    if path.is_dir():
        raise InputError(f"{path}: cannot write: it is a folder; name a file")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: cannot write: {path.parent} is no folder, or not one that may be written to")


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a whole file or nothing: under a temporary name, then renamed. Links and devices stay what they are."""
    try:
        data = content.encode() if isinstance(content, str) else content
        target = path.resolve()
        with writing(path):
            if str(path) in STREAMS:
                # Opened anew, what is there already would be overwritten.
                with os.fdopen(os.dup(STREAMS[str(path)]), "wb") as file:
                    file.write(data)
                return
            if target.exists() and not target.is_file():
                target.write_bytes(data)
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
    except InputError:
        raise
    except ValueError:  # a name with a null byte, or text that has no UTF-8
        raise InputError(f"{path}: cannot write: the name or the text is not valid") from None


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold the lock that a file stands for, as long as it is there; the system lets go of it when a process dies.

    False where another process holds it and we do not ``wait``. Where the file system knows no locks, everyone has it.
    """
    with writing(path):
        file = _locked_file(path, wait=wait)
    try:
        yield file is not None
    finally:
        if file is not None:
            with suppress(OSError):
                path.unlink(missing_ok=True)  # while it is ours: whoever waits for it looks again
            file.close()


def _locked_file(path: Path, *, wait: bool) -> IO[str] | None:
    while True:
        file = path.open("a")
        if _lock(file, wait=wait) is False:
            file.close()
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()  # the lock of a file that its holder has removed is nobody's


def _lock(file: IO[str], *, wait: bool) -> bool | None:
    """True if the lock is ours now, False if another process has it, None where there are no locks."""
    try:
        import fcntl  # not on every system
    except ImportError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder for data that processes hand to each other; those that killed processes have left are removed first."""
    import shutil
    import tempfile

    for left in Path(tempfile.gettempdir()).glob(f"{TEMPORARY}*/{TEMPORARY_LOCK}"):
        with suppress(OSError):  # of another user, or gone meanwhile
            if left.parent.is_symlink():
                continue
            with left.open("r+") as file:
                if _lock(file, wait=False) is True:
                    shutil.rmtree(left.parent, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as name, _made_and_locked(Path(name) / TEMPORARY_LOCK):
        yield Path(name)


@contextmanager
def _made_and_locked(path: Path) -> Iterator[None]:
    """A lock file that nobody finds before it is locked."""
    hidden = path.with_suffix(".new")
    with hidden.open("a") as file:
        _lock(file, wait=True)
        hidden.rename(path)
        yield
