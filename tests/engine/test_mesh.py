"""Rows over processes: the same weights on every mesh, to rounding, and bit for bit along the chain."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from helpers import poison
from helpers.blobs import weighted, wide, write_job
from pdadmm_g.cli.train import _dealt
from pdadmm_g.config import ModelConfig, RunConfig
from pdadmm_g.engine.launch import run_workers
from pdadmm_g.errors import InputError
from pdadmm_g.graph.examples import Examples, shares
from pdadmm_g.training.train import train

BASE = {"layers": 4, "stages": [2, 4], "hidden": 12, "epochs": 12, "eval_every": 5, "weight_decay": 0.01}
CASES = {
    "linearized-float32": BASE | {"solver": "linearized"},
    "exact-float32": BASE | {"solver": "exact"},
    "linearized-quantized": BASE | {"solver": "linearized", "quantize": "pq", "bits": 4},
    "exact-weighted": BASE | {"solver": "exact"},
    # More inputs than rows: all rows in one process allow for the smaller, the kernel form of the W-step.
    "exact-wide-float32": BASE | {"solver": "exact", "hidden": 60},
}


JOB = Path(__file__).with_name("mesh_job.py")


TRAINING, VALIDATION = wide(41, 0, torch.float64), wide(17, 1, torch.float64)


def serial(case: str) -> tuple[torch.Tensor, list[dict]]:
    rows = weighted(TRAINING) if "weighted" in case else TRAINING
    kind = torch.float32 if "float32" in case else torch.float64
    rows = Examples(*(part if part is None or part.dtype == torch.int64 else part.to(kind) for part in rows))
    validation = VALIDATION._replace(X=VALIDATION.X.to(kind))
    result = train(rows, validation, 4, ModelConfig(**CASES[case]), seed=0)
    return torch.cat([parameter.detach().double().flatten() for parameter in result.model.parameters()]), result.history


@pytest.mark.timeout(300)
def test_a_group_of_four(tmp_path: Path) -> None:
    """The meshes train one network; poisoned variables are named; rows are brought together both ways."""
    write_job(tmp_path, CASES, TRAINING, VALIDATION)
    notes: list[tuple[int, dict]] = []
    command = [sys.executable, str(JOB), str(tmp_path)]
    run_workers(command, 4, threads=1, timeout=60, folder=tmp_path, on_note=lambda *note: notes.append(note))
    on_meshes = {(note["case"], note["mesh"]): note for _, note in notes if "mesh" in note}
    for case in CASES:
        check_meshes(case, {mesh: note for (name, mesh), note in on_meshes.items() if name == case})
    refused = "shards = 4, but there are 2 training rows: set shards to 2 at most"
    assert [note["refused"] for _, note in notes if "refused" in note] == [refused] * 4
    poison.check([note["poisoned"] for _, note in notes if "poisoned" in note], poison.STEP)
    kinds = [note["in_memory"] for _, note in notes if "in_memory" in note]
    assert len(kinds) == 8
    assert not all(kinds)


def check_meshes(case: str, on_meshes: dict[str, dict]) -> None:
    expected, history = serial(case)
    assert len(history) == 24
    tolerance = 1e-5 if "float32" in case else 1e-10

    def distance(mesh: str) -> float:
        weights = torch.tensor(on_meshes[mesh]["weights"], dtype=torch.float64)
        return float((weights - expected).norm() / expected.norm())

    for mesh in ("1x2", "1x4"):
        assert distance(mesh) < tolerance, (case, mesh)
        for ours, theirs in zip(history, on_meshes[mesh]["history"], strict=True):
            for key in ("objective", "risk", "val_loss", "train_accuracy", "val_accuracy", "rho"):
                assert ours[key] is theirs[key] is None or ours[key] == pytest.approx(theirs[key], rel=100 * tolerance)
    for mesh in {"2x2", "by way of the host"} & on_meshes.keys():
        assert on_meshes[mesh]["weights"] == on_meshes["1x2"]["weights"], (case, mesh)
    assert distance("resumed") < 2 * tolerance, f"{case}: what one mesh began, another ends"


@pytest.mark.parametrize(("number", "parts"), [(41, 3), (6, 6), (7, 1)])
def test_parts_are_all_rows_in_order_and_nearly_alike(number: int, parts: int) -> None:
    dealt = shares(number, parts)
    assert [row for part in dealt for row in part] == list(range(number))
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shards": 2}, "3 processes cannot be dealt to 2 shards"),
        ({"shards": 3, "plan": (1, 1, 2)}, "3 workers x 3 shards are 9 processes, but 3 were started"),
    ],
)
def test_processes_of_torchrun_that_make_no_mesh_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _dealt(RunConfig(layers=4, **settings), 3)
