"""A small problem with an answer, and its training."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from pdadmm_g.config import ModelConfig
from pdadmm_g.graph.examples import Examples
from pdadmm_g.training.train import train


def blobs(nodes: int, seed: int, spread: float = 0.5) -> Examples:
    """Three Gaussian clouds in six dimensions."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % 3
    centres = 2 * torch.eye(3, 6)
    return Examples(centres[y] + spread * torch.randn(nodes, 6, generator=generator), y)


def wide(nodes: int, seed: int, dtype: torch.dtype) -> Examples:
    """Four clouds in thirty dimensions, so far apart that the paper's integer levels have something to hold on to."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % 4
    return Examples(4 * torch.eye(4, 30)[y] + torch.randn(nodes, 30, generator=generator, dtype=dtype), y)


def weighted(rows: Examples) -> Examples:
    """The same rows with weights, and with probabilities instead of labels."""
    dtype = rows.X.dtype
    return Examples(
        rows.X, (torch.eye(4, dtype=dtype)[rows.y] + 0.1) / 1.4, torch.linspace(0.2, 3, len(rows.y)).to(dtype)
    )


def write_job(folder: Path, cases: dict, training: Examples, validation: Examples) -> None:
    """The rows and the cases that the processes of a group train."""
    tensors = {"X_train": training.X, "y_train": training.y, "X_val": validation.X, "y_val": validation.y}
    _, t, w = weighted(training)
    save_file(tensors | {"t_train": t, "w_train": w}, str(folder / "data.safetensors"))
    (folder / "cases.json").write_text(json.dumps(cases))


TRAINING, VALIDATION = blobs(60, 0), blobs(90, 1)


def fit(validation: Examples | None = VALIDATION, on_epoch=None, seed: int = 0, **settings):
    settings = {
        "layers": 4,
        "stages": (2, 4),
        "hidden": 8,
        "epochs": 15,
        "nu": 1e-2,
        "rho": 5e-2,
        "weight_decay": 1e-3,
    } | settings
    return train(TRAINING, validation, 3, ModelConfig(**settings), seed=seed, on_epoch=on_epoch)
