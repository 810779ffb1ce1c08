"""Accuracy against depth: pdADMM-G, which sees no vanishing gradient, beside Adam on the same networks."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from pdadmm_g.baselines import Baseline
from pdadmm_g.config import ModelConfig
from pdadmm_g.engine.layout import widths
from pdadmm_g.graph.candidates import DEFAULT_TELEPORT
from pdadmm_g.graph.datasets import load_dataset
from pdadmm_g.model import GAMLP
from pdadmm_g.training.fit import fit
from pdadmm_g.training.train import initial_layer
from pdadmm_g.utils import compute_threads

from .cells import accuracy, problem_of
from .results import Results, Row, arranged, markdown

DATASETS = ("cora", "pubmed", "amazon-photo")
DEPTHS = (2, 5, 10, 20, 50, 100)
SETTINGS: dict[str, Any] = {"augment": "average", "hops": 8, "normalize": "centered", "eval_every": 5}
#: Grown: 100 epochs a stage. The others train all layers at once, for as long as Adam, from the identity or at random.
#: All at once needs soft boundaries: what a layer learns passes one with the share nu / (rho + nu) an epoch.
METHODS: dict[str, dict[str, Any]] = {
    "pdADMM-G, grown": {"weight_decay": 0.3, "epochs": 100, "patience": 50, "growth": "all"},
    "pdADMM-G, all at once": {"weight_decay": 0.3, "rho": 0.02, "epochs": 600, "patience": 300},
    "Adam, same start": {"method": "adam", "epochs": 600, "patience": 300},
    "Adam, random start": {"method": "adam", "epochs": 600, "patience": 300},
}


def run(
    results: Results,
    *,
    datasets: Sequence[str] = DATASETS,
    depths: Sequence[int] = DEPTHS,
    seeds: Sequence[int],
    data_root: str | None,
) -> Iterator[Row]:
    """One row per data set, method and depth; seeds that are known already are not run again."""
    for dataset in datasets:
        for depth in depths:
            for method in METHODS:
                key: Row = {"dataset": dataset, "method": method, "depth": depth}
                row = results.find(**key) or key | {"runs": []}
                known = {run["seed"] for run in row["runs"]}
                for seed in (seed for seed in seeds if seed not in known):
                    run = _run(dataset, method, depth, seed, data_root)
                    row = results.put(row | {"runs": [*row["runs"], run]})
                yield row


#: What the methods to compare with do not have.
OWN = {"unlabelled": 0, "label_hops": 0, "teleport": DEFAULT_TELEPORT}


def _run(dataset: str, method: str, depth: int, seed: int, data_root: str | None) -> Row:
    settings = SETTINGS | METHODS[method] | {"layers": depth}
    if method != "pdADMM-G, grown":
        settings["stages"] = (depth,)
    if settings.pop("method", None) is not None:
        return _adam(dataset, settings, seed, data_root, same=method == "Adam, same start")
    # The question is depth: all methods get the same rows.
    problem = problem_of(dataset, data_root, ModelConfig(**settings | OWN).resolved(), seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "rho = ")  # outside the theory's condition, and on purpose
        result = fit(problem, seed=seed).uninterrupted()
    with compute_threads(problem.config.threads):
        return {
            "seed": seed, "test_accuracy": accuracy(result.model, problem.test),
            "val_accuracy": accuracy(result.model, problem.validation), "status": result.status.name,
            "epochs": len(result.history), "seconds": round(result.seconds, 3),
        }  # fmt: skip


def _adam(dataset: str, settings: dict[str, Any], seed: int, data_root: str | None, *, same: bool) -> Row:
    """The same by Adam, from the same start as pdADMM-G or a random one."""
    data, model = load_dataset(dataset, data_root), Baseline("adam", random_state=seed).set_params(**settings)
    classes = len(data.y[data.train_mask].unique())
    start = same_start(torch.empty(0, data.x.shape[1]), model.config(), classes, seed) if same else None
    model.fit(data, start=start)
    return {
        "seed": seed, "test_accuracy": model.score(data), "val_accuracy": model.score(data, data.val_mask),
        "status": model.status_.name, "epochs": model.n_iter_, "seconds": round(model.seconds_, 3),
    }  # fmt: skip


def same_start(X: torch.Tensor, config: ModelConfig, classes: int, seed: int) -> GAMLP:
    """The network that pdADMM-G starts from at this depth: random first and last layers, the identity between."""
    shape = widths(X.shape[1], config.width, classes, config.layers)
    weights = [initial_layer(i, shape, config.layers, seed=seed, like=X) for i in range(config.layers)]
    return GAMLP.from_parameters([(w.W, w.b) for w in weights], config.activation)


def render(rows: Sequence[Row]) -> str:
    """Markdown: mean test accuracy by data set, method and depth."""
    rows = arranged(rows, dataset=DATASETS, method=list(METHODS))
    depths = sorted({row["depth"] for row in rows})
    lines = []
    for dataset, method in dict.fromkeys((row["dataset"], row["method"]) for row in rows):
        means = {
            row["depth"]: statistics.mean(run["test_accuracy"] for run in row["runs"])
            for row in rows
            if (row["dataset"], row["method"]) == (dataset, method)
        }
        lines.append([dataset, method, *(f"{means[depth]:.3f}" if depth in means else "-" for depth in depths)])
    return markdown(["data set", "method", *map(str, depths)], lines)


def figure(rows: Sequence[Row], path: Path) -> None:
    """One panel per data set."""
    from .figures import new_figure, save_figure

    datasets = list(dict.fromkeys(row["dataset"] for row in arranged(rows, dataset=DATASETS)))
    canvas, axes = new_figure(1, len(datasets), height=3.4)
    for axis, dataset in zip(axes[0], datasets, strict=True):
        for index, method in enumerate(METHODS):
            points = sorted(
                (row["depth"], statistics.mean(run["test_accuracy"] for run in row["runs"]))
                for row in rows
                if (row["dataset"], row["method"]) == (dataset, method)
            )
            if points:
                axis.plot(*zip(*points, strict=True), marker="o", label=method, color=f"C{index}")
        axis.set_xscale("log")
        axis.set_xticks(DEPTHS, [str(depth) for depth in DEPTHS])
        axis.minorticks_off()
        axis.set_title(dataset)
        axis.set_xlabel("layers")
        axis.set_ylim(0, 1)
    axes[0][0].set_ylabel("test accuracy")
    axes[0][0].legend(frameon=False, fontsize=8)
    save_figure(canvas, path)
