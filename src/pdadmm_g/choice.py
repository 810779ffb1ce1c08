"""What is left to the data: the augmentation that suits a linear model, the weight decay that suits the first stage.

Both choices look at the training and validation nodes only. Without validation nodes there is nothing to choose by.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from .config import ModelConfig
from .graph import GraphAugment, candidate_features
from .stage import Examples
from .training import train

#: Taken where there is no validation node.
DEFAULT_HOPS, DEFAULT_WEIGHT_DECAY = 8, 0.1
#: Averages over so many powers of the graph are tried, and hop blocks, and the features alone.
HOPS = (2, 4, 8, 16)
NORMALIZATIONS: tuple[Literal["unit", "centered"], ...] = ("unit", "centered")
WEIGHT_DECAYS = (0.03, 0.1, 0.3, 1.0, 3.0)
#: Weight decays of the linear model, per training node.
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
#: More nodes of a kind than this are not looked at.
MOST_NODES = 2000


def augmentation(config: ModelConfig) -> GraphAugment:
    """The augmentation that ``config`` describes, once it is chosen."""
    assert config.augment != "auto"
    assert config.normalize != "auto"
    assert config.hops is not None
    return GraphAugment(
        config.augment,
        config.hops,
        teleport=config.teleport,
        row_normalize=config.row_normalize,
        normalize=config.normalize,
    )


def choose_augmentation(data: Data, training: Tensor, validation: Tensor | None, config: ModelConfig) -> ModelConfig:
    """``config`` with augment, hops and normalize filled in: the best by validation accuracy of logistic regression.

    Of equally accurate ones, the one with the lower validation loss is taken.
    """
    if config.augment == "auto" and (data.edge_index is None or data.edge_index.numel() == 0):
        config = dataclasses.replace(config, augment="none", hops=1)
    if "auto" not in (config.augment, config.normalize):
        return config
    if validation is None:
        augment = "average" if config.augment == "auto" else config.augment
        normalize = "centered" if config.normalize == "auto" else config.normalize
        return dataclasses.replace(config, augment=augment, hops=config.hops or DEFAULT_HOPS, normalize=normalize)
    parts = [_some(training), _some(validation)]
    labels = [data.y[part] for part in parts]
    best, choice = (-1.0, -math.inf), config
    for candidate, rows in _candidates(data, torch.cat(parts), config):
        for normalize in NORMALIZATIONS if config.normalize == "auto" else (config.normalize,):
            candidate = dataclasses.replace(candidate, normalize=normalize)
            score = _linear_score(augmentation(candidate).fit_rows(rows), labels)
            if score > best:
                best, choice = score, candidate
    return choice


def _candidates(data: Data, nodes: Tensor, config: ModelConfig) -> Iterator[tuple[ModelConfig, Tensor]]:
    """The augmentations to choose from, each with its rows for ``nodes`` before they are normalised."""
    like = GraphAugment(teleport=config.teleport, row_normalize=config.row_normalize)
    if config.augment == "auto":
        for mode, hops, rows in candidate_features(data, nodes, (config.hops,) if config.hops else HOPS, like):
            yield dataclasses.replace(config, augment=mode, hops=hops), rows
    else:
        yield config, augmentation(dataclasses.replace(config, normalize="none")).propagated(data, nodes)


def _some(rows: Tensor) -> Tensor:
    """At most :data:`MOST_NODES` of the rows, evenly spaced."""
    return rows[:: -(-len(rows) // MOST_NODES)]


def _linear_score(X: Tensor, labels: list[Tensor]) -> tuple[float, float]:
    """Validation accuracy and minus log loss of the best of a few logistic regressions."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    training, validation = X.cpu().double().split([len(part) for part in labels])
    # Weights lie in the span of the training rows: an orthogonal basis of it makes the problem small, exactly.
    basis = torch.linalg.qr(training.T)[0] if len(training) < training.shape[1] else None
    if basis is not None:
        training, validation = training @ basis, validation @ basis
    y, y_val = (part.numpy() for part in labels)
    known = np.isin(y_val, y)
    best = (-1.0, -math.inf)
    for ridge in RIDGES:
        model = LogisticRegression(C=1 / (ridge * len(y)), max_iter=200, tol=1e-3).fit(training.numpy(), y)
        accuracy = float((model.predict(validation.numpy()) == y_val).mean())
        loss = log_loss(y_val[known], model.predict_proba(validation.numpy()[known]), labels=model.classes_)
        best = max(best, (accuracy, -loss))
    return best


def choose_weight_decay(
    training: Examples, validation: Examples | None, num_classes: int, config: ModelConfig, *, seed: int
) -> ModelConfig:
    """``config`` with the weight decay filled in: the best by validation accuracy of the first stage."""
    if config.weight_decay is not None:
        return config
    if validation is None:
        return dataclasses.replace(config, weight_decay=DEFAULT_WEIGHT_DECAY)
    some, other = (Examples(_some(part.X), _some(part.y)) for part in (training, validation))
    assert config.stages is not None
    depth = config.stages[0]
    best, choice = (-1.0, -math.inf), DEFAULT_WEIGHT_DECAY
    for weight_decay in WEIGHT_DECAYS:
        pilot = dataclasses.replace(
            config, layers=depth, stages=(depth,), plan=None, workers=1, weight_decay=weight_decay, eval_every=5,
            epochs=200,
        )  # fmt: skip
        result = train(some, other, num_classes, pilot, seed=seed)
        assert result is not None
        measured = [record for record in result.uninterrupted().history if record["val_accuracy"] is not None]
        score = max(((record["val_accuracy"], -record["val_loss"]) for record in measured), default=best)
        if score > best:
            best, choice = score, weight_decay
    # The risk is a sum over nodes: with more of them the same pull needs a larger weight.
    return dataclasses.replace(config, weight_decay=choice * len(training.y) / len(some.y))
