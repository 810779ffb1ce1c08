from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.run_files import record, write_run
from pdadmm_g.report.collect import MAX_BARS, MAX_POINTS, is_number, names_of, read_run, thin
from pdadmm_g.report.page import render


def test_thinning_keeps_ends_and_extremes() -> None:
    values = [float(i % 7) for i in range(10_000)]
    values[4321], values[8765] = 99.0, -99.0
    epochs, kept = thin(range(1, 10_001), values)
    assert len(kept) <= MAX_POINTS
    assert (epochs[0], epochs[-1]) == (1, 10_000)
    assert epochs == sorted(set(epochs))
    assert all(values[epoch - 1] == value for epoch, value in zip(epochs, kept, strict=True))
    assert {99.0, -99.0} <= set(kept)
    assert thin([1, 2], [3.0, 4.0]) == ([1, 2], [3.0, 4.0])


def test_a_run_as_record(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"), "run")
    assert run["stages"] == [
        {"epoch": 1, "depth": 2, "workers": [1, 1]},
        {"epoch": 21, "depth": 5, "workers": [2, 3]},
    ]
    assert run["series"]["val_accuracy"]["epoch"] == list(range(2, 41, 2))
    assert run["series"]["objective"]["value"][:2] == [100.0, 50.0]
    assert run["clock"]["seconds"][-1] == pytest.approx(0.4)
    assert run["timeline"]["workers"][1]["bytes_p"] == [50.0] * 40
    assert run["changed"] == ["layers", "stages"]
    assert (run["status"], run["failed"]) == ("EARLY_STOPPED", False)


def test_timeline_averages_per_epoch_over_stretches(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", epochs=1)
    lines = [json.dumps(record(epoch, 1, 1 if epoch <= 100 else 3)) for epoch in range(1, 201)]
    (path / "metrics.jsonl").write_text("\n".join(lines))
    timeline = read_run(path, "run")["timeline"]
    assert len(timeline["edges"]) == MAX_BARS + 1
    assert (timeline["edges"][0], timeline["edges"][-1]) == (0, 200)
    first, _, third = timeline["workers"]
    assert first["compute_seconds"] == [0.006] * MAX_BARS
    assert (third["compute_seconds"][0], third["compute_seconds"][-1]) == (0.0, 0.006)


def test_unfinished_broken_and_lost_runs(tmp_path: Path) -> None:
    going = read_run(write_run(tmp_path / "going", summary=None, tail='{"stage": 2, "ep'), "going")
    assert (going["status"], going["facts"]["epochs"], going["facts"]["bytes_sent"]) == ("UNFINISHED", 40, 4000)
    lost = {"status": "PEER_LOST", "advice": "Go on.", "message": "worker 1 is gone"}
    run = read_run(write_run(tmp_path / "lost", summary=lost), "lost")
    assert (run["failed"], run["advice"], run["confusion"]) == (True, "worker 1 is gone. Go on.", None)
    path = write_run(tmp_path / "nan", summary={"status": "NON_FINITE", "test_accuracy": float("nan")})
    with (path / "metrics.jsonl").open("a") as file:
        print(json.dumps(record(41, 2, 2, objective=None, dual_residual=None)), file=file)
    run = read_run(path, "nan")
    assert (run["failed"], run["facts"]["test_accuracy"]) == (True, None)
    assert run["series"]["objective"]["epoch"][-1] == 40
    assert run["series"]["rho"]["epoch"][-1] == 41
    nothing = read_run(write_run(tmp_path / "nothing", epochs=0, summary={"status": "INTERRUPTED"}), "nothing")
    assert (nothing["stages"], nothing["timeline"], nothing["series"]["objective"]) == ([], None, None)
    assert "INTERRUPTED" in render([going, run, nothing])


def test_methods_without_workers(tmp_path: Path) -> None:
    for method, depth in (("adam", 5), ("sgc", 1), ("s2gc", 1), ("sign", 2), ("gcn", 2), ("grand", 2)):
        path = write_run(tmp_path / method, config=f"method: {method}\nlayers: 5\nstages: [5]\n")
        (path / "metrics.jsonl").write_text(json.dumps(record(1, 1, 0, rho=None)))
        run = read_run(path, method)
        assert run["stages"] == [{"epoch": 1, "depth": depth, "workers": []}]
        assert (run["timeline"], run["series"]["rho"]) == (None, None)


def test_names_are_as_short_as_they_can_be(tmp_path: Path) -> None:
    assert names_of([tmp_path / "a/run", tmp_path / "b/run", tmp_path / "c"]) == ["a/run", "b/run", "c"]


@pytest.mark.parametrize("value", [0, -3, 0.5, 1e308, 10**308])
def test_numbers(value: float) -> None:
    assert is_number(value)


@pytest.mark.parametrize("value", [True, None, "1", [1], float("nan"), float("inf"), 1.1e308, 10**309, -(10**400)])
def test_no_numbers(value: Any) -> None:
    assert not is_number(value)
