r"""The training rows: how many there are, what each weighs, and sums over all of them.

A row with weight :math:`w_i` counts as :math:`w_i` equal rows: all of its terms in the Lagrangian carry that factor.
Its own p, z, q and u do not notice; what is a sum over rows does, namely the W- and b-steps, the step lengths
:math:`\tau` and :math:`\theta`, and everything that is measured.

Below are the products and sums themselves, which keep their digits: one number, row or matrix a layer, for one layer or
several. Where ``weights`` are given, one a row as a column, a sum over rows counts each row so often.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

#: A matrix product a b, in whatever precision; the result goes to ``out`` where it is given.
Product = Callable[..., Tensor]


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


class Across(Protocol):
    """What adds up or compares the parts of several processes, the same bits on each. May overwrite a part."""

    def sum(self, part: Tensor) -> Tensor: ...

    def largest(self, part: Tensor) -> Tensor: ...


class Rows:
    """The training rows: all of them, which are here, in this process.

    Where a process has only a part of them, :meth:`total` adds up what the parts have summed; nothing else differs.
    """

    def __init__(self, number: float, weights: Tensor | None = None, across: Across | None = None) -> None:
        #: How many there are in all parts together, each counted with its weight.
        self.number = number
        #: Of the rows that are here, as a column; None if each weighs one.
        self.weights = weights
        #: The processes that have the others; None where all rows are here.
        self._across = across

    @classmethod
    def of_weights(cls, weights: Tensor) -> Rows:
        """Rows that are all here, with one weight each."""
        return cls(float(weights.double().sum()), weights[:, None])

    @property
    def whole(self) -> bool:
        """Are all rows here? If not, nothing of the size rows x rows can be computed."""
        return self._across is None

    def total(self, part: Tensor) -> Tensor:
        """The sum over all rows, from the sum over those that are here."""
        return part if self._across is None else self._across.sum(part)

    def largest(self, part: Tensor) -> Tensor:
        """The largest of all rows, from the largest of those that are here."""
        return part if self._across is None else self._across.largest(part)

    def totals(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """As :meth:`total`, for tensors of any shapes at once: several processes talk once, not once for each."""
        if self._across is None or not parts:
            return parts
        sums = self._across.sum(torch.cat([part.reshape(-1) for part in parts]))
        pieces = sums.split([part.numel() for part in parts])
        return tuple(piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True))

    def squared_norm(self, x: Tensor) -> Tensor:
        r""":math:`\sum_i w_i \|x_i\|^2`, one number a layer."""
        return self.total(squared_norm(x, self.weights))

    def column_sums(self, x: Tensor) -> Tensor:
        r""":math:`\sum_i w_i x_i`, one row a layer."""
        return self.total(column_sums(x, self.weights))

    def product(self, x: Tensor, y: Tensor, mm: Product = matmul) -> Tensor:
        r""":math:`x^T \mathrm{diag}(w)\, y`, a sum over rows."""
        return self.total(mm(x.mT, y if self.weights is None else (y * self.weights).to(y.dtype)))


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
