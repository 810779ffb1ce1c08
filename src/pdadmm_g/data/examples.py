"""Rows that train or validate: augmented features and labels."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Examples(NamedTuple):
    """Augmented features (nodes, features) and integer labels (nodes,)."""

    X: Tensor
    y: Tensor


def at_most(number: int, rows: Tensor) -> Tensor:
    """So many of the rows at the most, evenly spaced."""
    return rows[:: -(-len(rows) // number)]
