"""How good the outputs of a network are for rows with targets: what a record of training says of an epoch."""

from __future__ import annotations

from torch import Tensor

from ..admm.targets import Targets
from ..config import ModelConfig
from ..metrics import score
from ..model import outputs


def accuracy(logits: Tensor, y: Targets, target: str) -> float | None:
    """The share of rows that are predicted right, of several labels all of them; None for numbers."""
    if target == "regression":
        return None
    return y.subset_accuracy(logits) if target == "multilabel" else y.accuracy(logits)


def needs_score(config: ModelConfig) -> bool:
    """Does validation choose by another figure than the accuracy, which is known anyway?"""
    return config.scoring != "accuracy"


def validation_score(logits: Tensor, t: Tensor, config: ModelConfig) -> float | None:
    """What ``scoring`` makes of rows that validate: ``t`` are class numbers, or a row of labels or numbers each.

    Numbers are in standard deviations of the training rows, so that all columns count alike.
    """
    return score(config.scoring, t.cpu(), outputs(logits.double(), config.target).cpu(), config.target)
