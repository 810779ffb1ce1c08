from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from helpers.run_files import EVIL, SUMMARY, record, write_rounds, write_run
from pdadmm_g.report.collect import MAX_POINTS, read_run, thin
from pdadmm_g.report.page import render


def test_thinning_keeps_ends_and_extremes() -> None:
    curve = pd.Series(np.arange(10_000) % 7.0, index=range(1, 10_001))
    curve[4321], curve[8765] = 99.0, -99.0
    kept = thin(curve)
    assert len(kept) <= MAX_POINTS
    assert {1, 4321, 8765, 10_000} <= set(kept.index)
    assert kept.index.is_monotonic_increasing
    assert kept.equals(curve[kept.index])
    assert thin(curve[:2]).equals(curve[:2])


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
    assert run["changed"] == ["layers"]
    for name in ("metrics", "data", "reliability", "times"):
        assert run[name] == SUMMARY[name]
    assert (run["status"], run["failed"]) == ("EARLY_STOPPED", False)


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, 3),  # the best of all stages: a grown network starts as the one before
        ({"patience": None}, None),
        ({"scores": True}, 6),  # what 'scoring' names comes before accuracy
        ({"growth": "gain"}, 3),
        ({"growth": "all"}, 5),
    ],
)
def test_the_kept_epoch(changes: dict[str, Any], kept: int | None, tmp_path: Path) -> None:
    accuracies = [0.5, 0.6, 0.8, 0.7, 0.78, 0.7]
    if "growth" in changes:
        accuracies[4] = 0.804  # more, but not enough for a depth to be kept
    settings = "stages: [2, 5]\nlayers: 5\n"
    settings += "patience: null\n" if "patience" in changes else ""
    settings += f"growth: {changes['growth']}\n" if "growth" in changes else ""
    path = write_run(tmp_path / "run", epochs=0, config=settings)
    lines = []
    for epoch, accuracy in enumerate(accuracies, start=1):
        own: dict[str, Any] = {"val_accuracy": accuracy, "val_loss": 1.0}
        own |= {"val_score": epoch / 10} if changes.get("scores") else {}
        lines.append(json.dumps(record(epoch, 1 if epoch <= 3 else 2, 1, **own)))
    (path / "metrics.jsonl").write_text("\n".join(lines))
    assert read_run(path, "run")["facts"]["kept"] == kept


def test_unfinished_broken_and_lost_runs(tmp_path: Path) -> None:
    going = read_run(write_run(tmp_path / "going", summary=None, tail='{"stage": 2, "ep'), "going")
    assert (going["status"], going["facts"]["epochs"], going["facts"]["bytes_sent"]) == ("UNFINISHED", 40, 4000)
    lost = {"status": "PEER_LOST", "advice": "Go on.", "message": "worker 1 is gone"}
    run = read_run(write_run(tmp_path / "lost", summary=lost), "lost")
    assert (run["failed"], run["advice"], run["confusion"]) == (True, "worker 1 is gone. Go on.", None)
    path = write_run(tmp_path / "nan", summary={"status": "NON_FINITE"})
    with (path / "metrics.jsonl").open("a") as file:
        print(json.dumps(record(41, 2, 2, objective=None, dual_residual=None)), file=file)
    run = read_run(path, "nan")
    assert (run["failed"], run["facts"]["test_accuracy"]) == (True, None)
    assert run["series"]["objective"]["epoch"][-1] == 40
    assert run["series"]["rho"]["epoch"][-1] == 41
    nothing = read_run(write_run(tmp_path / "nothing", epochs=0, summary={"status": "INTERRUPTED"}), "nothing")
    assert (nothing["stages"], nothing["timeline"], nothing["series"]["objective"]) == ([], None, None)
    assert "INTERRUPTED" in render([going, run, nothing])


def test_rounds(tmp_path: Path) -> None:
    """Each with its epochs, its figures and its best validation; the stages are as long as all of their rounds."""
    run = read_run(write_rounds(tmp_path / "run"), "run")
    rounds = run["rounds"]
    assert rounds["round"] == list(range(15))
    assert (rounds["first"][:3], rounds["last"][:3]) == ([1, 4, 7], [3, 6, 9])
    assert (rounds["agreement"][:2], rounds["changed"][:3]) == ([None, 0.52], [None, None, 0.18])
    assert rounds["val_accuracy"][:2] == [pytest.approx(0.8 - 0.5 / 2), pytest.approx(0.8 - 0.5 / 6, abs=1e-6)]
    assert [(stage["epoch"], stage["workers"]) for stage in run["stages"]] == [(1, [1, 1]), (40, [2, 3])]
    assert (run["choices"], run["facts"]["unlabelled"]) == (["weight decay 0.28", EVIL], 500)
    silent = read_run(write_rounds(tmp_path / "silent", agreement=None, changed=None, val_accuracy=None), "silent")
    labelled = read_run(write_rounds(tmp_path / "labelled", round=0), "labelled")
    assert silent["rounds"] is labelled["rounds"] is read_run(write_run(tmp_path / "plain"), "plain")["rounds"] is None
