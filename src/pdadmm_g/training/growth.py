"""The weights that a stage starts from: random at first, deepened by identity layers, dealt to the workers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..admm.state import Weights
from ..engine.layout import Plan
from ..engine.team import Line


def widths(features: int, hidden: int, classes: int, depth: int) -> list[int]:
    """Input features, hidden widths and classes of a network with ``depth`` layers."""
    return [features, *[hidden] * (depth - 1), classes]


def initial_layer(
    index: int, shape: Sequence[int], depth: int, *, seed: int, like: Tensor, basis: Tensor | None = None
) -> Weights:
    """He-scaled random weights for the first and last layer, the identity for those between.

    Each layer has a random stream of its own, so that a worker need not draw the weights of others. Where the features
    are coordinates in a ``basis`` (its columns), the weights of the first layer are drawn for the features themselves.
    """
    out, into = shape[index + 1], shape[index]
    if index == 0 and basis is not None:
        into = len(basis)
    if 0 < index < depth - 1:
        W = torch.eye(out).to(like)
    else:
        generator = torch.Generator().manual_seed(2 * seed + (index > 0))
        W = (torch.randn(out, into, generator=generator, dtype=torch.float64) * math.sqrt(2 / into)).to(like)
        if index == 0 and basis is not None:
            W = W @ basis
    return Weights(W, W.new_zeros(out), anchor(W, index, depth))


def anchor(W: Tensor, index: int, depth: int) -> Tensor:
    """What weight decay pulls the layer toward: zero for the first and last, the identity for those between."""
    return torch.eye(len(W)).to(W) if 0 < index < depth - 1 else torch.zeros_like(W)


def redeal(
    chain: Line, weights: list[Weights], old: Plan, new: Plan, shape: Sequence[int], *, like: Tensor
) -> list[Weights]:
    """This worker's layers under the plan ``new``, which may be deeper than ``old``.

    The first layers and the last one keep their weights and move to their new owners; the layers inserted before the
    last one start as the identity. After ReLU that changes nothing: the deeper network starts as the same function.
    """
    mine = dict(zip(old.layers(chain.rank), weights, strict=True))
    result = []
    for index in range(new.depth):
        source, taker = min(index, old.depth - 1), new.owner(index)
        if old.depth - 1 <= index < new.depth - 1:
            if chain.rank == taker:
                result.append(initial_layer(index, shape, new.depth, seed=0, like=like))
        elif source in mine and chain.rank == taker:
            result.append(mine[source])
        elif source in mine:
            chain.send(mine[source].W, taker)
            chain.send(mine[source].b, taker)
        elif chain.rank == taker:
            W = chain.receive(like.new_empty(shape[index + 1], shape[index]), old.owner(source))
            b = chain.receive(W.new_empty(len(W)), old.owner(source))
            result.append(Weights(W, b, anchor(W, index, new.depth)))
    return result
