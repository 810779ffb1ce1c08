"""Run folders as plain records, small enough to embed in a page however long the runs were."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
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
from ..runs.folder import IMPORTANCE, Importance, Summary, Worker
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
#: What is taken from the summary as it is.
JUDGED = ("data", "estimate", "metrics", "reliability", "times", "confusion", "outputs", "looks")
#: Settings that may be left to the data and are not said in sentences.
SETTLED = ("augment", "hops", "weight_decay")
#: On which the defaults of other settings depend.
DECISIVE = ("layers", "quantize")
#: Axes need some room beyond the largest number.
LARGEST_DRAWN = 1e250
UNFINISHED = Summary(
    status="UNFINISHED", advice="There is no summary yet: the run is still going on, or it was killed."
)

Run = dict[str, Any]


class Epoch(msgspec.Struct, frozen=True):
    """What is looked at of a line of the metrics: whole records of 200,000 epochs would take gigabytes."""

    stage: Count
    epoch: Count
    seconds: float = 0.0
    bytes_sent: float = 0.0
    workers: tuple[Worker, ...] = ()
    round: Size | None = None
    train_accuracy: float | None = None
    val_accuracy: float | None = None
    val_score: float | None = None
    train_loss: float | None = None
    val_loss: float | None = None
    objective: float | None = None
    risk: float | None = None
    primal_residual: float | None = None
    dual_residual: float | None = None
    rho: float | None = None
    agreement: float | None = None
    changed: float | None = None


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Each run folder as a record, under the shortest name that tells it from the others."""
    return [read_run(path, name) for path, name in zip(paths, names_of(paths), strict=True)]


def read_run(path: Path, name: str) -> Run:
    """One run folder, finished or not."""
    if not path.is_dir():
        raise InputError(f"{path}: no such run folder")
    for file in ("config.yaml", "metrics.jsonl"):
        if not (path / file).is_file():
            raise InputError(f"{path}: not a run folder: it has no {file}")
    config = read_yaml(path / "config.yaml")
    try:
        settings = RunConfig(**{item.name: config[item.name] for item in fields(RunConfig) if item.name in config})
    except InputError as error:
        raise InputError(f"{path / 'config.yaml'}: {error}") from None
    records = _read_metrics(path / "metrics.jsonl")
    columns = {field: [getattr(epoch, field) for epoch in records] for field in Epoch.__struct_fields__}
    del columns["workers"]
    epochs = pd.DataFrame(columns, dtype=float)
    told = path / "summary.json"
    summary = read_record(Summary, told, "the summary") if told.exists() else UNFINISHED
    found = msgspec.to_builtins(summary)
    kept, importance = path / IMPORTANCE, None
    if kept.exists():
        importance = msgspec.to_builtins(read_record(Importance, kept, "what columns are worth"))
    for table, names in (("confusion", "classes"), ("outputs", "names")):
        if found[table] is not None:
            found[table][names] = list(map(str, found[table][names]))
    return {
        "name": name,
        "path": str(path),
        "status": summary.status,
        "failed": summary.status in Status.__members__ and Status[summary.status].is_failure,
        "advice": ". ".join(text for text in (summary.message, summary.advice) if text),
        "facts": _facts(settings, epochs, summary) | {"kept": _kept(settings, epochs)},
        "config": {key: _text(value) for key, value in config.items()},
        "changed": _changed(config, settings),
        "choices": [*_settled(config, found), *summary.choices],
        **{key: found[key] for key in JUDGED},
        "importance": importance,
        "series": {key: _series(epochs, key) for key in SERIES},
        "clock": _clock(epochs),
        "stages": _stages(settings, records),
        "rounds": _rounds(epochs),
        "timeline": _timeline(records),
    }


def names_of(paths: Sequence[Path]) -> list[str]:
    """For each folder the shortest end of its path that no other one has."""
    parts = [path.resolve().parts for path in paths]
    names = [["/".join(own[-depth:]) for depth in range(1, max(2, len(own)))] for own in parts]
    known = Counter(name for own in names for name in own)
    return [next((name for name in own if known[name] == 1), own[0]) for own in names]


