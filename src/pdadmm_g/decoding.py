"""JSON of ours, read again: whatever the file holds, it becomes a checked record or an error of one line.

A record is a dataclass whose fields are annotated with checks, see :data:`Count`.
"""

from __future__ import annotations

import functools
import json
import math
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from .errors import InputError

Kind = TypeVar("Kind")

#: Digits of a whole number; Python refuses to read many more.
MOST_DIGITS = 4000


class Check(NamedTuple):
    """What the value of a field must be, and what is said of one that is not. A field that is missing is None."""

    holds: Callable[[Any], bool]
    otherwise: str


def is_number(value: Any) -> bool:
    """Is it a number that can be computed with? NaN, infinity and whole numbers beyond the floats are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 1e308


def _or_infinite(value: Any) -> bool:
    """Infinity is where some minima start."""
    return is_number(value) or (isinstance(value, float) and math.isinf(value))


def is_count(value: Any, least: int, most: int) -> bool:
    """Is it a whole number within these bounds?"""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def numbers(length: int) -> Check:
    """A list of so many numbers."""
    return Check(
        lambda value: isinstance(value, list) and len(value) == length and all(map(_or_infinite, value)),
        f"is missing or not {length} numbers",
    )


_NUMBER = Check(_or_infinite, "is missing or not a number")
Number = Annotated[float, _NUMBER]
Positive = Annotated[float, _NUMBER, Check(lambda value: 0 < value < math.inf, "is not a positive number")]
Count = Annotated[int, _NUMBER, Check(lambda value: is_count(value, 1, 10**9 - 1), "is not a count")]
CountFromZero = Annotated[int, _NUMBER, Check(lambda value: is_count(value, 0, 10**300), "is not a count")]
Mapping = Annotated[dict[str, Any], Check(lambda value: isinstance(value, dict), "is missing")]
Items = Annotated[list[Any], Check(lambda value: isinstance(value, list), "is missing")]
Flag = Annotated[bool, Check(lambda value: isinstance(value, bool), "is missing")]
Text = Annotated[str, Check(lambda value: isinstance(value, str), "is missing")]


def parsed(text: str | bytes, *, most_digits: int = MOST_DIGITS) -> Any:
    """JSON; a ValueError also where it is too deep or its numbers are too long to work with."""

    def whole(digits: str) -> int:
        if len(digits) > most_digits:
            raise ValueError(f"a number of {len(digits)} digits")
        return int(digits)

    try:
        return json.loads(text, parse_int=whole)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def decoded(kind: Callable[..., Kind], value: Any) -> Kind:
    """The record of that kind; a ValueError that names the field which is missing or wrong. Others are left out."""
    if not isinstance(value, dict):
        raise ValueError("not a description")
    fields = _fields(kind)
    for name, checks in fields.items():
        for check in checks:
            if not check.holds(value.get(name)):
                raise ValueError(f"{name} {check.otherwise}")
    return kind(**{name: value[name] for name in fields if name in value})


@functools.cache
def _fields(kind: Any) -> dict[str, tuple[Check, ...]]:
    """The fields of a record with their checks."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name: hint.__metadata__ for name, hint in hints.items()}


@contextmanager
def reading(path: Path, what: str, remedy: str = "") -> Iterator[None]:
    """A ValueError while ``path`` is read becomes an :class:`InputError` that says why ``what`` cannot be read."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: cannot read {what}: {error}{remedy}") from None
