"""A layer as the tensors of a checkpoint, and back."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..admm.levels import Levels
from ..admm.state import Boundary, Layer, Quantization, Weights, keeps_u
from ..engine.stacking import INVERSES
from ..engine.worker import Worker
from ..errors import InputError
from .checkpoint import REMEDY, Checkpoint
from .growth import anchor


def layer_tensors(worker: Worker, place: int, best: Weights) -> dict[str, Tensor]:
    """Everything that training needs to go on with this layer; the boundary to its right belongs to it."""
    layer, before, after = worker.layers[place], *worker.boundaries[place : place + 2]
    tensors = {"W": layer.W, "b": layer.b, "z": layer.z, "r": layer.r.to(layer.z.dtype)}
    if before is not None:
        tensors["p"] = before.p
    if after is not None:
        tensors |= {"q": after.q, "u": worker.u(place)}
        for levels in (after.p_levels, after.q_levels):
            if levels is not None:
                tensors["levels"] = levels.values
    tensors |= {name: inverse for name in INVERSES if (inverse := getattr(layer, name)) is not None}
    return tensors | {"best_W": best.W, "best_b": best.b}


def restore(
    saved: Checkpoint, mine: range, shape: Sequence[int], rows: range, quantization: Quantization, like: Tensor
) -> tuple[list[Layer], list[Boundary | None], list[Weights]]:
    """The layers of ``mine``, the boundaries beside them and the best weights so far, whoever wrote them.

    ``shape`` are the widths of the network (:func:`.growth.widths`), ``rows`` those of the training rows that are
    wanted; tensors are ``like`` this one.
    """
    depth = len(shape) - 1
    around = range(max(mine.start - 1, 0), min(mine.stop + 1, depth)) if mine else range(0)
    tensors = {
        index: saved.layer(index, like, _layer_shapes(index, shape, len(rows)), rows, _may_have(index, shape))
        for index in around
    }
    layers, best = [], []
    for index in mine:
        own = tensors[index]
        W0 = anchor(own["W"], index, depth)
        kept = {name: own.get(name) for name in INVERSES}
        layers.append(Layer(own["W"], own["b"], W0, z=own["z"], r=own["r"], **kept))
        best.append(Weights(own["best_W"], own["best_b"], W0))
    places = range(mine.start, mine.stop + 1) if mine else range(1)
    boundaries = [
        _restore_boundary(tensors[place - 1], tensors[place], quantization) if mine and 0 < place < depth else None
        for place in places
    ]
    for boundary in boundaries[1:-1]:
        if boundary is not None and boundary.q_levels is None and not keeps_u(boundary.q):
            boundary.u = None
    return layers, boundaries, best


def _layer_shapes(index: int, shape: Sequence[int], nodes: int) -> dict[str, tuple[int, ...]]:
    """What the checkpoint of a layer holds."""
    into, out = shape[index], shape[index + 1]
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("W", "best_W"), (out, into))
    shapes |= dict.fromkeys(("b", "best_b"), (out,))
    shapes |= dict.fromkeys(("z", "r"), (nodes, out))
    if index:
        shapes["p"] = (nodes, into)
    if index < len(shape) - 2:
        shapes |= dict.fromkeys(("q", "u"), (nodes, out))
    return shapes


def _may_have(index: int, shape: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """What the checkpoint of a layer may hold besides."""
    return dict.fromkeys(INVERSES, (shape[index], shape[index])) if index else {}


def _restore_boundary(left: dict[str, Tensor], right: dict[str, Tensor], quantization: Quantization) -> Boundary:
    """The boundary between two layers, from the tensors of both."""
    levels = None
    if quantization.p:
        try:
            levels = Levels(left["levels"])
        except (KeyError, ValueError):
            raise InputError(f"the checkpoint has no sound levels for a quantized boundary; {REMEDY}") from None
    return Boundary(
        p=right["p"],
        q=left["q"],
        u=left["u"],
        p_levels=levels if quantization.p else None,
        q_levels=levels if quantization.q else None,
    )
