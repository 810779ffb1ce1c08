"""Rows over processes: the same weights on every mesh, to rounding, and bit for bit along the chain."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from safetensors.torch import save_file

from helpers.commands import FIXED, save
from helpers.faults import torchrun
from pdadmm_g import GAMLPClassifier
from pdadmm_g.config import ModelConfig
from pdadmm_g.data.examples import Examples, part_of
from pdadmm_g.engine.launch import run_workers
from pdadmm_g.errors import InputError
from pdadmm_g.training.train import train

BASE = {"layers": 4, "stages": [2, 4], "hidden": 12, "epochs": 15, "eval_every": 5, "weight_decay": 0.01}
CASES = {
    "linearized-float32": BASE | {"solver": "linearized"},
    "exact-float32": BASE | {"solver": "exact"},
    "linearized-quantized": BASE | {"solver": "linearized", "quantize": "pq", "bits": 4},
    "exact-weighted": BASE | {"solver": "exact"},
    # More inputs than rows: all rows in one process allow for the smaller, the kernel form of the W-step.
    "exact-wide-float32": BASE | {"solver": "exact", "hidden": 60},
    "exact-wide-weighted": BASE | {"solver": "exact", "hidden": 60},
}


def examples(nodes: int, seed: int) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % 4
    return Examples(4 * torch.eye(4, 30)[y] + torch.randn(nodes, 30, generator=generator, dtype=torch.float64), y)


TRAINING, VALIDATION = examples(41, 0), examples(17, 1)
WEIGHTED = Examples(TRAINING.X, (torch.eye(4).double()[TRAINING.y] + 0.1) / 1.4, torch.linspace(0.2, 3, 41).double())


@pytest.fixture(scope="module")
def on_meshes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict]:
    """All cases on all meshes, in one group of four processes."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "mesh"
    with FileLock(f"{folder}.lock"):
        if not (folder / "notes.json").exists():
            folder.mkdir(exist_ok=True)
            tensors = {"X_train": TRAINING.X, "y_train": TRAINING.y, "X_val": VALIDATION.X, "y_val": VALIDATION.y}
            save_file(tensors | {"t_train": WEIGHTED.y, "w_train": WEIGHTED.weights}, str(folder / "data.safetensors"))
            (folder / "cases.json").write_text(json.dumps(CASES))
            notes: list[dict] = []
            command = [sys.executable, str(Path(__file__).with_name("mesh_job.py")), str(folder)]
            run_workers(command, 4, threads=1, timeout=60, folder=folder, on_note=lambda _, note: notes.append(note))
            (folder / "notes.json").write_text(json.dumps(notes))
    notes = json.loads((folder / "notes.json").read_text())
    return {(note["case"], note["mesh"]): note for note in notes}


def serial(case: str) -> tuple[torch.Tensor, list[dict]]:
    rows = WEIGHTED if "weighted" in case else TRAINING
    kind = torch.float32 if "float32" in case else torch.float64
    rows = Examples(*(part if part is None or part.dtype == torch.int64 else part.to(kind) for part in rows))
    validation = VALIDATION._replace(X=VALIDATION.X.to(kind))
    result = train(rows, validation, 4, ModelConfig(**CASES[case]), seed=0)
    return torch.cat([parameter.detach().double().flatten() for parameter in result.model.parameters()]), result.history


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES)
def test_weights_are_the_same_on_every_mesh(on_meshes, case: str) -> None:
    expected, history = serial(case)
    assert len(history) == 30
    tolerance = 1e-5 if "float32" in case else 1e-10
    for mesh in ("1x2", "1x4"):
        note = on_meshes[case, mesh]
        weights = torch.tensor(note["weights"], dtype=torch.float64)
        assert float((weights - expected).norm() / expected.norm()) < tolerance, mesh
        for ours, theirs in zip(history, note["history"], strict=True):
            for key in ("objective", "risk", "val_loss", "train_accuracy", "val_accuracy", "rho"):
                assert ours[key] is theirs[key] is None or ours[key] == pytest.approx(theirs[key], rel=100 * tolerance)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES)
def test_along_the_chain_they_are_the_same_bit_for_bit(on_meshes, case: str) -> None:
    assert on_meshes[case, "2x2"]["weights"] == on_meshes[case, "1x2"]["weights"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES)
def test_what_one_mesh_began_another_ends(on_meshes, case: str) -> None:
    expected = torch.tensor(on_meshes[case, "2x2"]["weights"], dtype=torch.float64)
    weights = torch.tensor(on_meshes[case, "resumed"]["weights"], dtype=torch.float64)
    assert float((weights - expected).norm() / expected.norm()) < (1e-5 if "float32" in case else 1e-10)


@pytest.mark.parametrize(("number", "parts"), [(41, 3), (6, 6), (7, 1)])
def test_parts_are_all_rows_in_order_and_nearly_alike(number: int, parts: int) -> None:
    dealt = [part_of(number, place, parts) for place in range(parts)]
    assert [row for part in dealt for row in part] == list(range(number))
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


def test_more_shards_than_rows_are_refused(tiny_graph) -> None:
    rows = int(tiny_graph.train_mask.sum())
    classifier = GAMLPClassifier(layers=2, shards=rows + 1, unlabelled=0)
    with pytest.raises(InputError, match=f"shards = {rows + 1}, but there are {rows} training rows"):
        classifier.fit(tiny_graph)


@pytest.mark.timeout(110)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        # Known when the first process has the data; it alone says so, and nobody mistakes its end for a loss.
        (["--shards", "3"], "shards = 3, but there are 2 training rows: set shards to 2 at most"),
        (["--shards", "2"], "3 processes cannot be dealt to 2 shards: start a multiple of 2"),
        (
            ["--shards", "3", "--layers", "4", "--plan", "1,1,2"],
            "3 workers x 3 shards are 9 processes, but 3 were started",
        ),
    ],
)
def test_under_torchrun_too(tiny_graph, tmp_path: Path, options: list[str], message: str) -> None:
    tiny_graph.train_mask[:] = False
    tiny_graph.train_mask[[0, 10]] = True
    graph = save(tmp_path / "graph.npz", tiny_graph)
    command = ["-m", "pdadmm_g", "train", "--dataset", str(graph), "--out", "run", *FIXED, *options]
    agent = torchrun("--standalone", "--nproc-per-node", "3", *command, cwd=tmp_path)
    output = agent.communicate(timeout=100)[0]
    assert agent.returncode != 0
    assert f"error: {message}" in output
    assert "PEER_LOST" not in output
    assert set(re.findall(r"exitcode\s*: (-?\d+)", output)) <= {
        "2",
        "143",
        "-15",
    }  # the agent ends those that have not ended
    assert not (tmp_path / "run").exists()
