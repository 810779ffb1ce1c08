"""Rows that train or validate: augmented features, targets, weights."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ..admm.targets import Targets


class Examples(NamedTuple):
    """Rows with what they should become."""

    #: Augmented features (rows, features).
    X: Tensor
    #: Numbers of classes (rows,), or probabilities (rows, classes).
    y: Tensor
    #: (rows,), all positive; None if each row weighs one.
    weights: Tensor | None = None

    @property
    def targets(self) -> Targets:
        """What the rows should become, for the algorithm."""
        return Targets(self.y, self.weights)


def aligned(examples: Examples | None) -> Examples | None:
    """The same with features that start on a cache line, where a product gives the same bits in every process."""
    if examples is None or examples.X.data_ptr() % 64 == 0:
        return examples
    return examples._replace(X=examples.X.clone())


def simplified(examples: Examples | None) -> Examples | None:
    """The same without weights if all of them are one: then they change nothing, and cost nothing."""
    if examples is None or examples.weights is None or bool((examples.weights != 1).any()):
        return examples
    return examples._replace(weights=None)


def at_most(number: int, rows: Tensor) -> Tensor:
    """So many of the rows at the most, evenly spaced."""
    return rows[:: -(-len(rows) // number)]


def some_examples(number: int, examples: Examples) -> Examples:
    """So many of the examples at the most, evenly spaced."""
    return Examples(*(None if rows is None else at_most(number, rows) for rows in examples))  # type: ignore[arg-type]
