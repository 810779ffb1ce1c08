r"""The training rows: how many there are, what each weighs, and sums over all of them.

A row with weight :math:`w_i` counts as :math:`w_i` equal rows: all of its terms in the Lagrangian carry that factor.
Its own p, z, q and u do not notice; what is a sum over rows does, namely the W- and b-steps, the step lengths
:math:`\tau` and :math:`\theta`, and everything that is measured.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from . import sums


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
        return self.total(sums.squared_norm(x, self.weights))

    def inner(self, x: Tensor, y: Tensor) -> Tensor:
        r""":math:`\sum_i w_i \langle x_i, y_i \rangle`, one number a layer."""
        return self.total(sums.inner(x, y, self.weights))

    def column_sums(self, x: Tensor) -> Tensor:
        r""":math:`\sum_i w_i x_i`, one row a layer."""
        return self.total(sums.column_sums(x, self.weights))

    def weighted(self, x: Tensor) -> Tensor:
        r""":math:`\mathrm{diag}(w)\, x`."""
        return x if self.weights is None else (x * self.weights).to(x.dtype)

    def product(self, x: Tensor, y: Tensor, mm: sums.Product = sums.matmul) -> Tensor:
        r""":math:`x^T \mathrm{diag}(w)\, y`, a sum over rows."""
        return self.total(mm(x.mT, self.weighted(y)))
