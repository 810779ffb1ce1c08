"""Checkpoints: one safetensors file per layer, and a description written last that makes them valid.

``checkpoints/epoch-00000120/layer-01.safetensors ... meta.json``. Each worker writes its own layers, so on several
machines the folder must be shared. Whatever is killed whenever: a folder without ``meta.json`` does not count, and the
checkpoint before it is removed only once the new one is whole.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..admm.levels import FloatGrid, Levels
from ..admm.state import Boundary, Quantization
from ..errors import InputError
from ..files import read_text

if TYPE_CHECKING:
    from .worker import Worker

META = "meta.json"
#: What the description must hold.
NUMBERS = ("stage", "epoch", "total_epochs", "depth", "rho", "worker_epochs", "best_epoch", "scale", "rate")
COUNTS = ("stage", "epoch", "total_epochs", "depth")
REMEDY = "start over without --resume"


@dataclass(frozen=True)
class Checkpoint:
    """A valid checkpoint: its folder and its description."""

    folder: Path
    meta: dict[str, Any]

    def layer(
        self, index: int, device: torch.device, shapes: dict[str, tuple[int, ...]] | None = None
    ) -> dict[str, Tensor]:
        """The tensors of a layer, counted from 0: those of ``shapes`` if given, and ``levels`` where there are any."""
        path = self.folder / _layer_file(index)
        try:
            if path.exists() and not path.is_file():
                raise InputError(f"{path}: cannot read the checkpoint: not a regular file")
            # Copies start on a cache line, as fresh tensors do; products of others may differ in their last bits.
            tensors = {name: tensor.clone() for name, tensor in load_file(str(path), device=str(device)).items()}
        except (SafetensorError, OSError, RuntimeError) as error:
            raise InputError(f"{path}: cannot read the checkpoint: {error}; {REMEDY}") from None
        found = {name: tuple(tensor.shape) for name, tensor in tensors.items() if name != "levels"}
        shapes = found if shapes is None else shapes
        for name in sorted(shapes.keys() | found.keys()):
            if found.get(name) != shapes.get(name):
                wanted = f"{found.get(name, 'nothing')} for {name}, this run needs {shapes.get(name, 'nothing')}"
                raise InputError(f"{path}: has {wanted}: of another version or of other data; {REMEDY}")
        for name, tensor in tensors.items():
            if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
                raise InputError(f"{path}: {name} holds something else than finite numbers; {REMEDY}")
        return tensors


def latest(folder: Path) -> Checkpoint | None:
    """The newest valid checkpoint, if there is one."""
    found = sorted((path for path in folder.glob("epoch-*") if (path / META).is_file()), reverse=True)
    if not found:
        return None
    path = found[0] / META
    try:
        meta = json.loads(read_text(path, "the checkpoint", largest=1 << 32))
        _check(meta)
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot read the checkpoint: {error}; {REMEDY}") from None
    return Checkpoint(found[0], meta)


def clear(folder: Path) -> None:
    """Remove the checkpoints of an earlier run: one that starts anew must not be resumed from them."""
    for path in folder.glob("epoch-*"):
        (path / META).unlink(missing_ok=True)  # first, so that none is valid and half removed
        shutil.rmtree(path, ignore_errors=True)


def _check(meta: Any) -> None:
    """Raise ValueError unless ``meta`` is a description as :func:`commit` gets it."""
    if not isinstance(meta, dict):
        raise ValueError("not a description")

    def is_number(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)

    for name in NUMBERS:
        if not is_number(meta.get(name)):
            raise ValueError(f"{name} is missing or not a number")
    for name in COUNTS:
        if not isinstance(meta[name], int) or not 1 <= meta[name] < 10**9:
            raise ValueError(f"{name} is not a count")
    for name, length in (("sizes", 4), ("best_score", 2)):
        values = meta.get(name)
        if not isinstance(values, list) or len(values) != length or not all(map(is_number, values)):
            raise ValueError(f"{name} is missing or not {length} numbers")
    for name, kind in (("schedule", dict), ("settings", dict), ("history", list)):
        if not isinstance(meta.get(name), kind):
            raise ValueError(f"{name} is missing")
    if len(meta["history"]) != meta["total_epochs"]:
        raise ValueError(f"it holds the history of {len(meta['history'])} epochs, not of {meta['total_epochs']}")
    for name in ("best_epoch", "worker_epochs"):
        if not isinstance(meta[name], int) or meta[name] < 0:
            raise ValueError(f"{name} is not a count")
    if not 0 < meta["rho"] <= 1e30 or not 0 < meta["scale"] < math.inf:
        raise ValueError("rho or scale is not a positive number")


def write_layer(folder: Path, epoch: int, index: int, tensors: dict[str, Tensor]) -> None:
    """Write one layer of the checkpoint of ``epoch``, safely on disk when this returns."""
    path = _epoch_folder(folder, epoch)
    path.mkdir(parents=True, exist_ok=True)
    name = path / _layer_file(index)
    save_file({key: value.contiguous() for key, value in tensors.items()}, str(name))
    _fsync(name)


def commit(folder: Path, epoch: int, meta: dict[str, Any]) -> None:
    """Make the checkpoint of ``epoch`` valid, then remove all others. All layers must have been written."""
    path = _epoch_folder(folder, epoch)
    temporary = path / (META + ".tmp")
    temporary.write_text(json.dumps(meta), encoding="utf-8")
    _fsync(temporary)
    temporary.replace(path / META)
    _fsync(path)
    for other in folder.glob("epoch-*"):
        if other != path:
            shutil.rmtree(other, ignore_errors=True)


def layer_tensors(worker: Worker, place: int) -> dict[str, Tensor]:
    """Everything that training needs to go on with this layer; the boundary to its right belongs to it."""
    layer, before, after = worker.layers[place], *worker.boundaries[place : place + 2]
    tensors = {"W": layer.W, "b": layer.b, "z": layer.z, "r": layer.r}
    if before is not None:
        tensors["p"] = before.p
    if after is not None:
        tensors |= {"q": after.q, "u": worker.u(place)}
        for levels in (after.p_levels, after.q_levels):
            if isinstance(levels, Levels):
                tensors["levels"] = levels.values
    return tensors


def restore_boundary(left: dict[str, Tensor], right: dict[str, Tensor], quantization: Quantization) -> Boundary:
    """The boundary between two layers, from the tensors of both."""
    short = FloatGrid(quantization.wire) if quantization.wire is not None else None
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
        p_levels=levels if quantization.p else short,
        q_levels=levels if quantization.q else short,
    )


def _epoch_folder(folder: Path, epoch: int) -> Path:
    return folder / f"epoch-{epoch:08d}"


def _layer_file(index: int) -> str:
    return f"layer-{index + 1:03d}.safetensors"


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
