"""Bytes between workers and test accuracy for several quantizations: 10 layers of 1000 neurons, one worker a layer."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from pdadmm_g.config import ModelConfig
from pdadmm_g.training.fit import fit

from .cells import accuracy, problem_of
from .results import Results, Row, arranged, markdown

DATASETS = ("citeseer", "pubmed", "coauthor-cs")
CASES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "p at 16 bits": {"quantize": "p", "bits": 16},
    "p at 8 bits": {"quantize": "p", "bits": 8},
    "p and q at 16 bits": {"quantize": "pq", "bits": 16},
    "p and q at 8 bits": {"quantize": "pq", "bits": 8},
    "p and q at 4 bits": {"quantize": "pq", "bits": 4},
    "p and q at 2 bits": {"quantize": "pq", "bits": 2},
}


def run(
    results: Results,
    *,
    datasets: Sequence[str] = DATASETS,
    seeds: Sequence[int],
    data_root: str | None,
    workers: int = 10,
    epochs: int = 40,
    hidden: int = 1000,
) -> Iterator[Row]:
    """One row per data set and case; rows that are known already, with these seeds, are not run again."""
    for name in datasets:
        for case, settings in CASES.items():
            row = results.find(dataset=name, method=case)
            if row is None or not set(seeds) <= set(row["seeds"]):
                # No early stopping: every case makes the same number of epochs, so that bytes compare.
                config = ModelConfig(
                    hidden=hidden, growth="all", epochs=epochs, patience=epochs, eval_every=5, tolerance=0,
                    solver="linearized", weight_decay=0.1, workers=workers, augment="average", hops=8,
                    normalize="centered", unlabelled=0, **settings,
                ).resolved()  # fmt: skip
                row = results.put({"dataset": name, "method": case, **_figures(name, data_root, config, seeds)})
            yield row


def _figures(dataset: str, data_root: str | None, config: ModelConfig, seeds: Sequence[int]) -> Row:
    problem = problem_of(dataset, data_root, config, seeds[0])
    accuracies = []
    for seed in seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            result = fit(problem, seed=seed).uninterrupted()
        accuracies.append(accuracy(result.model, problem.test))
    return {
        "seeds": list(seeds),
        "bytes_per_epoch": statistics.mean(record["bytes_sent"] for record in result.history),
        "test_accuracy": statistics.mean(accuracies),
        "spread": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
    }


def render(rows: Sequence[Row]) -> str:
    """Markdown: bytes per epoch, mean of the whole run, the share saved, and test accuracy.

    The share is one figure where it is the same for all data sets, else one for each, in their order.
    """
    rows = arranged(rows, method=list(CASES), dataset=DATASETS)
    by_cell = {(row["method"], row["dataset"]): row for row in rows}
    # A data set without this row has nothing to be compared with yet.
    datasets = [row["dataset"] for row in rows if row["method"] == "nothing"]
    lines = []
    for case in dict.fromkeys(row["method"] for row in rows):
        entries, saved = [], []
        for dataset in datasets:
            row, plain = by_cell.get((case, dataset)), by_cell["nothing", dataset]
            if row is None:
                entries.append("-")
                continue
            saved.append(f"{1 - row['bytes_per_epoch'] / plain['bytes_per_epoch']:.1%}")
            spread = f" ± {row['spread']:.3f}" if row["spread"] is not None else ""
            entries.append(f"{row['bytes_per_epoch'] / 1e6:.2f} MB, {row['test_accuracy']:.3f}{spread}")
        shares = saved[:1] if len(set(saved)) == 1 else saved
        lines.append([case, ", ".join(shares), *entries])
    return markdown(["quantized", "saved", *datasets], lines)
