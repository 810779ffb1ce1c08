"""Training in worker processes, and on folders of shards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.communities import communities
from pdadmm_g.config import ModelConfig
from pdadmm_g.data.examples import Examples
from pdadmm_g.data.shards import graph_source, shard_graph
from pdadmm_g.training.fit import Job, fit
from pdadmm_g.training.prepare import Problem
from pdadmm_g.training.sharded import ShardedResult, fit_sharded


def problem(**settings) -> Problem:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(24, 6, generator=generator)
    y = torch.softmax(torch.randn(24, 3, generator=generator), dim=1)
    config = ModelConfig(layers=3, stages=(3,), hidden=4, epochs=4, weight_decay=0.1, **settings).resolved()
    training = Examples(X, y, torch.linspace(0.5, 2, 24))
    return Problem(training, Examples(X[:9].clone(), torch.arange(9) % 3), np.arange(3), config)


def test_a_job_carries_all_that_a_problem_has(tmp_path) -> None:
    sent = problem()
    Job({"layers": 3}, 0, 3, None).write(tmp_path, sent)
    received = Job.read(tmp_path).problem(tmp_path)
    for ours, theirs in ((sent.training, received.training), (sent.validation, received.validation)):
        for a, b in zip(ours, theirs, strict=True):
            assert (a is None and b is None) or torch.equal(a, b)


@pytest.mark.timeout(120)
def test_weights_and_probabilities_reach_the_workers() -> None:
    one, two = (fit(problem(workers=workers), seed=0) for workers in (1, 2))
    for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_worker_process_loads_neither_graphs_nor_scikit_learn() -> None:
    """They take longer to import than torch, and a worker does not use them."""
    code = (
        "import sys, pdadmm_g.training.worker_process\n"
        "print([name for name in ('torch_geometric', 'sklearn', 'scipy', 'click') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def trained(folder: Path, data: Any, **settings: Any) -> ShardedResult:
    shard_graph(graph_source(data, ""), 2, folder)
    config = ModelConfig(layers=2, hidden=4, epochs=2, rounds=1, unlabelled=20, **settings)
    told: list[ShardedResult] = []
    result = fit_sharded(str(folder), config, seed=0, on_trained=told.append)
    assert result is not None
    assert [before.config for before in told] == [result.config]
    return result


def test_where_nodes_without_labels_teach_what_is_left_open_is_the_first_of_what_would_be_tried(tmp_path: Path) -> None:
    config = trained(tmp_path / "graph", communities(60, labels=4)).config
    assert (config.augment, config.hops, config.teleport, config.normalize) == ("average", 2, 0.25, "unit")
    assert (config.components, config.drop_entries, config.sharpness) == (None, 0.0, 3.0)
    assert config.weight_decay == pytest.approx(0.002 * 12)


def test_where_all_nodes_train_nobody_teaches(tmp_path: Path) -> None:
    data = communities(30, features=5)
    data.train_mask[:] = True
    data.val_mask[:] = data.test_mask[:] = False
    result = trained(tmp_path / "graph", data)
    assert result.config.unlabelled == 0
    assert result.config.weight_decay == 0.1  # that of labelled nodes alone without validation
