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


class Culprit(NamedTuple):
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


class Lookout:
    """Looks at what the steps of a worker read, and remembers the first variable that was not finite.

    A GPU is not waited for: there the search begins after the epoch.
    """

    def __init__(self) -> None:
        self._seen: Culprit | None = None

    def look(self, result: Tensor, first: int, inputs: dict[str, Tensor | None], *, of_layer_before: str = "") -> None:
        """If the ``result`` of a step is not finite, which of its inputs is not? ``first`` is the step's first layer.

        Inputs have one matrix a layer; those named in ``of_layer_before`` belong to the layer before.
        """
        if self._seen is not None or result.is_cuda or is_finite(result):
            return
        found = (
            Culprit(0, ORDER.index(name), first + place - (name in of_layer_before))
            for name, x in inputs.items()
            if x is not None
            for place, one in enumerate(x)
            if not is_finite(one)
        )
        self._seen = next(found, None)

    def culprit(self, worker: Worker, moves: Sequence[Moves]) -> Culprit | None:
        """Where the NaN or infinity came from that an epoch with these ``moves`` measured; None if not from here.

        On a CPU the p-step looks at what it reads if its result is not finite, and the z-step at q, which catches p, W,
        q and u before anything else is computed from them. Otherwise the first variable of ``ORDER`` that is not finite
        after the epoch is named, of several layers the first. What is left is a q whose move or norm overflows.
        """
        if self._seen is not None:
            return self._seen
        found = []
        for index, layer in enumerate(worker.layers):
            after = worker.boundaries[index + 1]
            outputs = (None, None) if after is None else (worker.u(index), after.q)
            state = (worker.input(index), layer.W, layer.b, layer.z, *outputs)
            found += [Culprit(1, place, index) for place, x in enumerate(state) if x is not None and not is_finite(x)]
        norms = zip(moves, worker.measured or worker.shares(), strict=True)
        q = (i for i, (move, share) in enumerate(norms) if not math.isfinite(float(move.q) + float(share.output)))
        found += [Culprit(1, ORDER.index("q"), i) for i in q]
        return min(found, default=None)


def tainted(objective: Tensor, *sums: Tensor) -> Tensor:
    """The objective, NaN if one of the sums is not finite.

    r is kept, not recomputed, and so hides a NaN in W or b; zero times their sum does not.
    """
    total = sums[0]
    for other in sums[1:]:
        total = total + other
    return objective + 0 * total


def is_finite(x: Tensor) -> bool:
    """Are all values finite?"""
    return bool(torch.isfinite(x).all())
