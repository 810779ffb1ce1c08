"""Layers that take every step together.

In a small network most of an epoch goes into calling operations, not into computing. Consecutive layers of one shape
therefore share one tensor for each variable, with one matrix a layer: a step is one operation for all of them. A large
layer is a group of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

import torch
from torch import Tensor

from ..admm.activations import Activation, Smooth
from ..admm.diagnostics import Moves, Shares
from ..admm.levels import Delta, Levels, LevelStack
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
    groups = [
        _stacked(run[0], [layers[i] for i in run], boundaries[run[0] : run[-1] + 2]) for run in runs if len(run) > 1
    ]
    groups += [_alone(run[0], layers, boundaries) for run in runs if len(run) == 1]
    return sorted(groups, key=lambda group: group.start)


def _likeness(place: int, layer: Layer, beside: list[Boundary | None], f: Activation) -> tuple[object, ...]:
    """Layers next to each other with the same likeness make a group.

    The smooth activations end their search when all entries are done, and levels at any distance are searched for.
    """
    before, after = beside
    small = all(x.numel() <= LARGEST.get(x.device.type, 0) and x.nbytes % ALIGNMENT == 0 for x in (layer.z, layer.W))
    if not small or before is None or after is None or isinstance(f, Smooth):
        return ("alone", place)
    sets = (before.p_levels, before.q_levels, after.p_levels, after.q_levels)
    if any(levels is not None and levels.multiples is None for levels in sets):
        return ("alone", place)
    return ("hidden", layer.W.shape)


def _stacked(start: int, layers: list[Layer], beside: list[Boundary | None]) -> Group:
    stack = Layer(*(torch.stack([getattr(layer, name) for layer in layers]) for name in ("W", "b", "W0", "z", "r")))
    for index, layer in enumerate(layers):
        layer.W, layer.b, layer.W0 = stack.W[index], stack.b[index], stack.W0[index]
        layer.z, layer.r = stack.z[index], stack.r[index]
    stack.b = stack.b[:, None]
    for name in INVERSES:
        kept = [inverse for layer in layers if (inverse := getattr(layer, name)) is not None]
        if len(kept) == len(layers):
            setattr(stack, name, torch.stack(kept))
            for layer, inverse in zip(layers, getattr(stack, name), strict=True):
                setattr(layer, name, inverse)
    p, q, u = (torch.stack([getattr(boundary, name) for boundary in beside]) for name in ("p", "q", "u"))
    for index, boundary in enumerate(beside):
        assert boundary is not None
        boundary.p, boundary.q, boundary.u = p[index], q[index], u[index]
    return Group(
        start, stack, Boundary(p[:-1], q[:-1], u[:-1]), Boundary(p[1:], q[1:], u[1:]),
        p_levels=_levels_of_all([boundary.p_levels for boundary in beside[:-1] if boundary], p),
        q_levels=_levels_of_all([boundary.q_levels for boundary in beside[1:] if boundary], q),
    )  # fmt: skip


def _levels_of_all(sets: Sequence[Levels | None], like: Tensor) -> Delta | None:
    """The levels of boundaries that are quantized alike."""
    known = [levels for levels in sets if levels is not None]
    return LevelStack(known, like) if known else None


def _alone(place: int, layers: list[Layer], boundaries: list[Boundary | None]) -> Group:
    one, before = layers[place], boundaries[place]
    layer = Layer(one.W[None], one.b[None, None], one.W0[None], z=one.z[None], r=one.r[None])
    for name in INVERSES:
        inverse = getattr(one, name)
        setattr(layer, name, None if inverse is None else inverse[None])
    implied = before is not None and before.u is None
    after = boundaries[place + 1]
    return Group(
        place, layer, _view(before), _view(after), layers[place - 1].z[None] if implied else None,
        p_levels=before.p_levels if before else None, q_levels=after.q_levels if after else None,
    )  # fmt: skip


def _view(boundary: Boundary | None) -> Boundary | None:
    if boundary is None:
        return None
    u = None if boundary.u is None else boundary.u[None]
    return replace(boundary, p=boundary.p[None], q=boundary.q[None], u=u)


Row = TypeVar("Row", Shares, Moves)


def layer_by_layer(kind: type[Row], groups: list[Row]) -> list[Row]:
    """What was measured group by group, each field with one number a layer."""
    return [kind(*one) for group in groups for one in torch.stack([torch.as_tensor(x) for x in group]).unbind(1)]
