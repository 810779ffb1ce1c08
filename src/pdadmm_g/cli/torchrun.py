"""Is this one of the processes that torchrun has started? And how such a one ends."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from ..errors import InputError

#: What torchrun tells each process, and the most that the numbers among it can be.
_GIVEN = {"WORLD_SIZE": 10**6, "RANK": 10**6, "LOCAL_RANK": 10**6, "MASTER_ADDR": None, "MASTER_PORT": 65535}


def is_member() -> bool:
    """Is it?"""
    return "TORCHELASTIC_RUN_ID" in os.environ


def processes() -> int | None:
    """How many there are, None if not; an InputError where the environment only looks like torchrun's."""
    if not is_member():
        return None
    for name, most in _GIVEN.items():
        value = os.environ.get(name, "")
        if not value:
            raise _stray(f"{name} is not")
        if most is not None and not (value.isdecimal() and value.isascii() and len(value) < 9 and int(value) <= most):
            raise _stray(f"{name} is {value[:60]!r}")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank >= size:
        raise _stray(f"RANK {rank} is not below WORLD_SIZE {size}")
    return size


def end(code: int) -> NoReturn:
    """End a member of a team: not through exit handlers, which wait for others, or abort where groups are gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _stray(problem: str) -> InputError:
    return InputError(f"TORCHELASTIC_RUN_ID is set, but {problem}: start with torchrun, or unset TORCHELASTIC_RUN_ID")
