"""NaN or infinity in any variable at any worker is caught in the same epoch and named, and the best model is kept."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import torch

from pdadmm_g.config import ModelConfig
from pdadmm_g.data.examples import Examples
from pdadmm_g.engine.launch import run_workers
from pdadmm_g.engine.team import Team
from pdadmm_g.engine.worker import Worker
from pdadmm_g.status import Status
from pdadmm_g.training.train import train

JOB = Path(__file__).with_name("poison_job.py")
CASES = 82


def check(outcomes: list[dict]) -> None:
    assert len(outcomes) == CASES
    for outcome in outcomes:
        assert outcome["status"] == "NON_FINITE", outcome
        assert outcome["message"] == outcome["expected"], outcome
        assert outcome["finite"], outcome
        assert outcome["epochs"] == 3, outcome
        assert outcome["history"], outcome


def test_one_worker() -> None:
    job = runpy.run_path(str(JOB))
    check([job["run"](Team(), case) for case in job["cases"]()])


@pytest.mark.timeout(120)
def test_three_workers(tmp_path: Path) -> None:
    outcomes: list[dict] = []
    command = [sys.executable, str(JOB)]
    run_workers(command, 3, threads=1, timeout=60, folder=tmp_path, on_note=lambda _, note: outcomes.append(note))
    check(outcomes)


def test_divergence_names_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Worker.epoch

    def pushed(worker: Worker) -> object:
        if worker.epochs == 4:
            worker.boundaries[2].u.add_(1e6)
        return plain(worker)

    monkeypatch.setattr(Worker, "epoch", pushed)
    data = Examples(torch.eye(6).repeat(4, 1), torch.arange(24) % 6)
    result = train(data, None, 6, ModelConfig(layers=4, stages=(4,), hidden=8, epochs=9), seed=0)
    assert result.status is Status.DIVERGED
    assert result.message.startswith("epoch 5, layer 2 has the largest share of the objective, ")
