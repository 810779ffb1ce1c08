from __future__ import annotations

from pathlib import Path

import pytest

from experiments import communication
from experiments.results import Results
from pdadmm_g.engine.layout import Plan
from pdadmm_g.model import GAMLP
from pdadmm_g.status import Status
from pdadmm_g.training.train import TrainingResult


def test_communication_is_measured_with_the_seeds_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def trained(*_: object, seed: int, **__: object) -> TrainingResult:
        made.append(seed)
        return TrainingResult(GAMLP([64, 8, 10]), [{"seconds": 1.0, "bytes_sent": 1}], Status.MAX_EPOCHS, Plan((2,)))

    monkeypatch.setattr(communication, "fit", trained)
    monkeypatch.setattr(communication, "CASES", {"nothing": {}})

    def run(*seeds: int) -> list[dict]:
        made.clear()
        results = Results(tmp_path, f"{len(seeds)} seeds")
        return list(communication.run(results, datasets=("digits",), seeds=seeds, data_root=None))

    run(0)
    rows = run(0, 1, 2)
    assert made == [0, 1, 2]
    assert [(row["seeds"], row["command"]) for row in rows] == [([0, 1, 2], "3 seeds")]
    assert Results(tmp_path, "test").rows() == rows
    assert run(1, 2) == rows
    assert made == []
