from __future__ import annotations

from pathlib import Path

import pytest

from experiments import speedup
from experiments.results import Results
from helpers.interrupts import interrupt


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
