"""Checkpoints: one safetensors file per layer, and a description written last that makes them valid.

``checkpoints/epoch-00000120/layer-01.safetensors ... meta.json``. Each worker writes its own layers, so on several
machines the folder must be shared. Whatever is killed whenever: a folder without ``meta.json`` does not count, and the
checkpoint before it is removed only once the new one is whole.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ..admm.levels import FloatGrid, Levels
from ..admm.state import Boundary, Layer, Quantization
from ..errors import InputError

META = "meta.json"


@dataclass(frozen=True)
class Checkpoint:
    """A valid checkpoint: its folder and its description."""

    folder: Path
    meta: dict[str, Any]

    def layer(self, index: int, device: torch.device) -> dict[str, Tensor]:
        """The tensors of a layer, counted from 0."""
        path = self.folder / _layer_file(index)
        try:
            # Copies start on a cache line, as fresh tensors do; products of others may differ in their last bits.
            return {name: tensor.clone() for name, tensor in load_file(str(path), device=str(device)).items()}
        except (SafetensorError, OSError) as error:
            raise InputError(f"{path}: cannot read the checkpoint: {error}") from None


def latest(folder: Path) -> Checkpoint | None:
    """The newest valid checkpoint, if there is one."""
    found = sorted((path for path in folder.glob("epoch-*") if (path / META).is_file()), reverse=True)
    if not found:
        return None
    try:
        meta = json.loads((found[0] / META).read_text(encoding="utf-8"))
        if not isinstance(meta, dict):
            raise ValueError("not a description")
    except (OSError, ValueError) as error:
        raise InputError(f"{found[0] / META}: cannot read the checkpoint: {error}") from None
    return Checkpoint(found[0], meta)


def clear(folder: Path) -> None:
    """Remove the checkpoints of an earlier run: one that starts anew must not be resumed from them."""
    for path in folder.glob("epoch-*"):
        (path / META).unlink(missing_ok=True)  # first, so that none is valid and half removed
        shutil.rmtree(path, ignore_errors=True)


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


def layer_tensors(layer: Layer, before: Boundary | None, after: Boundary | None) -> dict[str, Tensor]:
    """Everything that training needs to go on with this layer; the boundary to its right belongs to it."""
    tensors = {"W": layer.W, "b": layer.b, "z": layer.z, "r": layer.r}
    if before is not None:
        tensors["p"] = before.p
    if after is not None:
        tensors |= {"q": after.q, "u": after.u}
        for levels in (after.p_levels, after.q_levels):
            if isinstance(levels, Levels):
                tensors["levels"] = levels.values
    return tensors


def restore_boundary(left: dict[str, Tensor], right: dict[str, Tensor], quantization: Quantization) -> Boundary:
    """The boundary between two layers, from the tensors of both."""
    short = FloatGrid(quantization.wire) if quantization.wire is not None else None
    levels = Levels(left["levels"]) if "levels" in left else None
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