def thin(epochs: Sequence[int], values: Sequence[float], most: int = MAX_POINTS) -> tuple[list[int], list[float]]:
    """At most ``most`` points of a curve: its ends, and the lowest and highest of each stretch between."""
    if len(values) <= most:
        return list(epochs), list(values)
    inner = np.array_split(np.arange(1, len(values) - 1), (most - 2) // 2)
    extremes = {int(own[find(np.take(values, own))]) for own in inner for find in (np.argmin, np.argmax)}
    order = sorted({0, len(values) - 1} | extremes)
    return np.take(epochs, order).tolist(), np.take(values, order).tolist()


def _read_metrics(path: Path) -> list[Epoch]:
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


def _facts(settings: RunConfig, epochs: pd.DataFrame, summary: Summary) -> dict[str, Any]:
    """The figures of the overview; what an unfinished run cannot say itself comes from its epochs."""
    known = {
        "dataset": settings.dataset,
        "seed": settings.seed,
        "layers": settings.layers,
        "unlabelled": settings.unlabelled,
        "epochs": len(epochs),
        "seconds": float(epochs.seconds.sum()),
        "bytes_sent": float(epochs.bytes_sent.sum()),
    }
    told = ("finished", "parameters", "test_accuracy", "val_accuracy", "train_accuracy")
    facts = {key: getattr(summary, key) for key in told}
    facts |= {key: getattr(summary, key) for key in known} if summary.layers else known
    figure = TARGETS[summary.target or "classification"].figure
    if figure != "accuracy":  # what people look at first, in the place of the accuracy
        facts |= {f"{part}_accuracy": summary.metrics.get(part, {}).get(figure) for part in ("test", "val", "train")}
    versions = ", ".join(f"{name.replace('_', '-')} {version}" for name, version in summary.versions.items())
    return facts | {"figure": figure, "versions": versions}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_text(item)}" for name, item in value.items())
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _changed(config: dict[str, Any], settings: RunConfig) -> list[str]:
    """The settings that are not at their default, nor at what it comes to with the depth of the run."""
    usual = vars(RunConfig(**{key: getattr(settings, key) for key in DECISIVE}).resolved()) | dict.fromkeys(DECISIVE)
    defaults = {item.name: item.default for item in fields(RunConfig)}
    return [key for key in defaults if key in config and getattr(settings, key) not in (defaults[key], usual[key])]


def _settled(config: dict[str, Any], summary: dict[str, Any]) -> list[str]:
    """What settings that were left to the data became, in a sentence if there are any."""
    left = {name: summary[name] for name in SETTLED if config.get(name) in (None, "auto")}
    texts = [
        f"{name.replace('_', ' ')} {f'{value:.3g}' if name == 'weight_decay' else value}"
        for name, value in left.items()
        if value is not None
    ]
    return [f"left to the data: {', '.join(texts)}"] if texts else []


def _rounded(value: float) -> float:
    """Six digits: more cannot be seen, and would be most of the page."""
    return float(f"{min(max(value, -LARGEST_DRAWN), LARGEST_DRAWN):.6g}")


def _series(epochs: pd.DataFrame, key: str) -> dict[str, list[Any]] | None:
    """A curve over the epochs that have a value, None if there is none."""
    known = epochs[epochs[key].notna()]
    if known.empty:
        return None
    numbers, values = thin(known.epoch.astype(int).tolist(), known[key].tolist())
    return {"epoch": numbers, "value": [*map(_rounded, values)]}


def _clock(epochs: pd.DataFrame) -> dict[str, list[Any]]:
    """Seconds of training at the end of some epochs, evenly spread; between them time is nearly linear."""
    step = max(1, math.ceil(len(epochs) / 400))
    elapsed = epochs.assign(seconds=epochs.seconds.cumsum())
    some = pd.concat([elapsed.iloc[:-1:step], elapsed.iloc[-1:]])
    return {"epoch": some.epoch.astype(int).tolist(), "seconds": [*map(_rounded, some.seconds)]}


def _stages(settings: RunConfig, epochs: list[Epoch]) -> list[dict[str, Any]]:
    """For each stage its first epoch, its depth and the layers of each worker."""
    stages, depths = [], settings.stages or (settings.layers,)
    for stage, group in groupby(epochs, key=attrgetter("stage")):
        first = next(group)
        layers = [worker.layers for worker in first.workers]
        depth = sum(layers) or depths[min(stage, len(depths)) - 1]
        stages.append({"epoch": first.epoch, "depth": depth, "workers": layers})
    return stages


def _rounds(epochs: pd.DataFrame) -> dict[str, list[Any]] | None:
    """The rounds in order: number, first and last epoch, and the best of each figure; None if there were none."""
    rounds = epochs.groupby("round")
    best, numbers = rounds[list(ROUND_SERIES)].max(), rounds.epoch
    if not any(best.index) or best.isna().all(axis=None):
        return None
    found = {"round": best.index, "first": numbers.first(), "last": numbers.last()}
    return {
        **{name: [int(value) for value in column] for name, column in found.items()},
        **{name: [None if math.isnan(value) else _rounded(value) for value in best[name]] for name in ROUND_SERIES},
    }


def _timeline(epochs: list[Epoch]) -> dict[str, Any] | None:
    """What each worker did per epoch, averaged over stretches of epochs; None without workers."""
    count = max((len(epoch.workers) for epoch in epochs), default=0)
    if not count:
        return None
    places = np.array_split(np.arange(len(epochs)), min(MAX_BARS, len(epochs)))
    stretches = [[epochs[place] for place in own] for own in places]
    workers = []
    for rank in range(count):
        parts = [[epoch.workers[rank] for epoch in stretch if rank < len(epoch.workers)] for stretch in stretches]
        workers.append({key: [_mean(getattr(each, key) for each in part) for part in parts] for key in WORKER_FIGURES})
    return {"edges": [epochs[0].epoch - 1, *(stretch[-1].epoch for stretch in stretches)], "workers": workers}


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return _rounded(sum(found) / max(1, len(found)))


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
            best, kept = (first.score, first.loss), int(first.epoch)
    return kept
