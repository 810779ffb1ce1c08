"""Training in worker processes, and on folders of shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.communities import communities
from pdadmm_g import GAMLPClassifier
from pdadmm_g.config import ModelConfig, RunConfig
from pdadmm_g.engine.team import Team
from pdadmm_g.graph.examples import Examples
from pdadmm_g.graph.shards import graph_source, shard_graph
from pdadmm_g.runs.sharded import fit_sharded
from pdadmm_g.training.checkpoint import Checkpointing
from pdadmm_g.training.fit import fit
from pdadmm_g.training.prepare import Problem


def problem(**settings) -> Problem:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(24, 6, generator=generator)
    y = torch.softmax(torch.randn(24, 3, generator=generator), dim=1)
    config = ModelConfig(layers=3, stages=(3,), hidden=4, epochs=4, weight_decay=0.1, **settings).resolved()
    training = Examples(X, y, torch.linspace(0.5, 2, 24))
    return Problem(training, Examples(X[:9].clone(), torch.arange(9) % 3), np.arange(3), config)


@pytest.mark.timeout(120)
def test_weights_and_probabilities_reach_the_workers() -> None:
    one, two = (fit(problem(workers=workers), seed=0) for workers in (1, 2))
    for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True):
        assert torch.equal(a, b)


def trained(folder: Path, data: Any, **settings: Any) -> ModelConfig:
    shard_graph(graph_source(data, ""), 2, folder)
    config = RunConfig(dataset=str(folder), layers=2, hidden=4, epochs=2, rounds=1, unlabelled=20, **settings)
    told: list[GAMLPClassifier] = []
    fit_sharded(config, Checkpointing(folder / "checkpoints", {}), Team(), None, lambda _: None, told.append)
    return told[0].config_


def test_where_nodes_without_labels_teach_what_is_left_open_is_the_first_of_what_would_be_tried(tmp_path: Path) -> None:
    config = trained(tmp_path / "graph", communities(60, labels=4))
    assert (config.augment, config.hops, config.teleport, config.normalize) == ("average", 2, 0.25, "unit")
    assert (config.components, config.drop_entries, config.sharpness) == (None, 0.0, 3.0)
    assert config.weight_decay == pytest.approx(0.002 * 12)


def test_where_all_nodes_train_nobody_teaches(tmp_path: Path) -> None:
    data = communities(30, features=5)
    data.train_mask[:] = True
    data.val_mask[:] = data.test_mask[:] = False
    config = trained(tmp_path / "graph", data)
    assert config.unlabelled == 0
    assert config.weight_decay == 0.1  # that of labelled nodes alone without validation
