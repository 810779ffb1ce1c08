"""Which augmentation, where that is left to the data: what suits a linear model best on the validation nodes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from ..config import ModelConfig
from .augmentation import GraphAugment, candidate_features
from .checks import hard_labels
from .edges import are_directed, join_unlike
from .examples import at_most
from .propagation import Directed, Mode

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
        directed="symmetric" if config.directed == "auto" else config.directed,
    )


def choose_augmentation(
    data: Data, training: Tensor, validation: Tensor | None, config: ModelConfig, weights: Tensor | None = None
) -> ModelConfig:
    """``config`` with augment, hops, normalize and directed filled in: what suits logistic regression best.

    The best by validation accuracy, that is.
    Of equally accurate ones, the one with the lower validation loss is taken. ``weights`` are of the training nodes;
    nodes with probabilities count as of their most probable class.
    """
    if config.teleport is None:
        config = dataclasses.replace(config, teleport=DEFAULT_TELEPORT)
    if config.augment == "auto" and (data.edge_index is None or data.edge_index.numel() == 0):
        config = dataclasses.replace(config, augment="none", hops=1)
    first, *others = _directions(data, config)
    config = dataclasses.replace(config, directed=first)
    if "auto" not in (config.augment, config.normalize) and not others:
        return config
    labels = hard_labels(data)
    if validation is None or len(labels[training].unique()) == 1:
        augment = "average" if config.augment == "auto" else config.augment
        normalize = "centered" if config.normalize == "auto" else config.normalize
        return dataclasses.replace(config, augment=augment, hops=config.hops or DEFAULT_HOPS, normalize=normalize)
    parts = [at_most(MOST_NODES, training), at_most(MOST_NODES, validation)]
    weights = None if weights is None else at_most(MOST_NODES, weights)
    best, choice = (-1.0, -math.inf), config
    for candidate, rows in _candidates(data, torch.cat(parts), config, others):
        for normalize in NORMALIZATIONS if config.normalize == "auto" else (config.normalize,):
            candidate = dataclasses.replace(candidate, normalize=normalize)
            score = _linear_score(augmentation(candidate).fit_rows(rows), [labels[part] for part in parts], weights)
            if score > best:
                best, choice = score, candidate
    return choice


def _directions(data: Data, config: ModelConfig) -> tuple[Directed, ...]:
    """The directions to choose from, the usual one first."""
    if config.directed != "auto":
        return (config.directed,)
    open_to_both = not (config.needs_graph or config.sees_copies or config.unlabelled or config.augment == "none")
    return ("symmetric", "both") if open_to_both and are_directed(data) else ("symmetric",)


def _candidates(
    data: Data, nodes: Tensor, config: ModelConfig, further: Sequence[Directed]
) -> Iterator[tuple[ModelConfig, Tensor]]:
    """The augmentations to choose from, each with its rows for ``nodes`` before they are normalised.

    ``further`` directions are tried beside that of ``config``.
    """
    directions: list[Directed] = [config.directed if config.directed != "auto" else "symmetric", *further]
    modes: list[tuple[Mode, int | None]]
    if config.augment != "auto":
        modes = [(config.augment, config.hops)]
    else:
        averages = (config.hops,) if config.hops else HOPS
        modes = [("hops", config.hops or 4), *(("average", k) for k in averages)]
        if directions[0] != "both":
            for kind, number, rows in candidate_features(data, nodes, averages, _like(config)):
                yield dataclasses.replace(config, augment=kind, hops=number), rows
    tried = [(mode, hops, way) for way in directions for mode, hops in modes]
    if config.augment == "auto":
        tried = [each for each in tried if each[2] == "both"]  # of one matrix all are above, from one propagation
        if join_unlike(data, nodes) is not None:
            tried += [("apart", config.hops or 3, way) for way in directions]
    for mode, hops, way in tried:
        candidate = dataclasses.replace(config, augment=mode, hops=hops, directed=way)
        yield candidate, augmentation(dataclasses.replace(candidate, normalize="none")).propagated(data, nodes)


def _like(config: ModelConfig) -> GraphAugment:
    """What all candidates have in common."""
    return augmentation(dataclasses.replace(config, augment="hops", hops=1, normalize="none", components=None))


def _linear_score(X: Tensor, labels: list[Tensor], weights: Tensor | None = None) -> tuple[float, float]:
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
    number = len(y) if weights is None else float(weights.double().sum())
    sample_weight = None if weights is None else weights.double().numpy()
    best = (-1.0, -math.inf)
    for ridge in RIDGES:
        model = LogisticRegression(C=1 / (ridge * number), max_iter=200, tol=1e-3)
        model.fit(training.numpy(), y, sample_weight)
        accuracy = float((model.predict(validation.numpy()) == y_val).mean())
        loss = math.inf
        if known.any():
            loss = log_loss(y_val[known], model.predict_proba(validation.numpy()[known]), labels=model.classes_)
        best = max(best, (accuracy, -loss))
    return best
