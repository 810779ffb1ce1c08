"""Layers that take every step together.

In a small network most of an epoch goes into calling operations, not into computing. Consecutive layers of one shape
therefore share one tensor for each variable, with one matrix a layer: a step is one operation for all of them. A large
layer is a group of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from ..admm.activations import Activation, Smooth
from ..admm.levels import Delta, LevelStack
from ..admm.state import SMALL, Boundary, Layer

#: On a CPU, torch sums fewer values than 2^15 by one thread, and so in the same order whatever the number of layers.
LARGEST = {"cpu": (1 << 15) - 1, "cuda": SMALL}
#: The bits of a product depend on whether its factors begin at multiples of 64 bytes, as tensors of their own do.
ALIGNMENT = 64


#: What an exact solver may keep with a layer.
INVERSES = ("p_inverse", "W_inverse")


@dataclass
class Group:
    """Equal layers and the boundaries beside each of them, all tensors with a leading dimension.

    The tensors are those of the single layers and boundaries, which see every change.
    """

    #: Place of its first layer among the worker's.
    start: int
    #: b is (layers, 1, out).
    layer: Layer
    before: Boundary | None
    after: Boundary | None
    #: The z that goes with the q of ``before``, where u is not kept there.
    z_before: Tensor | None = None
    #: Delta for the p of ``before`` and for the q of ``after``, where they are quantized.
    p_levels: Delta | None = None
    q_levels: Delta | None = None

    def read_by_p(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """What the gradient of p reads of the boundary before: p, q, u, and the z of the layer before it."""
        assert self.before is not None
        return self.before.p, self.before.q, self.before.u, self.z_before


def grouped(
    layers: list[Layer], boundaries: list[Boundary | None], f: Activation, *, stack: bool = True
) -> list[Group]:
    """The layers in groups. Those with more than one layer put new tensors into ``layers`` and ``boundaries``.

    Each layer is alone unless they may ``stack``: what goes together depends on the number of rows, which is not the
    same everywhere where rows are spread over processes.
    """
    likeness = [_likeness(place, layers[place], boundaries[place : place + 2], f) for place in range(len(layers))]
    runs = [list(run) for _, run in groupby(range(len(layers)), likeness.__getitem__ if stack else None)]
    # First those with several layers: their neighbours must see the new tensors.
    groups = [_group(run, layers, boundaries) for run in sorted(runs, key=len, reverse=True)]
    return sorted(groups, key=lambda group: group.start)


def _likeness(place: int, layer: Layer, beside: list[Boundary | None], f: Activation) -> object:
    """Layers next to each other with the same likeness make a group.

    The smooth activations end their search when all entries are done, and levels at any distance are searched for.
    """
    small = all(x.numel() <= LARGEST.get(x.device.type, 0) and x.nbytes % ALIGNMENT == 0 for x in (layer.z, layer.W))
    sets = [levels for one in beside if one is not None for levels in (one.p_levels, one.q_levels) if levels]
    alone = not small or None in beside or isinstance(f, Smooth) or any(levels.multiples is None for levels in sets)
    return place if alone else layer.W.shape


def _group(run: list[int], layers: list[Layer], boundaries: list[Boundary | None]) -> Group:
    start, stop = run[0], run[-1] + 1
    layer = Layer(*_joined(layers[start:stop], "W", "b", "W0", "z", "r", *INVERSES))
    layer.b = layer.b[:, None]
    beside = boundaries[start : stop + 1]
    p_levels = [None if one is None else one.p_levels for one in beside[:-1]]
    q_levels = [None if one is None else one.q_levels for one in beside[1:]]
    if len(run) > 1:
        p, q, u = _joined(beside, "p", "q", "u")
        stacks = [LevelStack(sets, p) if sets[0] else None for sets in (p_levels, q_levels)]
        return Group(start, layer, Boundary(p[:-1], q[:-1], u[:-1]), Boundary(p[1:], q[1:], u[1:]), None, *stacks)
    before, after = (one and Boundary(*_joined([one], "p", "q", "u")) for one in beside)
    z_before = layers[start - 1].z[None] if before is not None and before.u is None else None
    return Group(start, layer, before, after, z_before, p_levels[0], q_levels[0])


def _joined(records: Sequence[Layer | Boundary | None], *names: str) -> list[Any]:
    """The tensors of these names, each that of all records, which then have views of it; None where they have none."""
    found: list[Any] = []
    for name in names:
        parts = [getattr(record, name) for record in records]
        if any(part is None for part in parts):
            found.append(None)
        else:
            found.append(parts[0][None] if len(parts) == 1 else torch.stack(parts))
            for record, view in zip(records, found[-1], strict=True):
                setattr(record, name, view)
    return found
