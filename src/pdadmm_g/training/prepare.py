"""From data to a problem: rows that train and validate, augmented as was asked for or as suits the data."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config import ModelConfig
from ..data.augmentation import GraphAugment
from ..data.augmentation_choice import augmentation, choose_augmentation
from ..data.checks import check_training, require_edges
from ..data.examples import Examples
from ..data.facts import are_directed
from ..data.graph import MASKS, Graph, as_mask
from ..data.splits import with_masks
from ..data.targets import (
    Weighed,
    hard_labels,
    has_columns,
    require_labels,
    require_training_nodes,
    require_y,
    row_weights,
    target_of,
    weighed,
)
from ..utils import compute_threads, task
from .choose import Rows, choose_unlabelled, copies_of
from .problem import Problem
from .standardization import Units


def prepare_graph(
    data: Graph,
    config: ModelConfig,
    *,
    seed: int,
    test: bool = False,
    culprit: str = "data",
    sample_weight: Any = None,
    fitted: GraphAugment | None = None,
) -> Problem:
    """The problem of a graph that went through :func:`~pdadmm_g.data.checks.check_graph`.

    What ``config`` leaves to the data is chosen by runs with this ``seed``. With ``test``, its test nodes are augmented
    too. Errors name the ``culprit``. Weights are of all nodes, or of the training nodes. An augmentation that is
    ``fitted`` already, as ``config`` says, is taken as it is.
    """
    config = config.resolved(target_of(data))
    data, (_, y, weights, classes), reasons = split_rows(data, config, sample_weight, seed=seed, culprit=culprit)
    check_training(data, culprit=culprit)
    if config.augment != "none":
        require_edges(data)
    data = _features_on(data, config.device)
    masks = [mask for mask in MASKS[: 3 if test else 2] if mask in data and bool(data[mask].any())]
    parts = {mask: data[mask].nonzero().view(-1) for mask in masks}
    units = Units.of(y, weights) if config.target == "regression" else None
    labels = _targets_of(data, parts, classes, units)
    own = _examples(torch.empty(0), y if units is None else units.standardized(y), weights, config)
    rows = Rows(parts["train_mask"], parts.get("val_mask"), own.y, labels.get("val_mask"), own.weights, classes)
    choice = choose_unlabelled(data, rows, config, seed=seed)
    given = choice.config
    if not choice.config.unlabelled:
        with compute_threads(config.threads):  # the choice does not depend on the number of cores
            features = choose_augmentation(data, rows.training, rows.validation, choice.config, weights)
        choice = features._replace(reasons=choice.reasons + features.reasons)
    config = choice.config
    reasons += (*_remarks(data, given, config), *choice.reasons)
    augment, source = fitted or augmentation(config), None
    if fitted is None:
        augment.basis, source = choice.basis, choice.source
    nodes = torch.cat(list(parts.values()))
    with task("features"):
        if fitted is None:
            rows_of_nodes = augment.fit_transform(data, nodes, source=source)
        else:
            rows_of_nodes = augment.features(data, nodes)
    X = dict(zip(masks, rows_of_nodes.to(config.device).split([*map(len, parts.values())]), strict=True))
    validation, scored = (_examples(X[mask], labels[mask], None, config) if mask in X else None for mask in MASKS[1:])
    training = Examples(X["train_mask"], own.y, own.weights)
    copies = None
    if config.unlabelled:
        source = source or augment.source(data)
        copies = copies_of(source.to(config.device), augment, config, rows.training)
    return Problem(training, validation, classes, config, augment, scored, copies, reasons, units)


def _targets_of(data: Graph, parts: dict[str, Tensor], classes: NDArray[Any], units: Units | None) -> dict[str, Tensor]:
    """What the nodes of each part are judged by: places among the classes, or their labels or standardized numbers."""
    if has_columns(data):
        return {mask: data.y[own] if units is None else units.standardized(data.y[own]) for mask, own in parts.items()}
    names = data.get("label_names")
    codes = torch.as_tensor(classes if names is None else np.searchsorted(names, classes))
    return {mask: torch.searchsorted(codes, hard_labels(data)[own]) for mask, own in parts.items()}


def _remarks(data: Graph, given: ModelConfig, chosen: ModelConfig) -> Iterator[str]:
    """What was made of a graph that is not as most are, a sentence each."""
    if data.get("structural"):
        yield "there are no features: degrees and random projections of the graph take their place"
    if data.get("edge_attr") is not None:
        yield "edge_attr has several columns and is not used: edge_weight is the place for a weight an edge"
    if data.get("unused_edge_columns") is not None:
        named = ", ".join(map(repr, data.unused_edge_columns))
        what = (
            f"columns {named} of the edges are" if data.unused_edge_columns[1:] else f"column {named} of the edges is"
        )
        yield f"{what} not used: 'weight' is the place for a number an edge"
    if given.directed == "auto" and chosen.augment != "none" and are_directed(data):
        way = "both ways alike" if chosen.directed == "symmetric" else "each way by itself"
        compared = chosen.directed != "symmetric" or not given.unlabelled
        compared &= "val_mask" in data and bool(data.val_mask.any())
        why = "which suits the validation nodes best" if compared else "directed='both' keeps the two ways apart"
        yield f"edges have directions: features go along them {way}, {why}"


def _features_on(data: Graph, device: str) -> Graph:
    """The graph with its features on a GPU, where they are augmented much faster, if they fit there several times."""
    if torch.device(device).type != "cuda":
        return data
    if 8 * data.x.numel() * data.x.element_size() > torch.cuda.mem_get_info(device)[0]:
        return data
    data = copy.copy(data)
    data.x = data.x.to(device)
    return data


def split_rows(
    data: Graph, config: ModelConfig, sample_weight: Any = None, *, seed: int, culprit: str = "data"
) -> tuple[Graph, Weighed, tuple[str, ...]]:
    """The graph with the nodes that train and validate, see :func:`.with_masks`, and what the former should become."""
    require_y(data, culprit=culprit)
    counted = None
    if sample_weight is not None:
        # By the nodes that train as the user sees it, before some of them are set aside.
        whole, _ = with_masks(data, dataclasses.replace(config, validation=0.0), seed=seed)
        require_training_nodes(whole, culprit=culprit)
        nodes = whole.train_mask.nonzero().view(-1)
        given = row_weights(sample_weight, nodes, data.num_nodes)
        sample_weight = torch.zeros(data.num_nodes, dtype=given.dtype).index_copy_(0, nodes, given)
        counted = sample_weight > 0
    data, reasons = with_masks(data, config, seed=seed, counted=counted)
    data, rows = training_rows(data, config, sample_weight, culprit=culprit)
    return data, rows, reasons


def training_rows(
    data: Graph, config: ModelConfig, sample_weight: Any = None, *, culprit: str = "data"
) -> tuple[Graph, Weighed]:
    """The graph with the training nodes that weigh something, and what these should become."""
    require_training_nodes(data, culprit=culprit)
    nodes, weights = data.train_mask.nonzero().view(-1), None
    if sample_weight is not None:
        weights = row_weights(sample_weight, nodes, data.num_nodes)
        nodes, weights = nodes[weights > 0], weights[weights > 0]
        data = _trained_on(data, nodes)
    require_labels(data, "train_mask", culprit=culprit)
    y = data.y[nodes]
    if has_columns(data):
        names = data.get("label_names")
        return data, Weighed(None, y, _plain_weights(weights), np.arange(y.shape[1]) if names is None else names)
    if y.is_floating_point():
        classes = torch.arange(y.shape[1])
    else:
        classes, y = y.unique(return_inverse=True)
    names = data.get("label_names")
    rows = weighed(y, classes.numpy() if names is None else names[classes.numpy()], config.class_weight, weights)
    return data if rows.kept is None else _trained_on(data, nodes[rows.kept]), rows


def _plain_weights(weights: Tensor | None) -> Tensor | None:
    """In single precision, as all are that train; None if each row weighs one."""
    return None if weights is None or bool((weights == 1).all()) else weights.float()


def _trained_on(data: Graph, nodes: Tensor) -> Graph:
    """The same graph with these training nodes."""
    data = copy.copy(data)
    data.train_mask = as_mask(nodes, data.num_nodes, "train_mask")
    return data


def prepare_rows(
    features: Tensor, labels: NDArray[Any] | Tensor, config: ModelConfig, sample_weight: Any = None
) -> Problem:
    """The problem of a matrix, which is taken as it is, with a label a row, or in a tensor the probabilities of all.

    Where the target of ``config`` is another than classes, the tensor has a column for each label or number.
    """
    config = config.resolved("classification")
    number = len(features)
    given = None if sample_weight is None else row_weights(sample_weight, torch.arange(number), number)
    if config.target != "classification":
        assert isinstance(labels, Tensor)
        return _of_columns(features, labels, config, given)
    if isinstance(labels, Tensor):
        classes, y = np.arange(labels.shape[1]), labels
    else:
        classes, encoded = np.unique(labels, return_inverse=True)
        y = torch.as_tensor(encoded)
    kept, y, weights, classes = weighed(y, classes, config.class_weight, given)
    if kept is not None:
        features = features[kept]
    examples = _examples(features.to(config.device), y, weights, config)
    return Problem(examples, None, classes, _as_it_is(config))


def _of_columns(features: Tensor, y: Tensor, config: ModelConfig, weights: Tensor | None) -> Problem:
    """The problem of a matrix with a column for each label or number."""
    kept = slice(None) if weights is None else weights > 0
    features, y, weights = features[kept], y[kept], None if weights is None else _plain_weights(weights[kept])
    units = Units.of(y, weights) if config.target == "regression" else None
    y = y if units is None else units.standardized(y)
    examples = _examples(features.to(config.device), y, weights, config)
    return Problem(examples, None, np.arange(y.shape[1]), _as_it_is(config), units=units)


def _as_it_is(config: ModelConfig) -> ModelConfig:
    """The same for features that are taken as they are."""
    return dataclasses.replace(config, augment="none", hops=1, normalize="none", unlabelled=config.unlabelled and 0)


def _examples(X: Tensor, y: Tensor, weights: Tensor | None, config: ModelConfig) -> Examples:
    """Rows that train, all on one device and their numbers of one type."""
    kind = X.dtype if X.is_floating_point() else torch.float32
    y = y.to(config.device, kind if y.is_floating_point() else torch.int64)
    return Examples(X, y, None if weights is None else weights.to(config.device, kind))
