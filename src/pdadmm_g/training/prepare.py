"""From data to a problem: rows that train and validate, augmented as was asked for or as suits the data."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from ..config import ModelConfig
from ..data.augmentation import whole_graph
from ..data.augmentation_choice import augmentation, choose_augmentation
from ..data.checks import MASKS, check_training, require_edges
from ..data.examples import Examples
from ..errors import InputError
from .problem import Problem


def prepare_graph(data: Data, config: ModelConfig, *, test: bool = False, culprit: str = "data") -> Problem:
    """The problem of a graph that went through :func:`~pdadmm_g.data.checks.check_graph`.

    With ``test``, its test nodes are augmented too. Errors name the ``culprit``.
    """
    check_training(data, culprit=culprit)
    if config.needs_graph:
        require_edges(data, f"method {config.method} needs it")
    elif config.augment != "none":
        require_edges(data)
    masks = [mask for mask in MASKS[: 3 if test else 2] if mask in data and bool(data[mask].any())]
    parts = {mask: data[mask].nonzero().view(-1) for mask in masks}
    config = choose_augmentation(data, parts["train_mask"], parts.get("val_mask"), config)
    augment = augmentation(config)
    nodes = torch.cat(list(parts.values()))
    graph = whole_graph(data, augment, config.device) if config.needs_graph else None
    rows = augment.fit(data, nodes) if graph is None else nodes
    classes = data.y[data.train_mask].unique()
    examples = {
        mask: Examples(part, torch.searchsorted(classes, data.y[parts[mask]]).to(config.device))
        for mask, part in zip(masks, rows.to(config.device).split([*map(len, parts.values())]), strict=True)
    }
    training, validation, scored = (examples.get(mask) for mask in MASKS)
    assert training is not None
    return Problem(training, validation, classes.numpy(), config, augment, scored, graph)


def prepare_rows(features: Tensor, labels: NDArray[Any], config: ModelConfig) -> Problem:
    """The problem of a matrix, which is taken as it is, and one label for each of its rows."""
    if config.needs_graph:
        raise InputError(f"method {config.method} needs a graph: pass a torch_geometric Data, not a matrix")
    classes, encoded = np.unique(labels, return_inverse=True)
    examples = Examples(features.to(config.device), torch.as_tensor(encoded, device=config.device))
    config = dataclasses.replace(config, augment="none", hops=1, normalize="none")
    return Problem(examples, None, classes, config)
