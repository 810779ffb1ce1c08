from __future__ import annotations

from pathlib import Path

import pytest

from experiments import speedup
from experiments.results import Results
from helpers.interrupts import interrupt
from pdadmm_g.engine.team import Team


def test_speedup(reproduce, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = reproduce("speedup-layers", "--quick", "--workers", "2")
    assert code == 0
    assert [line.split()[0] for line in err.splitlines()] == ["1/2", "2/2"]
    assert out.startswith("| seconds per epoch | layers | runs | 1 worker | 2 workers |")
    assert "| pdADMM-G | 8 | 1 | " in out
    results = Results(Path("results/speedup-layers-quick"), "test")
    assert [row["workers"] for row in results.rows()] == [1, 2]
    # What is there is not measured again; what failed is.
    monkeypatch.setattr(speedup, "run_workers", interrupt)
    assert reproduce("speedup-layers", "--quick", "--workers", "2")[1] == out
    results.put(results.rows()[1] | {"error": "lost"})
    assert reproduce("speedup-layers", "--quick", "--workers", "2")[0] == 130


class StoppedTeam(Team):
    def stop_requested(self) -> bool:
        return True


def test_an_interrupted_measurement_ends_the_command_and_is_no_result(
    reproduce, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers measure with what was left undone; the first one says so and the command ends."""
    size = {"nodes": 20, "features": 5, "hidden": 4, "epochs": 1, "warm_up": 1}
    order = {"size": size, "cases": speedup.cases([1], [2], ["pdADMM-G"])}

    def run_workers(*_: object, on_note, **__: object) -> None:
        for row in speedup.measured(StoppedTeam(), order):
            on_note(0, row)

    monkeypatch.setattr(speedup, "run_workers", run_workers)
    assert reproduce("speedup-layers", "--quick", "--workers", "2")[0] == 130
    assert list(Path("results/speedup-layers-quick").iterdir()) == []
