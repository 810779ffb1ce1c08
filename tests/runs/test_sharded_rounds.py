"""Nodes without labels teach on a folder of shards, as they do where one process has the whole graph."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.communities import communities
from helpers.faults import free_port, torchrun
from pdadmm_g.config import ModelConfig, RunConfig
from pdadmm_g.graph.augmentation import Copies
from pdadmm_g.graph.propagation import normalized
from pdadmm_g.graph.sharded_augmentation import uniform
from pdadmm_g.graph.shards import graph_source, shard_graph
from pdadmm_g.model import GAMLP
from pdadmm_g.runs.run import train_run
from pdadmm_g.training.fit import fit
from pdadmm_g.training.prepare import prepare_graph
from pdadmm_g.training.train import TrainingResult

DATA = communities(nodes=140, features=12, labels=4)
SETTINGS: dict[str, Any] = {
    "augment": "average", "hops": 2, "teleport": 0.2, "normalize": "centered", "weight_decay": 0.05, "sharpness": 3.0,
    "drop_entries": 0.0, "unlabelled": 40, "rounds": 2, "copies": 2, "layers": 3, "stages": (2, 3), "hidden": 6,
    "epochs": 6, "patience": None, "class_weight": {"1": 2.0},
}  # fmt: skip


class SameCopies(Copies):
    """Copies of a graph in memory that leave out the nodes that those of shards do, of the nodes that these ask."""

    def rows(self, nodes: Tensor, number: int, seed: int) -> Tensor:
        found = []
        for each in np.random.SeedSequence(seed).generate_state(number, np.uint64).tolist():
            kept = torch.from_numpy(uniform(each, np.arange(140)) >= self.drop).float()[:, None]
            rows = torch.cat(list(self.operator(self.source.A, self.source.H * kept / (1 - self.drop))), 1)[nodes]
            found.append(normalized(rows, self.normalize, [rows.shape[1]], self.mean, self.scale))
        return torch.stack(found)

    def sample(self, most: int, generator: torch.Generator) -> Tensor:
        lots = uniform(generator.initial_seed(), self.others.numpy())
        return torch.from_numpy(np.argsort(lots)[:most])


@pytest.fixture(scope="module")
def whole() -> TrainingResult:
    """What one process with the whole graph trains on the same copies."""
    problem = prepare_graph(DATA.clone(), ModelConfig(**SETTINGS).resolved(), seed=0)
    assert problem.copies is not None
    return fit(dataclasses.replace(problem, copies=SameCopies(**vars(problem.copies))), seed=0)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharded") / "graph"
    shard_graph(graph_source(DATA, "mark"), 6, folder)
    return folder


def run(graph: Path, out: Path, **changes: Any) -> RunConfig:
    return RunConfig(**SETTINGS | {"dataset": str(graph), "out": str(out), "checkpoint_every": 4} | changes)


def check(out: Path, whole: TrainingResult) -> None:
    """Weights to rounding; what the records say of rounds."""
    model, _, _ = GAMLP.load(out / "model.safetensors")
    for ours, theirs in zip(model.parameters(), whole.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    for name in ("stage", "round", "agreement", "changed"):
        assert [record[name] for record in records] == [record[name] for record in whole.history]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mesh", [(1, 1), (2, 2)], ids=lambda mesh: f"{mesh[0]} workers x {mesh[1]} shards")
def test_every_mesh_trains_the_model_of_one_process(
    graph: Path, tmp_path: Path, whole: TrainingResult, mesh: tuple[int, int]
) -> None:
    summary = train_run(run(graph, tmp_path / "run", workers=mesh[0], shards=mesh[1]))
    assert summary is not None
    check(tmp_path / "run", whole)
    assert any(record["changed"] for record in whole.history)  # or the comparison above says nothing


@pytest.mark.timeout(300)
def test_a_run_resumed_in_a_round_goes_on_with_other_shards(graph: Path, tmp_path: Path, whole: TrainingResult) -> None:
    def stop(record: dict) -> None:
        if record["epoch"] == 20:  # in a round of the second depth
            raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        train_run(run(graph, tmp_path / "run"), on_epoch=stop)
    saved = json.loads(next((tmp_path / "run" / "checkpoints").glob("*/meta.json")).read_text())
    assert saved["round"] > 0
    train_run(run(graph, tmp_path / "run", shards=2), resume=True)
    check(tmp_path / "run", whole)


@pytest.mark.timeout(300)
def test_two_machines_have_their_own_shards_and_the_run_folder_in_common(
    graph: Path, tmp_path: Path, whole: TrainingResult
) -> None:
    """Two launchers on one machine, each in a folder with half of the shards."""
    (tmp_path / "run.yaml").write_text(run(Path("graph"), tmp_path / "run", shards=2).to_yaml())
    agents, port = [], str(free_port())
    for machine, others in enumerate((range(4, 7), range(1, 4))):
        shutil.copytree(graph, tmp_path / str(machine) / "graph")
        for number in others:
            shutil.rmtree(tmp_path / str(machine) / "graph" / f"shard-{number}-of-6")
        agent = torchrun(
            "--nnodes", "2", "--node-rank", str(machine), "--nproc-per-node", "1", "--master-addr", "127.0.0.1",
            "--master-port", port, "-m", "pdadmm_g", "train", "--config", str(tmp_path / "run.yaml"),
            cwd=tmp_path / str(machine),
        )  # fmt: skip
        agents.append(agent)
    outputs = [agent.communicate(timeout=280)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], outputs
    check(tmp_path / "run", whole)
