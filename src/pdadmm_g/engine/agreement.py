"""What one process finds wrong, all know: none goes on, waits for it or says something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from ..errors import InputError
from .team import Line

Result = TypeVar("Result")
#: Bytes of a message: four for each of its characters at the most, and one line is not longer.
LENGTH = 2048


def agreed(line: Line, action: Callable[[], Result]) -> Result:
    """What ``action`` returns, if it succeeds on every process of the line.

    Where it raises an :class:`InputError` on some, all raise that of the first of these.
    """
    text, result = b"", None
    try:
        result = action()
    except InputError as error:
        text = str(error).encode()[:LENGTH]
    message = torch.zeros(1, LENGTH, dtype=torch.uint8)
    message[0, : len(text)] = torch.tensor(list(text), dtype=torch.uint8)
    for own in line.concat(message, [1] * line.size):
        if bool(own.any()):
            raise InputError(bytes(own.tolist()).rstrip(b"\0").decode(errors="ignore"))
    return result  # type: ignore[return-value]


def same(line: Line, digest: str, culprit: str) -> None:
    """Raise on every process unless all have the same ``digest`` (hexadecimal) of ``culprit``."""
    own = torch.tensor([list(bytes.fromhex(digest))], dtype=torch.uint8)
    digests = line.concat(own, [1] * line.size)
    for place, other in enumerate(digests):
        if not torch.equal(digests[0], other):
            raise InputError(f"{culprit}: process {place} sees another file than process 0: give all the same folder")
