"""Training again on all labels, those that validated included, with what was chosen with their help."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from ..config import ModelConfig
from ..data.graph import Graph
from ..data.splits import weightless, with_masks
from ..data.targets import hard_labels, has_columns, labelled, row_weights
from .fit import fit
from .prepare import prepare_graph
from .problem import Problem
from .records import Record, judged
from .train import TrainingResult


def refit(
    data: Graph, problem: Problem, result: TrainingResult, given: ModelConfig, *, seed: int, sample_weight: Any = None
) -> tuple[Problem, TrainingResult, str]:
    """The problem with its validation nodes among the training nodes, what comes of it, and a sentence on it.

    The settings are those that were chosen, where ``given`` left that open. The epochs are as many as led to the
    weights that were kept, dealt evenly to the stages up to their depth. The history stays that by which they were
    chosen.
    """
    data, rows, weights = _all_labels(data, given, seed, sample_weight)
    config = _settings(problem.config, result)
    if given.weight_decay is None and config.weight_decay is not None:
        # The risk is a sum over rows: with more of them the same pull needs a larger weight.
        config = dataclasses.replace(config, weight_decay=config.weight_decay * rows / len(problem.training.y))
    whole = prepare_graph(data, config, seed=seed, sample_weight=weights)
    again = fit(whole, seed=seed).uninterrupted()
    if again.status.is_failure:
        why = f"training again on all labels failed ({again.status.name}): the model is the one before"
        return problem, result, why
    number = f"{config.rounds} rounds" if config.unlabelled else f"{config.epochs} epochs a stage"
    why = f"trained again on all {rows} labels, {number}: those that validated are among them"
    kept = dataclasses.replace(problem.config, weight_decay=config.weight_decay)
    seconds = result.seconds + again.seconds
    again.history, again.seconds = result.history, seconds
    return dataclasses.replace(whole, config=kept), again, why


def _all_labels(data: Graph, given: ModelConfig, seed: int, sample_weight: Any) -> tuple[Graph, int, Tensor | None]:
    """The graph with all its training and validation nodes as training nodes, their number, and what nodes weigh."""
    before, _ = with_masks(data, dataclasses.replace(given, validation=0.0), seed=seed)
    after, _ = with_masks(data, given, seed=seed)
    data = copy.copy(before)
    data.train_mask = (before.train_mask | after.val_mask) & labelled(data)
    data.val_mask = torch.zeros_like(data.train_mask)
    weights = None
    if sample_weight is not None:
        training = before.train_mask.nonzero().view(-1)
        everyone = torch.arange(data.num_nodes)
        if len(sample_weight) == data.num_nodes:
            weights = row_weights(sample_weight, everyone, data.num_nodes)
        else:
            weights = torch.ones(data.num_nodes, dtype=torch.float64)
            weights[training] = row_weights(sample_weight, training, data.num_nodes)
    counted = data.train_mask
    if not has_columns(data):
        counted = counted & ~torch.isin(hard_labels(data), weightless(data, given))
    return data, int(counted.sum()), weights


def _settings(config: ModelConfig, result: TrainingResult) -> ModelConfig:
    """What was chosen, for training to a fixed end."""
    fixed: dict[str, Any] = {"patience": None, "validation": 0.0, "refit": False, "split": None}
    depth = len(result.model.linears)
    assert config.stages is not None
    stages = (*(before for before in config.stages if before < depth), depth)
    plan = config.plan if depth == config.layers else None
    fixed |= {"layers": depth, "stages": (depth,) if config.unlabelled else stages, "plan": plan}
    # What was tried at depths that gained nothing did not lead there.
    numbers = sorted({record["stage"] for record in result.history if record["stage"] <= len(stages)})
    kept = [_best([record for record in result.history if record["stage"] == number]) for number in numbers]
    if config.unlabelled:
        fixed["rounds"] = max(1, *(record["round"] for record, _ in kept))
    else:
        fixed["epochs"] = math.ceil(sum(epochs for _, epochs in kept) / len(kept))
    return dataclasses.replace(config, **fixed)


def _best(records: list[Record]) -> tuple[Record, int]:
    """The epoch of a stage with the best validation, as it was kept, and how many epochs there were up to it."""
    scored = [(own, -place) for place, record in enumerate(records, start=1) if (own := judged(record)) is not None]
    place = -max(scored)[1] if scored else len(records)
    return records[place - 1], place
