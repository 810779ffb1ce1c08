"""A small problem with an answer, and its training."""

from __future__ import annotations

import torch

from pdadmm_g.config import ModelConfig
from pdadmm_g.data.examples import Examples
from pdadmm_g.training.train import train


def blobs(nodes: int, seed: int, spread: float = 0.5) -> Examples:
    """Three Gaussian clouds in six dimensions."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % 3
    centres = 2 * torch.eye(3, 6)
    return Examples(centres[y] + spread * torch.randn(nodes, 6, generator=generator), y)


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
