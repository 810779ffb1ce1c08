"""A folder of shards gives what the same graph gives in memory: everything that works there works here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from helpers.commands import save
from helpers.communities import communities
from pdadmm_g.config import RunConfig
from pdadmm_g.estimator import load_estimator
from pdadmm_g.graph.graph import Graph
from pdadmm_g.graph.shards import graph_source, open_source, shard_graph
from pdadmm_g.runs import apply
from pdadmm_g.runs.run import train_run
from pdadmm_g.training import choose

JOB = Path(__file__).with_name("parts_job.py")
SMALL: dict[str, Any] = {"layers": 3, "stages": (2, 3), "hidden": 8, "epochs": 8, "patience": 4, "seed": 0}
GIVEN: dict[str, Any] = SMALL | {
    "augment": "average", "hops": 2, "teleport": 0.05, "normalize": "centered", "row_normalize": True,
    "weight_decay": 0.1, "unlabelled": 0, "label_hops": 0, "calibrate": False,
}  # fmt: skip
ROUNDS = GIVEN | {
    "normalize": "unit", "components": 8, "unlabelled": 40, "rounds": 3, "copies": 2, "sharpness": 3.0,
    "drop_entries": 0.0,
}  # fmt: skip
#: As few trials as show what is done with them.
FEW = {"FEATURES": 1, "WIDE": 12, "ROUNDS": 1}
CHOSEN = SMALL | {"rounds": 2, "unlabelled": 0}


def graph(kind: str) -> Graph:
    data = communities(nodes=120, features=20, labels=8)
    data.edge_index = torch.cat([data.edge_index, data.edge_index.flip(0)], 1)
    draw = torch.Generator().manual_seed(0)
    if kind == "directed":
        data.edge_index = data.edge_index[:, torch.rand(data.edge_index.shape[1], generator=draw) < 0.7]
    elif kind == "weights":
        data.edge_weight = torch.rand(data.edge_index.shape[1], generator=draw) + 0.1
    elif kind == "several labels":
        data.y = torch.stack([data.y == 0, data.y > 0, data.x[:, 0] > 0], 1).long()
    elif kind == "numbers":
        data.y, data.target_kind = data.x[:, :2].double() + data.y[:, None], "regression"
    elif kind == "splits":
        for mask in ("train_mask", "val_mask", "test_mask"):
            data[mask] = torch.stack([data[mask], data[mask].roll(3)], 1)
    elif kind == "few labels":
        del data.val_mask, data.test_mask
    elif kind == "labels apart":
        del data.val_mask
    elif kind == "sparse":
        data.x = data.x * (torch.rand(data.x.shape, generator=draw) < 0.08)
    elif kind == "no features":
        data.x = None
    return data


def table(folder: Path) -> tuple[str, str]:
    draw = np.random.default_rng(0)
    kind = draw.integers(2, size=130)
    ends = draw.integers(130, size=(2, 500))
    same = (kind[ends[0]] == kind[ends[1]]) | (draw.random(500) < 0.2)
    label = np.where(draw.random(130) < 0.4, np.array(["no", "yes"])[kind], None)
    ids = draw.permutation(130)
    nodes = pd.DataFrame({
        "id": ids, "label": label, "income": np.exp(3 * draw.normal(size=130) + kind),
        "town": draw.choice(["x", "y"], 130),
    })  # fmt: skip
    nodes.to_csv(folder / "nodes.csv", index=False)
    edges = pd.DataFrame({"source": ids[ends[0][same]], "target": ids[ends[1][same]]})
    edges.to_csv(folder / "edges.csv", index=False)
    return str(folder / "nodes.csv"), str(folder / "edges.csv")


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "given": ("plain", GIVEN),
    "hops apart": ("plain", GIVEN | {"augment": "apart", "hops": 3}),
    "components": ("plain", GIVEN | {"components": 6}),
    "directions": ("directed", GIVEN | {"directed": "both", "augment": "hops"}),
    "weights": ("weights", GIVEN),
    "known labels": ("plain", GIVEN | {"label_hops": 2}),
    "rounds": ("plain", ROUNDS),
    "rounds, entries dropped": ("sparse", ROUNDS | {"drop_entries": 0.5}),
    "chosen": ("directed", CHOSEN),
    "chosen out of fold": ("few labels", CHOSEN | {"calibrate": True}),
    "chosen, unlabelled": ("plain", CHOSEN | {"unlabelled": None}),
    "set aside": ("labels apart", GIVEN | {"validation": 0.3}),
    "refit": ("plain", GIVEN | {"refit": True, "calibrate": True}),
    "splits": ("splits", GIVEN | {"split": 1}),
    "several labels": ("several labels", GIVEN | {"scoring": "f1_macro"}),
    "numbers": ("numbers", GIVEN | {"target": "regression"}),
    "table, weights of classes": ("table", GIVEN | {"class_weight": {"yes": 2.0}, "validation": 0.3}),
    "init": ("plain", SMALL | {"init": "start"}),
    "no features": ("no features", GIVEN),
    "table": ("table", SMALL | {"unlabelled": 0}),
}


#: Much is tried in these, with many messages each: two processes are enough.
LONG = ("chosen out of fold", "chosen, unlabelled", "table")


def start(folder: Path, size: int) -> list[subprocess.Popen[bytes]]:
    meeting = folder / f"meeting-{size}"
    meeting.mkdir()
    environment = os.environ | {"WORLD_SIZE": str(size), "PDADMM_G_TEAM": str(meeting), "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen([sys.executable, str(JOB), str(folder)], env=environment | {"RANK": str(rank)})
        for rank in range(size)
    ]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, number in FEW.items():
            patch.setattr(choose, name, number)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    job = {}
    for name, (kind, settings) in CASES.items():
        source = (
            open_source(*table(folder)[:1], edges=table(folder)[1]) if kind == "table" else graph_source(graph(kind))
        )
        data = folder / f"{kind}.shards"
        if not data.exists():
            shard_graph(source, 6, data)
        job[name] = given(folder, settings) | {"dataset": str(data)}
    whole = str(save(folder / "plain.npz", graph("plain")))
    train_run(RunConfig(**GIVEN, dataset=whole, out=str(folder / "start")))
    for size in (2, 3):
        runs = {name: settings for name, settings in job.items() if size == 2 or name not in LONG}
        (folder / f"job-{size}.json").write_text(json.dumps({"few": FEW, "runs": runs}))
    processes = [process for size in (2, 3) for process in start(folder, size)]
    for name, settings in job.items():
        train_run(RunConfig(**settings, out=str(folder / f"{name}-1")))
    codes = [process.wait(200) for process in processes]
    assert codes == [0] * 5
    return folder


def given(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    return settings | {"init": str(folder / "start")} if "init" in settings else settings


def memory(folder: Path, name: str) -> Path:
    kind, settings = CASES[name][0], given(folder, CASES[name][1])
    out = folder / f"{name}-memory"
    if kind == "table":
        nodes, edges = table(folder)
        train_run(RunConfig(**settings, dataset=nodes, edges=edges, out=str(out)))
    else:
        data = save(folder / f"{kind}.npz", graph(kind))
        train_run(RunConfig(**settings, dataset=str(data), out=str(out)))
    return out


@pytest.mark.timeout(280)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_shards_give_what_memory_gives(folder: Path, name: str) -> None:
    expected = memory(folder, name)
    summary = json.loads((expected / "summary.json").read_text())
    known = load_estimator(expected / "model.safetensors")
    for parts in (1, 2) if name in LONG else (1, 2, 3):
        found = json.loads((folder / f"{name}-{parts}" / "summary.json").read_text())
        model = load_estimator(folder / f"{name}-{parts}" / "model.safetensors")
        assert found["choices"] == summary["choices"], parts
        assert found["data"] == summary["data"], parts
        for theirs, ours in zip(model.model_.parameters(), known.model_.parameters(), strict=True):
            torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=1e-5)
        for mask, figures in summary["metrics"].items():
            assert found["metrics"][mask] == pytest.approx(figures, abs=1e-5), parts


@pytest.mark.timeout(120)
@pytest.mark.parametrize("work", ["predicted", "evaluated"])
def test_a_model_is_applied_by_several_processes_as_by_one(folder: Path, tmp_path: Path, work: str) -> None:
    run, found, said = str(folder / "table-2"), [], list[str]()
    for processes in (1, 2):
        out = tmp_path / f"{processes}.csv"
        more = {"out": str(out), "probabilities": True} if work == "predicted" else {}
        said.clear()
        result = apply.apply(getattr(apply, work), run, None, processes, said.append, **more)
        found.append([pd.read_csv(out), result["predictions"]] if more else result)
    assert said  # of edges that are left out, once
    assert len(said) == len({*said})
    if work == "predicted":
        assert found[0][1] == found[1][1] == 130
        pd.testing.assert_frame_equal(found[0][0], found[1][0], atol=2e-6)
    else:
        assert found[0]["accuracies"] == found[1]["accuracies"]
        assert found[0]["metrics"]["train"] == pytest.approx(found[1]["metrics"]["train"])
    assert list(tmp_path.glob("*.tmp")) == []
