"""Which augmentation, where that is left to the data: what suits a linear model best on the validation nodes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from ..config import ModelConfig
from ..metrics import Scorer, score
from .augmentation import GraphAugment, candidate_features
from .checks import hard_labels
from .examples import at_most

#: Taken where there is no validation node.
DEFAULT_HOPS = 8
DEFAULT_TELEPORT = 0.05
#: Averages over so many powers of the graph are tried, and hop blocks, and the features alone.
HOPS = (2, 4, 8, 16)
NORMALIZATIONS: tuple[Literal["unit", "centered"], ...] = ("unit", "centered")
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
        teleport=DEFAULT_TELEPORT if config.teleport is None else config.teleport,
        row_normalize=config.row_normalize,
        normalize=config.normalize,
        components=config.components,
    )


def choose_augmentation(
    data: Data, training: Tensor, validation: Tensor | None, config: ModelConfig, weights: Tensor | None = None
) -> ModelConfig:
    """``config`` with augment, hops and normalize filled in: the best by validation score of logistic regression.

    Of equally good ones, the one with the lower validation loss is taken. ``weights`` are of the training nodes;
    nodes with probabilities count as of their most probable class.
    """
    if config.teleport is None:
        config = dataclasses.replace(config, teleport=DEFAULT_TELEPORT)
    if config.augment == "auto" and (data.edge_index is None or data.edge_index.numel() == 0):
        config = dataclasses.replace(config, augment="none", hops=1)
    if "auto" not in (config.augment, config.normalize):
        return config
    labels = hard_labels(data)
    if validation is None or len(labels[training].unique()) == 1:
        augment = "average" if config.augment == "auto" else config.augment
        normalize = "centered" if config.normalize == "auto" else config.normalize
        return dataclasses.replace(config, augment=augment, hops=config.hops or DEFAULT_HOPS, normalize=normalize)
    parts = [at_most(MOST_NODES, training), at_most(MOST_NODES, validation)]
    weights = None if weights is None else at_most(MOST_NODES, weights)
    best, choice = (-math.inf, -math.inf), config
    for candidate, rows in _candidates(data, torch.cat(parts), config):
        for normalize in NORMALIZATIONS if config.normalize == "auto" else (config.normalize,):
            candidate = dataclasses.replace(candidate, normalize=normalize)
            features = augmentation(candidate).fit_rows(rows)
            found = _linear_score(features, [labels[part] for part in parts], weights, config.scoring)
            if found > best:
                best, choice = found, candidate
    return choice


def _candidates(data: Data, nodes: Tensor, config: ModelConfig) -> Iterator[tuple[ModelConfig, Tensor]]:
    """The augmentations to choose from, each with its rows for ``nodes`` before they are normalised."""
    assert config.teleport is not None
    like = GraphAugment(teleport=config.teleport, row_normalize=config.row_normalize)
    if config.augment == "auto":
        for mode, hops, rows in candidate_features(data, nodes, (config.hops,) if config.hops else HOPS, like):
            yield dataclasses.replace(config, augment=mode, hops=hops), rows
    else:
        yield config, augmentation(dataclasses.replace(config, normalize="none")).propagated(data, nodes)


def _linear_score(
    X: Tensor, labels: list[Tensor], weights: Tensor | None = None, scoring: str | Scorer = "accuracy"
) -> tuple[float, float]:
    """Validation score and minus log loss of the best of a few logistic regressions."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    training, validation = X.cpu().double().split([len(part) for part in labels])
    # Weights lie in the span of the training rows: an orthogonal basis of it makes the problem small, exactly.
    basis = torch.linalg.qr(training.T)[0] if len(training) < training.shape[1] else None
    if basis is not None:
        training, validation = training @ basis, validation @ basis
    y, y_val = (part.numpy() for part in labels)
    known = np.isin(y_val, y)
    number = len(y) if weights is None else float(weights.double().sum())
    sample_weight = None if weights is None else weights.double().numpy()
    places = np.where(known, np.searchsorted(np.unique(y), y_val), -1)
    best = (-math.inf, -math.inf)
    for ridge in RIDGES:
        model = LogisticRegression(C=1 / (ridge * number), max_iter=200, tol=1e-3)
        model.fit(training.numpy(), y, sample_weight)
        P = model.predict_proba(validation.numpy())
        loss = log_loss(y_val[known], P[known], labels=model.classes_) if known.any() else math.inf
        found = score(scoring, places, P)
        best = max(best, (-math.inf if found is None else found, -loss))
    return best
