"""What the rows are trained to become."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .rows import Rows


class Targets(NamedTuple):
    """A class for every row, or a number for each output; and what each row weighs."""

    #: Class indices (rows,), or (rows, outputs) probabilities of the classes, zeros and ones for labels that are there
    #: or not, or other numbers. A class is the distribution with one 1.
    t: Tensor
    #: (rows,), all positive; None if each row weighs one.
    weights: Tensor | None = None

    @property
    def labels(self) -> Tensor:
        """The most probable class of every row."""
        return self.t.argmax(1) if self.t.is_floating_point() else self.t

    def distribution(self, like: Tensor) -> Tensor:
        """The t of all outputs, of classes their probabilities, in the shape and type of the logits ``like``."""
        if self.t.is_floating_point():
            return self.t.to(like.dtype)
        # Unlike torch's own, this does not wait for the device to check the labels.
        return torch.zeros_like(like).scatter_(1, self.t[:, None], 1.0)

    def rows(self) -> Rows:
        """The rows that these are the targets of, all of them here."""
        return Rows(len(self.t)) if self.weights is None else Rows.of_weights(self.weights)

    def accuracy(self, logits: Tensor) -> float:
        """The share of the rows, by weight, for which the logits are largest at the label."""
        right = (logits.argmax(1) == self.labels).double()
        return self._share(right)

    def subset_accuracy(self, logits: Tensor) -> float:
        """The share of the rows, by weight, whose logits have the right sign for every label."""
        return self._share(((logits > 0) == (self.t > 0.5)).all(1).double())

    def _share(self, right: Tensor) -> float:
        return float(right.mean() if self.weights is None else self.sum(right) / self.rows().number)

    def sum(self, values: Tensor) -> Tensor:
        """The sum of one number a row, each with its weight."""
        return values.sum() if self.weights is None else (values * self.weights).sum()
