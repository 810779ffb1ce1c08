"""The four readers of bytes, and valid files to start from."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load

from pdadmm_g.config import RunConfig
from pdadmm_g.data.datasets import load_dataset
from pdadmm_g.training.checkpoint import to_go_on_from

from .graphs import check_data, write_npz
from .runs import use_model
from .valid import trained, unpack


def write_corpus(name: str, seed: int, corpus: Path) -> None:
    """Valid content for a reader, or nearly so, a file each."""
    files = trained()
    valid = {"npz": [], "model": [files["run/model.safetensors"]], "yaml": [files["run/config.yaml"]],
             "checkpoint": [content for path, content in files.items() if "checkpoints" in path]}  # fmt: skip
    rng = random.Random(seed)
    for number in range(20 if name == "npz" else 0):
        write_npz(rng, corpus / str(number))
    for number, content in enumerate(valid[name]):
        (corpus / f"valid-{number}").write_bytes(content)


def reader(name: str, folder: Path) -> Callable[[bytes], None]:
    """What reads bytes by way of a file in ``folder``."""
    unpack(folder, finished=False)

    def read(content: bytes) -> None:
        if name == "checkpoint":
            return read_checkpoint(folder / "run/checkpoints", content)
        path = folder / {"npz": "g.npz", "model": "m.safetensors", "yaml": "c.yaml"}[name]
        path.write_bytes(content)
        if name == "npz":
            check_data(load_dataset(path))
        elif name == "model":
            use_model(path)
        else:
            RunConfig.load(path)
        return None

    return read


def read_checkpoint(checkpoints: Path, content: bytes) -> None:
    """Read the checkpoint with ``content`` in place of the file that it looks like most."""
    saved = to_go_on_from(checkpoints)
    if b'"stage_epoch"' in content:
        target = checkpoints / "history.jsonl"
    else:
        target = saved.folder / ("meta.json" if content[:1] == b"{" else "layer-001.safetensors")
    whole = target.read_bytes()
    target.write_bytes(content)
    try:
        again = to_go_on_from(checkpoints)
        again.layer(0, torch.empty(0), layer_shapes(whole) if target.suffix == ".safetensors" else {})
    finally:
        target.write_bytes(whole)


def layer_shapes(content: bytes) -> dict[str, tuple[int, ...]]:
    """The shapes in a safetensors file."""
    return {name: tuple(tensor.shape) for name, tensor in load(content).items() if name != "levels"}
