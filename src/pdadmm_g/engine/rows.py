"""Elementwise phases over blocks of rows that stay in the cache: main memory is read and written once a phase."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

#: Values of the widest tensor in one block: a handful of such blocks fits in the cache of one core.
BLOCK = 1 << 16


def by_rows(phase: Callable[..., T], *tensors: Tensor) -> list[T]:
    """Apply ``phase`` to one block of rows of the tensors after the other; what it returns for each.

    On a GPU there is one block.
    """
    nodes = len(tensors[0])
    rows = nodes if tensors[0].is_cuda else max(1, BLOCK // max(tensor.shape[1] for tensor in tensors))
    if nodes <= rows:
        return [phase(*tensors)]
    return [phase(*block) for block in zip(*(tensor.split(rows) for tensor in tensors), strict=True)]


def total(parts: list[Tensor]) -> Tensor:
    """The sum of what a phase returned for each block."""
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
