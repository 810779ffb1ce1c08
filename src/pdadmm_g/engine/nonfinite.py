"""Where a NaN or an infinity came from: which variable of which layer was the first that was not finite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..admm.diagnostics import Moves

if TYPE_CHECKING:
    from .worker import Worker

#: The order in which an epoch passes NaN on within a layer. u comes before q: a broken u breaks q in the same epoch,
#: while a broken q does not outlive it.
ORDER = ("p", "W", "b", "z", "u", "q")


class NonFinite(NamedTuple):
    """A variable with NaN or infinity in it. The smallest of several is the likeliest source of the others."""

    #: 0 if it was seen as a step read it, 1 if after the epoch, when it may have come from another.
    hindsight: int
    #: Its place in ``ORDER``.
    place: int
    #: The layer l of p_l, ..., u_l, counted from the worker's first, which is 0.
    layer: int

    @property
    def variable(self) -> str:
        """One of p, W, b, z, q, u."""
        return ORDER[self.place]


def among_inputs(first: int, inputs: dict[str, Tensor | None], of_layer_before: str) -> NonFinite | None:
    """Which of the inputs of a step is not finite? ``first`` is the step's first layer.

    Inputs have one matrix a layer; those named in ``of_layer_before`` belong to the layer before.
    """
    for name, x in inputs.items():
        for place, one in enumerate(() if x is None else x):
            if not is_finite(one):
                return NonFinite(0, ORDER.index(name), first + place - (name in of_layer_before))
    return None


def in_state(worker: Worker, moves: Sequence[Moves]) -> NonFinite | None:
    """The first variable of ``ORDER`` that is not finite after an epoch with these ``moves``, of the first such layer.

    What is left is a q whose move or norm overflows.
    """
    found = []
    for index, (layer, move, share) in enumerate(zip(worker.layers, moves, worker.measured, strict=True)):
        after = worker.boundaries[index + 1]
        outputs = (None, None) if after is None else (worker.u(index), after.q)
        state = (worker.input(index), layer.W, layer.b, layer.z, *outputs)
        found += [NonFinite(1, place, index) for place, x in enumerate(state) if x is not None and not is_finite(x)]
        if not math.isfinite(float(move.q) + float(share.output)):
            found.append(NonFinite(1, ORDER.index("q"), index))
    return min(found, default=None)


def is_finite(x: Tensor) -> bool:
    """Are all values finite?"""
    return bool(torch.isfinite(x).all())
