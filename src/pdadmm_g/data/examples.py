"""Rows that train or validate: augmented features, targets, weights."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..admm.risks import Targets


class Examples(NamedTuple):
    """Rows with what they should become."""

    #: Augmented features (rows, features).
    X: Tensor
    #: Class indices (rows,), or probabilities (rows, classes); those of rows that validate are indices.
    y: Tensor
    #: (rows,), all positive; None if each row weighs one.
    weights: Tensor | None = None

    @property
    def targets(self) -> Targets:
        """What the rows should become, for the algorithm."""
        return Targets(self.y, self.weights)

    def to(self, device: str) -> Examples:
        """The same on another device."""
        return Examples(*(None if rows is None else rows.to(device) for rows in self))  # type: ignore[arg-type]


def aligned(examples: Examples | None) -> Examples | None:
    """The same with features that start on a cache line, where a product gives the same bits in every process."""
    if examples is None or examples.X.data_ptr() % 64 == 0:
        return examples
    return examples._replace(X=examples.X.clone())


def simplified(examples: Examples | None) -> Examples | None:
    """The same with one type for all numbers, and without weights if each is one: they change and cost nothing then."""
    if examples is None:
        return None
    X, y, weights = examples
    if weights is not None:
        weights = None if bool((weights == 1).all()) else weights.to(X.dtype)
    return Examples(X, y.to(X.dtype if y.is_floating_point() else torch.int64), weights)


def at_most(number: int, rows: Tensor) -> Tensor:
    """So many of the rows at the most, evenly spaced."""
    return rows[:: -(-len(rows) // number)]


def some_examples(number: int, examples: Examples) -> Examples:
    """So many of the examples at the most, evenly spaced."""
    return Examples(*(None if rows is None else at_most(number, rows) for rows in examples))  # type: ignore[arg-type]


def part_of(number: int, place: int, parts: int) -> range:
    """The rows of one of so many parts, all of nearly the same size."""
    return range(number * place // parts, number * (place + 1) // parts)
