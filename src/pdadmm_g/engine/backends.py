"""How the phases of an epoch are run: on a CPU in blocks of rows, on a GPU compiled or by Triton kernels of our own.

A backend is chosen once, when a worker is made, by its device. It takes a phase with its tensors and settings, and
returns the sum of what the phase returns, field by field.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from itertools import repeat
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..admm.updates import at_once

T = TypeVar("T")

#: Values of the widest tensor in one block: a dozen of such blocks fits in the cache that the cores share.
BLOCK = 1 << 18
#: From so many values on, a phase on a GPU is worth the time that it takes to compile.
WORTH_COMPILING = 1 << 22


#: Applies a phase to all rows of the tensors; what it returns, summed up.
Backend = Callable[..., Any]


def backend_for(device: torch.device) -> Backend:
    """The backend for a device. On a GPU without Triton phases run as they are, one operation after the other."""
    if device.type != "cuda":
        return Blocks()
    return Fused() if find_spec("triton") is not None else at_once


class Blocks:
    """One block of rows after the other, each small enough to stay in the cache. For CPUs."""

    def __init__(self) -> None:
        _keep_heap()

    def __call__(self, phase: Callable[..., T], *tensors: Tensor | None, **settings: Any) -> T:
        given = [tensor for tensor in tensors if tensor is not None]
        rows = max(1, BLOCK // max(tensor.shape[-1] for tensor in given))
        if given[0].shape[-2] <= rows:
            return phase(*tensors, **settings)
        blocks = (repeat(None) if tensor is None else tensor.split(rows, -2) for tensor in tensors)
        return total([phase(*block, **settings) for block in zip(*blocks, strict=False)])


class Fused:
    """On a GPU: a kernel of ours where there is one, or else compiled; small tensors as they are."""

    def __init__(self) -> None:
        from .kernels import kernel_for

        self._kernel_for = kernel_for

    def __call__(self, phase: Callable[..., T], *tensors: Tensor | None, **settings: Any) -> T:
        first = next(tensor for tensor in tensors if tensor is not None)
        if first.numel() < WORTH_COMPILING:
            return phase(*tensors, **settings)
        run: Callable[..., T] = self._kernel_for(phase, tensors, settings) or _compiled(phase)
        return run(*tensors, **settings)


def total(parts: list[T]) -> T:
    """The sum of what a phase returned for each block: a tensor, a named tuple of tensors or nothing."""
    first = parts[0]
    if first is None or len(parts) == 1:
        return first
    if isinstance(first, Tensor):
        return torch.stack(parts).sum(0)  # type: ignore[arg-type,return-value]
    assert isinstance(first, tuple)
    return type(first)(*torch.stack([torch.stack(part) for part in parts]).sum(0))  # type: ignore[arg-type]


@cache
def _compiled(phase: Callable[..., T]) -> Callable[..., T]:
    # Hyperparameters are constants of what is compiled: a search for weight decay takes many.
    config = torch._dynamo.config
    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    setattr(config, limit, max(getattr(config, limit), 64))
    return torch.compile(phase, dynamic=False)


def _keep_heap() -> None:
    """Let the allocator of the C library keep the memory of a block that is done, for the next.

    By default glibc gives it back to the system and gets it anew, page by page, which takes longer than what is
    computed in it. It stops doing so once it has seen a piece of that size freed; 32 MiB is the most it heeds.
    """
    torch.empty((32 << 20) - (1 << 16), dtype=torch.uint8)
