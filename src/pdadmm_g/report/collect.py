"""Run folders as plain records, small enough to embed in a page however long the runs were."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from ..config import TARGETS, RunConfig, read_yaml
from ..errors import InputError
from ..runs.folder import IMPORTANCE, RunFolder, Worker
from ..status import Status
from ..training.records import WORKER_FIGURES, is_task_line
from ..training.rounds import GAIN
from ..utils import Count, Size, decoded, read_lines, read_record

#: Most points of a curve, and most bars of a worker's timeline.
MAX_POINTS, MAX_BARS = 1500, 96
#: What is drawn over the epochs.
SERIES = (
    "train_accuracy", "val_accuracy", "val_score", "train_loss", "val_loss", "objective", "risk",
    "primal_residual", "dual_residual", "rho",
)  # fmt: skip
#: What is drawn over the rounds of learning from unlabelled nodes.
ROUND_SERIES = ("val_accuracy", "agreement", "changed")
#: What is passed on of the summary, with what is there of a run that has not said it.
JUDGED = dict.fromkeys(("data", "estimate", "reliability", "confusion", "outputs", "looks")) | {
    "metrics": {},
    "times": {},
}
FACTS = ("finished", "parameters", "test_accuracy", "val_accuracy", "train_accuracy")
#: On which the defaults of other settings depend.
DECISIVE = ("layers", "quantize")
#: Axes need some room beyond the largest number.
LARGEST_DRAWN = 1e250
UNFINISHED: dict[str, Any] = {
    "status": "UNFINISHED",
    "advice": "There is no summary yet: the run is still going on, or it was killed.",
}

Run = dict[str, Any]


#: What is looked at of a line of the metrics: whole records of 200,000 epochs would take gigabytes.
Epoch: Any = msgspec.defstruct(
    "Epoch",
    [
        ("stage", Count), ("epoch", Count), ("seconds", float, 0.0), ("bytes_sent", float, 0.0),
        ("round", Size | None, None), ("workers", tuple[Worker, ...], ()),
        *((name, float | None, None) for name in dict.fromkeys((*SERIES, *ROUND_SERIES))),
    ],
)  # fmt: skip


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Each run folder as a record, under the shortest name that tells it from the others."""
    return [read_run(path, name) for path, name in zip(paths, names_of(paths), strict=True)]


def names_of(paths: Sequence[Path]) -> list[str]:
    """For each folder the shortest end of its path that no other one has."""
    parts = [path.resolve().parts for path in paths]
    names = [["/".join(own[-depth:]) for depth in range(1, max(2, len(own)))] for own in parts]
    known = Counter(name for own in names for name in own)
    return [next((name for name in own if known[name] == 1), own[0]) for own in names]


def read_run(path: Path, name: str) -> Run:
    """One run folder, finished or not."""
    if not path.is_dir():
        raise InputError(f"{path}: no such run folder")
    for file in ("config.yaml", "metrics.jsonl"):
        if not (path / file).is_file():
            raise InputError(f"{path}: not a run folder: it has no {file}")
    config, folder = read_yaml(path / "config.yaml"), RunFolder(path)
    defaults = {item.name: item.default for item in fields(RunConfig)}
    try:
        settings = RunConfig(**{key: value for key, value in config.items() if key in defaults})
    except InputError as error:
        raise InputError(f"{path / 'config.yaml'}: {error}") from None
    records = _read_metrics(path / "metrics.jsonl")
    columns = (column for column in Epoch.__struct_fields__ if column not in ("epoch", "workers"))
    epochs = pd.DataFrame(
        {column: [getattr(epoch, column) for epoch in records] for column in columns},
        index=[epoch.epoch for epoch in records],
        dtype=float,
    )
    summary = (not folder.unscored and folder.summary()) or UNFINISHED
    importance = None
    if (path / IMPORTANCE).exists():
        importance = read_record(dict[str, Any], path / IMPORTANCE, "what columns are worth")
    judged = {key: summary.get(key) for key in JUDGED} | {key: summary.get(key, {}) for key in ("metrics", "times")}
    for table, names in (("confusion", "classes"), ("outputs", "names")):
        if (found := judged[table]) is not None:
            judged[table] = found | {names: list(map(str, found[names]))}
    # The settings that are not at their default, nor at what it comes to with the depth of the run.
    usual = vars(RunConfig(**{key: getattr(settings, key) for key in DECISIVE}).resolved()) | dict.fromkeys(DECISIVE)
    changed = [key for key in defaults if key in config and getattr(settings, key) not in (defaults[key], usual[key])]
    return judged | {
        "name": name,
        "path": str(path),
        "status": summary["status"],
        "failed": summary is not UNFINISHED and Status[summary["status"]].is_failure,
        "advice": ". ".join(filter(None, (summary.get("message"), summary.get("advice")))),
        "facts": _facts(settings, epochs, summary) | {"kept": _kept(settings, epochs)},
        "config": {key: _text(value) for key, value in config.items()},
        "changed": changed,
        "choices": summary.get("choices", []),
        "importance": importance,
        "series": {
            key: _points("value", thin(epochs[key].dropna())) if epochs[key].notna().any() else None for key in SERIES
        },
        "clock": _points("seconds", thin(epochs.seconds.cumsum())),  # between its points time is nearly linear
        "stages": _stages(records),
        "rounds": _rounds(epochs),
        "timeline": _timeline(records),
    }


