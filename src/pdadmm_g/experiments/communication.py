"""Bytes between workers and test accuracy for several quantizations: 10 layers of 1000 neurons, one worker a layer."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..config import ModelConfig
from ..hardware import provenance
from ..training.fit import fit
from .cells import accuracy, load_json, problem_of, save

DATASETS = ("citeseer", "pubmed", "coauthor-cs")
CASES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "p at 16 bits": {"quantize": "p", "bits": 16},
    "p at 8 bits": {"quantize": "p", "bits": 8},
    "p and q at 16 bits": {"quantize": "pq", "bits": 16},
    "p and q at 8 bits": {"quantize": "pq", "bits": 8},
    "p and q at 4 bits": {"quantize": "pq", "bits": 4},
}


def run(
    folder: Path,
    command: str,
    *,
    datasets: Sequence[str] = DATASETS,
    seeds: Sequence[int],
    data_root: str | None,
    workers: int = 10,
    epochs: int = 40,
    hidden: int = 1000,
) -> Iterator[dict[str, Any]]:
    """One row per data set and case; rows that are in the folder already, with these seeds, are not run again."""
    path = folder / "bytes.json"
    result = load_json(path) or {"rows": []}
    rows = {(row["dataset"], row["quantized"]): row for row in result["rows"]}
    for name in datasets:
        for case, settings in CASES.items():
            row = rows.get((name, case))
            # Files of earlier versions name the seeds once, for all rows.
            if row is None or not set(seeds) <= set(row.get("seeds", result.get("seeds", ()))):
                # No early stopping: every case makes the same number of epochs, so that bytes compare.
                config = ModelConfig(
                    hidden=hidden, epochs=epochs, patience=epochs, eval_every=5, tolerance=0, solver="linearized",
                    weight_decay=0.1, workers=workers, augment="average", hops=8, normalize="centered", **settings,
                ).resolved()  # fmt: skip
                figures = _row(name, data_root, config, seeds)
                row = {"dataset": name, "quantized": case, **figures, **provenance(command)}
                rows[name, case] = row
                save(path, result | {"rows": list(rows.values())})
            yield row


def _row(dataset: str, data_root: str | None, config: ModelConfig, seeds: Sequence[int]) -> dict[str, Any]:
    problem = problem_of(dataset, data_root, config)
    accuracies = []
    for seed in seeds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            result = fit(problem, seed=seed).uninterrupted()
        accuracies.append(accuracy(result.model, problem.test))
    return {
        "seeds": list(seeds),
        "bytes_per_epoch": result.history[-1]["bytes_sent"],
        "test_accuracy": statistics.mean(accuracies),
        "spread": statistics.stdev(accuracies) if len(accuracies) > 1 else None,
    }


def render(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: bytes per epoch of the last stage, the share saved, and test accuracy.

    The share is one figure where it is the same for all data sets, else one for each, in their order.
    """
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    lines = ["| quantized | saved | " + " | ".join(datasets) + " |", "|---|---|" + "---|" * len(datasets)]
    by_cell = {(row["quantized"], row["dataset"]): row for row in rows}
    for case in dict.fromkeys(row["quantized"] for row in rows):
        entries, saved = [], []
        for dataset in datasets:
            row, plain = by_cell[case, dataset], by_cell["nothing", dataset]
            saved.append(f"{1 - row['bytes_per_epoch'] / plain['bytes_per_epoch']:.1%}")
            spread = f" ± {row['spread']:.3f}" if row["spread"] is not None else ""
            entries.append(f"{row['bytes_per_epoch'] / 1e6:.2f} MB, {row['test_accuracy']:.3f}{spread}")
        shares = saved[:1] if len(set(saved)) == 1 else saved
        lines.append(f"| {case} | {', '.join(shares)} | " + " | ".join(entries) + " |")
    return "\n".join(lines) + "\n"
