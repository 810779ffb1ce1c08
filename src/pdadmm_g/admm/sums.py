"""Products and sums that keep their digits: one number, row or matrix a layer, for one layer or several.

Where ``weights`` are given, one a row as a column, a sum over rows counts each row so often.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Product(Protocol):
    """A matrix product, in whatever precision."""

    def __call__(self, a: Tensor, b: Tensor, /, *, out: Tensor | None = None) -> Tensor: ...


def matmul(a: Tensor, b: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """a b, for one layer or several; on a CPU one after the other, so that bits do not depend on how many there are."""
    if a.ndim == 2:
        return torch.mm(a, b, out=out)
    if a.is_cuda and len(a) > 1:
        return torch.bmm(a, b, out=out)
    out = a.new_empty(*a.shape[:-1], b.shape[-1]) if out is None else out
    for layer in range(len(a)):
        torch.mm(a[layer], b[layer], out=out[layer])
    return out


#: Up to so many values one sum in single precision keeps six digits.
SHORT = 1 << 16


def squared_norm(x: Tensor, weights: Tensor | None = None) -> Tensor:
    """|x|^2, one number a layer.

    Row by row where there are many values, since one sum over millions in single precision loses half the digits.
    """
    if weights is None and _is_short(x):
        return torch.linalg.vector_norm(x, dim=(-2, -1)).square()
    of_rows = torch.linalg.vector_norm(x, dim=-1, dtype=_wide(x)).square()
    return (of_rows if weights is None else of_rows * weights[..., 0]).sum(-1)


def inner(x: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
    """<x, y>, one number a layer."""
    if weights is not None:
        return ((x * y).sum(-1, dtype=_wide(x)) * weights[..., 0]).sum(-1)
    if x.is_cuda and x.dtype is y.dtype and x.is_contiguous() and len(x) == 1 and x.numel() < 1 << 31:
        return torch.dot(x.view(-1), y.reshape(-1)).view(1)  # no product of this size in memory
    return sum_up(x * y)


def sum_up(x: Tensor) -> Tensor:
    """The sum of all values, one number a layer."""
    return x.flatten(-2).sum(-1) if _is_short(x) else x.sum(-1).sum(-1)


def column_sums(x: Tensor, weights: Tensor | None = None) -> Tensor:
    """The sum over rows, as one row a layer; on a CPU one after the other, as in :func:`matmul`."""
    if weights is not None:
        x = x * weights
    if x.ndim == 3 and len(x) > 1 and not x.is_cuda:
        return torch.stack([one.sum(-2, keepdim=True, dtype=_wide(x)) for one in x])
    return x.sum(-2, keepdim=True, dtype=_wide(x))


def across(numbers: Tensor) -> Tensor:
    """One number a layer, in a shape that goes with the layers' matrices."""
    return numbers[..., None, None]


def _is_short(x: Tensor) -> bool:
    return not x.is_cuda and x.dtype is not torch.bfloat16 and x.shape[-2] * x.shape[-1] <= SHORT


def _wide(x: Tensor) -> torch.dtype | None:
    """The type to sum in: bfloat16 is too short for it."""
    return torch.float32 if x.dtype is torch.bfloat16 else None
