from __future__ import annotations

from pathlib import Path

import pytest

from experiments import depth
from experiments.results import Results
from helpers.interrupts import interrupt
from pdadmm_g.baselines import Baseline


def test_depth_runs_the_seeds_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def measured(dataset, method, layers, seed, data_root):
        made.append((method, seed))
        return {"seed": seed, "test_accuracy": 0.5}

    monkeypatch.setattr(depth, "_run", measured)

    def run(*seeds: int) -> list[dict]:
        made.clear()
        results = Results(tmp_path, f"{len(seeds)} seeds")
        return list(depth.run(results, datasets=("digits",), depths=(2,), seeds=seeds, data_root=None))

    run(0)
    rows = run(0, 1, 2)
    assert made == [(method, seed) for method in depth.METHODS for seed in (1, 2)]
    assert [run["seed"] for run in rows[0]["runs"]] == [0, 1, 2]
    assert {row["command"] for row in rows} == {"3 seeds"}
    assert run(1, 2) == rows
    assert made == []


def test_an_interrupt_leaves_the_seeds_of_a_depth_that_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(dataset, method, layers, seed, data_root):
        if seed == 1:
            raise KeyboardInterrupt
        return {"seed": seed, "test_accuracy": 0.5}

    monkeypatch.setattr(depth, "_run", measured)
    with pytest.raises(KeyboardInterrupt):
        list(depth.run(Results(tmp_path, "test"), datasets=("digits",), depths=(2,), seeds=(0, 1), data_root=None))
    (row,) = Results(tmp_path, "test").rows()
    assert [run["seed"] for run in row["runs"]] == [0]


def test_an_interrupted_gradient_method_is_no_result(reproduce, monkeypatch: pytest.MonkeyPatch) -> None:
    methods = {name: settings for name, settings in depth.METHODS.items() if "Adam" in name}
    monkeypatch.setattr(depth, "METHODS", methods)
    monkeypatch.setattr(Baseline, "_descend", interrupt)
    assert reproduce("depth", "--quick", "--datasets", "digits")[0] == 130
    assert list(Path("results/depth-quick").iterdir()) == []
