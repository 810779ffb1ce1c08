"""The files of a run, made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

EVIL = "</script><img src=x onerror=document.title='owned'>&<!--"
SUMMARY = {
    "status": "EARLY_STOPPED", "advice": "Fine.", "test_accuracy": 0.75, "val_accuracy": 0.7, "train_accuracy": 1.0,
    "dataset": "digits", "seed": 0, "layers": 5, "parameters": 1234, "epochs": 40, "seconds": 0.4,
    "bytes_sent": 4000, "versions": {"torch": "2"},
    "estimate": {"on": "validation", "nodes": 40, "largest_class": 0.55,
                 "figures": {"accuracy": [0.7, 0.58, 0.82], "roc_auc_ovr": [0.8, 0.7, 0.9]}},
    "looks": {"among": "unlabelled", "nodes": "test",
              "uncertain": [{"node": "n7", "label": None, "predicted": "cat", "probability": 0.51}],
              "contradicted": [{"node": EVIL, "label": "dog", "predicted": "cat", "probability": 0.98}]},
    "confusion": {"nodes": "test", "classes": ["cat", EVIL], "counts": [[3, 1], [0, 0]]},
    "metrics": {"val": {"accuracy": 0.7, "log_loss": 0.9}, "test": {"accuracy": 0.75, "log_loss": None}},
    "reliability": {"nodes": "test", "bins": [{"confidence": 0.6, "accuracy": 0.5, "rows": 3},
                                              {"confidence": 0.9, "accuracy": 1.0, "rows": 1}]},
    "data": {"nodes": 9, "edges": 12, "classes": 2, "train": 3, "homophily": 0.5, "degrees": [0, 1, 2, 3, 4]},
    "times": {"reading": 1.5, "training": 8.0},
}  # fmt: skip
IMPORTANCE = {
    "figure": "accuracy", "score": 0.75, "on": "test", "nodes": 4, "repeats": 5,
    "rows": [{"column": "the graph", "whose": "trained without", "lost": 0.2, "spread": None},
             {"column": EVIL, "whose": "neighbours", "lost": 0.1, "spread": 0.02},
             {"column": EVIL, "whose": "own", "lost": -0.01, "spread": 0.01}],
}  # fmt: skip
ALL_FIGURES = [
    "estimate", "classes", "confusion", "reliability", "importance",
    "accuracy", "loss", "objective", "residuals", "rho", "workers", "plan", "times",
]  # fmt: skip


def record(epoch: int, stage: int, workers: int, **changes: Any) -> dict[str, Any]:
    evaluated = epoch % 2 == 0
    layers = [1] * workers if stage == 1 else [*[2] * (workers - 1), 5 - 2 * (workers - 1)]
    return {
        "stage": stage, "epoch": epoch, "objective": 100 / epoch, "risk": 50 / epoch,
        "primal_residual": 1 / epoch, "dual_residual": 2 / epoch, "rho": 5.0,
        "train_loss": 1 / epoch if evaluated else None, "train_accuracy": 1 - 0.5 / epoch if evaluated else None,
        "val_loss": 1 / epoch if evaluated else None, "val_accuracy": 0.8 - 0.5 / epoch if evaluated else None,
        "seconds": 0.01, "bytes_sent": 100,
        "workers": [
            {"layers": count, "compute_seconds": 0.006, "wait_seconds": 0.003, "pack_seconds": 0.001,
             "bytes_p": 50 * (rank > 0), "bytes_q": 50 * (rank + 1 < workers)}
            for rank, count in enumerate(layers)
        ],
    } | changes  # fmt: skip


def write_rounds(path: Path, **changes: Any) -> Path:
    """A run in which nodes without labels teach: 12 rounds of two layers, two of five, three epochs each."""
    write_run(path, summary=SUMMARY | {"choices": ["weight decay 0.28", EVIL], "unlabelled": 500})
    lines = []
    for epoch in range(1, 46):
        round = (epoch - 1) // 3
        lesson = {
            "round": round,
            "agreement": 0.5 + round / 50 if round else None,
            "changed": 0.2 - round / 100 if round > 1 else None,
        }
        lines.append(json.dumps(record(epoch, 1 if round <= 12 else 2, 2, **lesson) | changes))
    (path / "metrics.jsonl").write_text("\n".join(lines))
    return path


def write_run(
    path: Path, *, epochs: int = 40, workers: int = 2, summary: dict[str, Any] | None = SUMMARY, tail: str = "",
    config: str = "dataset: digits\nlayers: 5\nstages: [2, 5]\nrho: 5.0\n",
) -> Path:  # fmt: skip
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(config)
    records = [record(epoch, 1 if epoch <= epochs // 2 else 2, workers) for epoch in range(1, epochs + 1)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in records) + tail)
    if summary is not None:
        (path / "summary.json").write_text(json.dumps(summary))
        (path / "importance.json").write_text(json.dumps(IMPORTANCE))
    return path


def epochs_of(run: str | Path) -> list[dict[str, Any]]:
    """The records of epochs in a run folder."""
    lines = (Path(run) / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if "task" not in record]
