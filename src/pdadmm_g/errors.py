"""The exception for mistakes that the user can mend and its kinds, and how a lack of memory is told from others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

#: Characters of a message; what a hostile file makes longer is cut out of its middle.
LONGEST = 500


class InputError(ValueError):
    """Bad input. The message is one line that names the culprit and, where there is one, the remedy."""

    def __init__(self, message: str) -> None:
        line = " ".join("".join(letter if letter.isprintable() else " " for letter in message).split())
        if len(line) > LONGEST:
            line = f"{line[: LONGEST - 150]} ... {line[-140:]}"
        super().__init__(line)


class NotFiniteError(InputError):
    """A prediction came out as NaN or infinity, and is not passed on."""


@contextmanager
def naming(data: str | None) -> Iterator[None]:
    """What is wrong with the data within this is said of them by their name, where they have one."""
    try:
        yield
    except InputError as error:
        if data is None or not str(error).startswith("data: "):
            raise
        raise InputError(f"{data}{str(error).removeprefix('data')}") from None


def is_lack_of_memory(error: BaseException) -> bool:
    """Is it one? torch has no exception of its own for it on a CPU."""
    words = ("can't allocate memory", "tried to allocate", "out of memory")
    said = isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    return said or isinstance(error, MemoryError)
