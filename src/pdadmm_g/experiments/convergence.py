"""Objective and residual over the epochs, as in the paper's convergence figure, with the series of its rate theorem."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..config import ModelConfig
from ..hardware import provenance
from ..training.fit import fit
from .cells import load_json, problem_of, save
from .tables import PAPER_PROTOCOL

DATASETS = ("cora", "pubmed", "amazon-computers", "amazon-photo", "coauthor-cs")
#: The paper's setting: 10 layers of 1000 neurons, nu = 0.01, rho = 1, 100 epochs, its own algorithm.
SETTINGS = PAPER_PROTOCOL | {
    "stages": (10,), "hidden": 1000, "epochs": 100, "patience": None, "tolerance": 0.0, "eval_every": 100, "nu": 0.01,
    "rho": 1.0, "weight_decay": 0.0, "solver": "linearized",
}  # fmt: skip
ALGORITHMS: dict[str, dict[str, Any]] = {"pdADMM-G": {}, "pdADMM-G-Q": {"quantize": "p", "bits": 8}}
SERIES = ("objective", "primal_residual", "c_k")


def run(
    folder: Path, command: str, *, datasets: Sequence[str] = DATASETS, data_root: str | None, **settings: Any
) -> Iterator[dict[str, Any]]:
    """The curves of each algorithm on each data set."""
    for dataset in datasets:
        for algorithm, extra in ALGORITHMS.items():
            path = folder / f"{dataset}--{algorithm}.json"
            result = load_json(path)
            if result is None:
                config = ModelConfig.from_settings(SETTINGS | extra | settings).resolved()
                trained = fit(problem_of(dataset, data_root, config), seed=0).uninterrupted()
                result = {
                    "dataset": dataset,
                    "algorithm": algorithm,
                    "status": trained.status.name,
                    **{name: [_finite(record[name]) for record in trained.history] for name in SERIES},
                    **provenance(command),
                }
                save(path, result)
            yield result


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def rises(objective: Sequence[float]) -> tuple[int, float]:
    """How often the objective rose, and its largest rise relative to the objective."""
    steps = [(after - before) / abs(before) for before, after in pairwise(objective)]
    return sum(step > 0 for step in steps), max(max(steps), 0.0)


def render(results: Sequence[dict[str, Any]]) -> str:
    """Markdown: first and last values, and whether the objective ever rose."""
    lines = [
        "| data set | algorithm | objective, first to last | rises | largest rise | residual, last | k c_k, last |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        objective, count = result["objective"], len(result["objective"])
        number, largest = rises(objective)
        lines.append(
            f"| {result['dataset']} | {result['algorithm']} | {objective[0]:.4g} to {objective[-1]:.4g} | {number} | "
            f"{largest:.1e} | {result['primal_residual'][-1]:.2e} | {count * result['c_k'][-1]:.2e} |"
        )
    return "\n".join(lines) + "\n"


def figure(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Objectives, residuals and k c_k of both algorithms, one line per data set."""
    from .figures import new_figure, save_figure

    canvas, axes = new_figure(3, 2, height=9.0)
    for column, algorithm in enumerate(ALGORITHMS):
        for result in results:
            if result["algorithm"] != algorithm:
                continue
            epochs = range(1, len(result["objective"]) + 1)
            residual = [value if value and value > 0 else math.nan for value in result["primal_residual"]]
            scaled = [epoch * value if value else math.nan for epoch, value in zip(epochs, result["c_k"], strict=True)]
            for row, values in enumerate((result["objective"], residual, scaled)):
                axes[row][column].plot(epochs, values, label=result["dataset"], linewidth=1.6)
        axes[0][column].set_title(algorithm)
        for row, name in enumerate(("objective", "residual |p - q|", "k c_k" if column == 0 else "k d_k")):
            axes[row][column].set_yscale("log")
            axes[row][column].set_ylabel(name)
    axes[2][0].set_xlabel("epoch")
    axes[2][1].set_xlabel("epoch")
    axes[0][0].legend(frameon=False, fontsize=8)
    save_figure(canvas, path)