def thin(curve: pd.Series) -> pd.Series:
    """At most so many points of a curve: its ends, and the lowest and highest of each stretch between."""
    if len(curve) <= MAX_POINTS:
        return curve
    places = pd.Series(curve.to_numpy())
    stretches = places.groupby(places.index * (MAX_POINTS // 2 - 1) // len(places))
    return curve.iloc[sorted({0, len(places) - 1, *stretches.idxmin(), *stretches.idxmax()})]


def _read_metrics(path: Path) -> list[Any]:
    """The epochs of a run. The end of the last line may be missing: it is being written."""
    epochs = []
    for number, line in enumerate(read_lines(path, "the metrics"), start=1):
        if is_task_line(line):
            continue
        try:
            epochs.append(decoded(Epoch, line))
        except ValueError as error:
            if line.endswith("\n"):
                raise InputError(f"{path}: line {number} is not a record of an epoch: {error}") from None
    return epochs


def _facts(settings: RunConfig, epochs: pd.DataFrame, summary: dict[str, Any]) -> dict[str, Any]:
    """The figures of the overview; what an unfinished run cannot say itself comes from its settings and epochs."""
    facts = {
        **{key: getattr(settings, key) for key in ("dataset", "seed", "layers", "unlabelled")},
        "epochs": len(epochs),
        **{key: float(epochs[key].sum()) for key in ("seconds", "bytes_sent")},
    }
    if summary.get("layers"):
        facts = {key: summary.get(key) for key in facts}
    facts |= {key: summary.get(key) for key in FACTS}
    figure = TARGETS[summary.get("target") or "classification"].figure
    if figure != "accuracy":  # what people look at first, in the place of the accuracy
        metrics = summary.get("metrics", {})
        facts |= {f"{part}_accuracy": metrics.get(part, {}).get(figure) for part in ("test", "val", "train")}
    versions = summary.get("versions", {}).items()
    return facts | {
        "figure": figure,
        "versions": ", ".join(f"{package.replace('_', '-')} {version}" for package, version in versions),
    }


def _text(value: Any) -> str:
    """A setting as people write it."""
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_text(item)}" for name, item in value.items())
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rounded(value: float) -> float:
    """Six digits: more cannot be seen, and would be most of the page."""
    return float(f"{min(max(value, -LARGEST_DRAWN), LARGEST_DRAWN):.6g}")


def _points(name: str, curve: pd.Series) -> dict[str, list[Any]]:
    return {"epoch": curve.index.tolist(), name: [*map(_rounded, curve)]}


def _stages(epochs: list[Any]) -> list[dict[str, Any]]:
    """For each stage its first epoch, its depth and the layers of each worker."""
    stages = []
    for _, group in groupby(epochs, key=attrgetter("stage")):
        first = next(group)
        layers = [worker.layers for worker in first.workers]
        stages.append({"epoch": first.epoch, "depth": sum(layers), "workers": layers})
    return stages


def _rounds(epochs: pd.DataFrame) -> dict[str, list[Any]] | None:
    """The rounds in order: number, first and last epoch, and the best of each figure; None if there were none."""
    best = epochs.groupby("round")[list(ROUND_SERIES)].max()
    if not any(best.index) or best.isna().all(axis=None):
        return None
    numbers = epochs.index.to_series().groupby(epochs["round"])
    return {
        "round": best.index.astype(int).tolist(),
        "first": numbers.first().tolist(),
        "last": numbers.last().tolist(),
        **{name: [None if math.isnan(value) else _rounded(value) for value in best[name]] for name in ROUND_SERIES},
    }


def _timeline(epochs: list[Any]) -> dict[str, Any] | None:
    """What each worker did per epoch, averaged over stretches of epochs; None without workers."""
    count = max((len(epoch.workers) for epoch in epochs), default=0)
    if not count:
        return None
    places = np.array_split(np.arange(len(epochs)), min(MAX_BARS, len(epochs)))
    workers = []
    for rank in range(count):
        # A resumed run may have had fewer workers before.
        parts = [[own[rank] for place in stretch if rank < len(own := epochs[place].workers)] for stretch in places]
        means = {
            key: [_rounded(sum(getattr(each, key) for each in part) / max(1, len(part))) for part in parts]
            for key in WORKER_FIGURES
        }
        workers.append(means)
    return {"edges": [epochs[0].epoch - 1, *(epochs[stretch[-1]].epoch for stretch in places)], "workers": workers}


def _kept(settings: RunConfig, epochs: pd.DataFrame) -> int | None:
    """The epoch with the best validation score, whose weights are kept; None where validation does not choose.

    It is the best of all stages, since a grown network starts as the one before, and a depth beyond the first must be
    worth it where 'growth' says so.
    """
    if settings.patience is None:
        return None
    scores = epochs.val_score if epochs.val_score.notna().any() else epochs.val_accuracy
    known = epochs.assign(score=scores.fillna(-math.inf), loss=-epochs.val_loss)[epochs.val_loss.notna()]
    best, kept = (-math.inf, -math.inf), None
    for stage, own in known.groupby("stage"):
        first = own.sort_values(["score", "loss"], ascending=False, kind="stable").iloc[0]
        margin = GAIN if stage > 1 and settings.growth == "gain" else 0.0
        if (first.score - margin, first.loss) > best:
            best, kept = (first.score, first.loss), int(first.name)
    return kept
