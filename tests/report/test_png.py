from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from helpers.run_files import ALL_FIGURES, SUMMARY, record, write_rounds, write_run
from pdadmm_g.report.collect import read_run, read_runs
from pdadmm_g.report.page import render
from pdadmm_g.report.png import draw_figures


def test_figures_of_several_runs(tmp_path: Path) -> None:
    figures = draw_figures(read_runs([write_run(tmp_path / "a"), write_run(tmp_path / "b $", summary=None)]))
    assert set(figures) == {
        "accuracy", "loss", "objective", "residuals", "rho", "classes", "reliability", "times",
        "workers-1-a", "plan-1-a", "confusion-1-a", "workers-2-b-", "plan-2-b-",
    }  # fmt: skip
    (axis,) = figures["objective"].axes
    assert [line.get_label() for line in axis.lines[:4]] == [
        "a, objective", "a, risk", r"b \$, objective", r"b \$, risk",
    ]  # fmt: skip
    assert axis.get_yscale() == "log"


def test_numbers_at_the_edge_and_odd_values_are_drawn(tmp_path: Path) -> None:
    """Nothing that a number or another value may be breaks the page or the figures: what is not sound is left out."""
    odd: list[Any] = [1e308, -1e308, 10**299, 2**53, 0, -1, True, float("nan"), float("inf"), "\ud800", None, [], {}]
    path = write_run(tmp_path / "run", config="layers: true\nstages: [.inf, -3]\nmethod: .nan\nhops: ~\n")
    names = [name for name in record(1, 1, 2) if name not in ("stage", "epoch", "workers")]
    lines = []
    for epoch, value in enumerate([odd[0], odd[0], *odd], start=1):
        entry = record(epoch, epoch, 2) | dict.fromkeys(names, value)
        entry["workers"] = [value, dict.fromkeys(entry["workers"][0], value), {"layers": value}]
        lines.append(json.dumps(entry))
    (path / "metrics.jsonl").write_text("\n".join(lines))
    for value in odd:
        summary = dict.fromkeys(SUMMARY, value) | {"versions": {"torch": value}}
        summary["confusion"] = {"nodes": value, "classes": [value, "b"], "counts": [[value, 1], [value, value]]}
        (path / "summary.json").write_text(json.dumps(summary))
        assert "NaN" not in render([read_run(path, "run")])
    summary |= {name: SUMMARY[name] for name in ("reliability", "times")}
    summary["confusion"] = {"nodes": "\ud800", "classes": odd, "counts": [[2**53] * len(odd)] * len(odd)}
    (path / "summary.json").write_text(json.dumps(summary))
    figures = draw_figures([read_run(path, "run")])
    assert sorted(figures) == sorted(ALL_FIGURES)
    for canvas in figures.values():
        canvas.savefig(os.devnull, format="png", dpi=30)


def test_rounds(tmp_path: Path) -> None:
    runs = read_runs([write_run(tmp_path / "plain"), write_rounds(tmp_path / "a $")])
    figures = draw_figures(runs)
    (axis,) = figures["rounds"].axes
    assert [line.get_label() for line in axis.lines] == [
        rf"a \$, {name}"
        for name in ("best validation accuracy", "nodes whose copies agree", "nodes whose class changed")
    ]
    assert [len(line.get_xdata()) for line in axis.lines] == [15, 14, 13]
    assert list(figures["accuracy"].axes[0].get_xticks(minor=True)) == [epoch - 0.5 for epoch in range(4, 45, 3)]
    for canvas in figures.values():
        canvas.savefig(os.devnull, format="png", dpi=30)
    odd = write_rounds(tmp_path / "odd", agreement=1e308, changed=None, val_accuracy=-(10**298))
    draw_figures(read_runs([odd]))["rounds"].savefig(os.devnull, format="png", dpi=30)


def test_figures_of_runs_without_anything_to_draw(tmp_path: Path) -> None:
    assert draw_figures(read_runs([write_run(tmp_path / "run", epochs=0, summary=None)])) == {}
