"""Objective and residual over the epochs, as in the paper's convergence figure, with the series of its rate theorem."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from pdadmm_g.config import ModelConfig
from pdadmm_g.training.fit import fit

from .cells import problem_of
from .results import Results, Row, arranged, markdown
from .tables import PAPER_PROTOCOL

DATASETS = ("cora", "pubmed", "amazon-computers", "amazon-photo", "coauthor-cs")
#: The paper's setting: 10 layers of 1000 neurons, nu = 0.01, rho = 1, 100 epochs, its own algorithm.
SETTINGS = PAPER_PROTOCOL | {
    "stages": (10,), "hidden": 1000, "epochs": 100, "patience": None, "tolerance": 0.0, "eval_every": 100, "nu": 0.01,
    "rho": 1.0, "weight_decay": 0.0, "solver": "linearized",
}  # fmt: skip
METHODS: dict[str, dict[str, Any]] = {"pdADMM-G": {}, "pdADMM-G-Q": {"quantize": "p", "bits": 8}}
SERIES = ("objective", "primal_residual", "c_k")


def run(
    results: Results, *, datasets: Sequence[str] = DATASETS, data_root: str | None, **settings: Any
) -> Iterator[Row]:
    """The curves of each algorithm on each data set."""
    for dataset in datasets:
        for method, extra in METHODS.items():
            row = results.find(dataset=dataset, method=method)
            if row is None:
                config = ModelConfig(**SETTINGS | extra | settings).resolved()
                row = results.put({"dataset": dataset, "method": method, **_curves(dataset, data_root, config)})
            yield row


def _curves(dataset: str, data_root: str | None, config: ModelConfig) -> Row:
    trained = fit(problem_of(dataset, data_root, config, 0), seed=0).uninterrupted()
    series = {name: [_finite(record[name]) for record in trained.history] for name in SERIES}
    return {"seeds": [0], "status": trained.status.name, **series}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def rises(objective: Sequence[float | None]) -> tuple[int, float]:
    """How often the objective rose, and its largest rise relative to the objective."""
    finite = [value for value in objective if value is not None]
    steps = [(after - before) / abs(before) for before, after in pairwise(finite)]
    return sum(step > 0 for step in steps), max([0.0, *steps])


def render(rows: Sequence[Row]) -> str:
    """Markdown: first and last values, and whether the objective ever rose."""
    titles = ["data set", "algorithm", "objective, first to last", "rises", "largest rise", "residual, last"]
    lines = []
    for row in arranged(rows, dataset=DATASETS, method=list(METHODS)):
        objective, count = row["objective"], len(row["objective"])
        number, largest = rises(objective)
        rate = None if row["c_k"][-1] is None else count * row["c_k"][-1]
        figures = [f"{_show(objective[0], '.4g')} to {_show(objective[-1], '.4g')}", str(number), f"{largest:.1e}"]
        figures += [_show(row["primal_residual"][-1], ".2e"), _show(rate, ".2e")]
        lines.append([row["dataset"], row["method"], *figures])
    return markdown([*titles, "k c_k, last"], lines)


def _show(value: float | None, form: str) -> str:
    """A number, or a dash for one that was not finite."""
    return "-" if value is None else format(value, form)


def figure(rows: Sequence[Row], path: Path) -> None:
    """Objectives, residuals and k c_k of both algorithms, one line per data set."""
    from .figures import new_figure, save_figure

    canvas, axes = new_figure(3, 2, height=9.0)
    for column, method in enumerate(METHODS):
        for result in arranged(rows, dataset=DATASETS):
            if result["method"] != method:
                continue
            epochs = range(1, len(result["objective"]) + 1)
            residual = [value if value and value > 0 else math.nan for value in result["primal_residual"]]
            scaled = [epoch * value if value else math.nan for epoch, value in zip(epochs, result["c_k"], strict=True)]
            for row, values in enumerate((result["objective"], residual, scaled)):
                axes[row][column].plot(epochs, values, label=result["dataset"], linewidth=1.6)
        axes[0][column].set_title(method)
        for row, name in enumerate(("objective", "residual |p - q|", "k c_k" if column == 0 else "k d_k")):
            axes[row][column].set_yscale("log")
            axes[row][column].set_ylabel(name)
    axes[2][0].set_xlabel("epoch")
    axes[2][1].set_xlabel("epoch")
    axes[0][0].legend(frameon=False, fontsize=8)
    save_figure(canvas, path)
