"""Run folders as plain records, small enough to embed in a page however long the runs were."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path
from typing import Annotated, Any

from ..config import METHODS, TARGETS, RunConfig, read_yaml
from ..decoding import Check, decoded, is_count, is_number, parsed, reading
from ..errors import InputError
from ..status import Status
from ..training.records import WORKER_FIGURES, Record, is_task, judged
from ..training.rounds import GAIN
from ..utils import read_lines, read_text

#: Most points of a curve, and most bars of a worker's timeline.
MAX_POINTS, MAX_BARS = 1500, 96
#: What is drawn over the epochs.
SERIES = (
    "train_accuracy", "val_accuracy", "val_score", "train_loss", "val_loss", "objective", "risk",
    "primal_residual", "dual_residual", "rho",
)  # fmt: skip
#: What is drawn over the rounds in which nodes without labels teach.
ROUND_SERIES = ("val_accuracy", "agreement", "changed")
#: What else of an epoch is looked at, and what of a worker in it.
USED = (*SERIES, *ROUND_SERIES[1:], "stage", "epoch", "round", "seconds", "bytes_sent", "workers")
USED_OF_WORKERS = (*WORKER_FIGURES, "layers")
#: Most sentences on what was chosen by the data, and most characters of one.
MAX_CHOICES, LONGEST_CHOICE = 20, 300
#: What of a graph is shown, and what may be left to the data and is not said in sentences.
DATA_FACTS = (
    "nodes", "edges", "features", "classes", "outputs", "train", "val", "test", "homophily", "homophily_beyond_chance",
    "mean_degree", "isolated",
)  # fmt: skip
SETTLED = ("augment", "hops", "weight_decay")
#: On which the defaults of other settings depend.
DECISIVE = ("method", "layers", "quantize")
#: Most parts of the wall time, and most characters of the name of one.
MAX_TIMES, LONGEST_TASK = 12, 40
#: Digits of a whole number; a float has no place for many more.
MOST_DIGITS = 300
#: Axes need some room beyond the largest number.
LARGEST_DRAWN = 1e250
UNFINISHED = "UNFINISHED"
UNFINISHED_ADVICE = "There is no summary yet: the run is still going on, or it was killed."

Run = dict[str, Any]


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
    config = _read_config(path / "config.yaml")
    records = _read_metrics(path / "metrics.jsonl")
    summary = _read_summary(path / "summary.json")
    status = _name(summary.get("status", UNFINISHED))
    return {
        "name": name,
        "path": str(path),
        "status": status,
        "failed": status in Status.__members__ and Status[status].is_failure,
        "advice": ". ".join(text for key in ("message", "advice") if (text := _name(summary.get(key))))
        or (UNFINISHED_ADVICE if status == UNFINISHED else ""),
        "facts": _facts(config, records, summary) | {"kept": _kept(config, records)},
        "config": {key: _text(value) for key, value in config.items()},
        "changed": _changed(config),
        "choices": [*_settled(config, summary), *_choices(summary.get("choices"))],
        "data": _data(summary.get("data")),
        "metrics": _metrics(summary.get("metrics")),
        "reliability": _reliability(summary.get("reliability")),
        "times": _times(summary.get("times")),
        "series": {key: _series(records, key) for key in SERIES},
        "clock": _clock(records),
        "stages": _stages(config, records),
        "rounds": _rounds(records),
        "timeline": _timeline(records),
        "confusion": _confusion(summary.get("confusion")),
        "outputs": _outputs(summary.get("outputs")),
    }


def names_of(paths: Sequence[Path]) -> list[str]:
    """For each folder the shortest end of its path that no other one has."""
    parts = [path.resolve().parts for path in paths]
    names = []
    for own in parts:
        depth = next(
            (depth for depth in range(1, len(own)) if sum(other[-depth:] == own[-depth:] for other in parts) == 1), 1
        )
        names.append("/".join(own[-depth:]))
    return names


def thin(epochs: Sequence[int], values: Sequence[float], most: int = MAX_POINTS) -> tuple[list[int], list[float]]:
    """At most ``most`` points of a curve: its ends, and the lowest and highest of each stretch between."""
    if len(values) <= most:
        return list(epochs), list(values)
    last = len(values) - 1
    stretches = (most - 2) // 2
    kept = {0, last}
    for number in range(stretches):
        stretch = range(1 + number * (last - 1) // stretches, 1 + (number + 1) * (last - 1) // stretches)
        kept |= {min(stretch, key=values.__getitem__), max(stretch, key=values.__getitem__)}
    order = sorted(kept)
    return [epochs[place] for place in order], [values[place] for place in order]


def _is_count(value: Any, least: int = 0) -> bool:
    """Is it a whole number that a browser can hold too?"""
    return is_count(value, least, 2**53)


_Count = Annotated[int, Check(lambda value: _is_count(value, 1), "is missing or not a count")]


@dataclass(frozen=True)
class _Epoch:
    """What every line of the metrics must say."""

    stage: _Count
    epoch: _Count


def _read_config(path: Path) -> dict[str, Any]:
    """The settings, each a value, a list of numbers or named numbers: YAML could make anything else."""
    config = read_yaml(path)
    for key, value in config.items():
        if isinstance(value, (list, dict)):
            items = value.values() if isinstance(value, dict) else value
            names = key == "labels" and isinstance(value, list)
            plain = all(isinstance(item, str if names else float) or is_number(item) for item in items)
            plain &= not isinstance(value, dict) or all(isinstance(name, str) for name in value)
        else:
            plain = value is None or isinstance(value, (str, bool, float)) or is_number(value)
        if not plain:
            raise InputError(f"{path}: setting {key[:60]!r} must be a value or a list of numbers")
    return config


def _read_metrics(path: Path) -> list[Record]:
    """The epochs of a run. The end of the last line may be missing: it is being written."""
    records = []
    for number, line in enumerate(read_lines(path, "the metrics"), start=1):
        try:
            record = parsed(line, most_digits=MOST_DIGITS)
            if is_task(record):
                continue
            decoded(_Epoch, record)
            records.append(_slim(record))
        except ValueError:
            if line.endswith("\n"):
                raise InputError(f"{path}: line {number} is not a record of an epoch") from None
    return records


def _slim(record: Record) -> Record:
    """What of a record is looked at: all of 200,000 epochs, each with names of its own, would take gigabytes."""
    own = {key: record[key] for key in USED if key in record}
    if "workers" in own:
        own["workers"] = [{key: worker[key] for key in USED_OF_WORKERS if key in worker} for worker in _workers(own)]
    return own


def _read_summary(path: Path) -> dict[str, Any]:
    """The summary, empty while there is none."""
    if not path.exists():
        return {}
    with reading(path, "the summary"):
        summary = parsed(read_text(path, "the summary"), most_digits=MOST_DIGITS)
    if not isinstance(summary, dict):
        raise InputError(f"{path}: not the summary of a run")
    return summary


def _facts(config: dict[str, Any], records: list[Record], summary: dict[str, Any]) -> dict[str, Any]:
    """The figures of the overview; what an unfinished run cannot say itself comes from its epochs."""
    names = ("dataset", "method", "seed", "finished")
    figures = (
        "test_accuracy", "val_accuracy", "train_accuracy", "layers", "parameters", "epochs", "seconds", "bytes_sent",
        "unlabelled",
    )  # fmt: skip
    known = {
        "epochs": len(records),
        "seconds": sum(_numbers(records, "seconds")),
        "bytes_sent": sum(_numbers(records, "bytes_sent")),
    }
    facts = {key: summary.get(key, known.get(key, config.get(key))) for key in (*names, *figures)}
    for key, value in facts.items():
        if not (is_number(value) or (key in names and isinstance(value, str))):
            facts[key] = None
    target = TARGETS.get(_name(summary.get("target")))
    figure = "accuracy" if target is None else target.figure
    facts["figure"] = figure
    if figure != "accuracy":  # what people look at first, in the place of the accuracy
        found = _metrics(summary.get("metrics"))
        facts |= {f"{part}_accuracy": found.get(part, {}).get(figure) for part in ("test", "val", "train")}
    versions = _mapping(summary.get("versions"))
    return facts | {"versions": ", ".join(f"{name} {_name(version)}" for name, version in versions.items())}


def _numbers(records: Iterable[Record], key: str) -> Iterable[float]:
    return (float(record[key]) for record in records if is_number(record.get(key)))


def _count(value: Any) -> int:
    return int(value) if _is_count(value) else 0


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _name(value: Any) -> str:
    """Text of something that should be a name or a number, empty if it is not. JSON can have halves of characters."""
    return str(value).encode(errors="replace").decode() if isinstance(value, (str, int, float)) else ""


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, dict):
        return ", ".join(f"{name}: {_text(item)}" for name, item in value.items())
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _changed(config: dict[str, Any]) -> list[str]:
    """The settings that are not at their default, nor at what it comes to with the method and depth of the run."""
    fields = RunConfig.__dataclass_fields__
    try:
        given = RunConfig(**{key: config[key] for key in DECISIVE if key in config})
        usual = {key: value for key, value in vars(given.resolved()).items() if key not in DECISIVE}
    except InputError:
        usual = {}
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in config.items()}
    return [key for key, value in plain.items() if key in fields and value not in (fields[key].default, usual.get(key))]


def _choices(value: Any) -> list[str]:
    """The sentences on what was chosen by the data, as far as they are sentences and neither long nor many."""
    texts = [_name(text) for text in value if isinstance(text, str)] if isinstance(value, list) else []
    return [
        text if len(text) <= LONGEST_CHOICE else text[: LONGEST_CHOICE - 1] + "\u2026"
        for text in texts[:MAX_CHOICES]
        if text.strip()
    ]


def _rounded(value: float) -> float:
    """Six digits: more cannot be seen, and would be most of the page."""
    return float(f"{min(max(value, -LARGEST_DRAWN), LARGEST_DRAWN):.6g}")


def _series(records: list[Record], key: str) -> dict[str, list[Any]] | None:
    """A curve over the epochs that have a value, None if there is none."""
    points = [(record["epoch"], record[key]) for record in records if is_number(record.get(key))]
    if not points:
        return None
    epochs, values = thin([epoch for epoch, _ in points], [value for _, value in points])
    return {"epoch": epochs, "value": [_rounded(value) for value in values]}


def _clock(records: list[Record]) -> dict[str, list[Any]]:
    """Seconds of training at the end of some epochs, evenly spread; between them time is nearly linear."""
    elapsed = list(accumulate(sum(_numbers([record], "seconds")) for record in records))
    step = max(1, math.ceil(len(records) / 400))
    places = sorted({*range(0, len(records), step), len(records) - 1}) if records else []
    return {
        "epoch": [records[place]["epoch"] for place in places],
        "seconds": [_rounded(elapsed[place]) for place in places],
    }


def _stages(config: dict[str, Any], records: list[Record]) -> list[dict[str, Any]]:
    """For each stage its first epoch, its depth and the layers of each worker."""
    stages = []
    depths = config.get("stages")
    if not isinstance(depths, list) or not depths:
        depths = [config.get("layers")]
    depths = [_count(depth) for depth in depths]
    fixed = METHODS.get(str(config.get("method")))
    for stage, group in groupby(records, key=lambda record: record["stage"]):
        first = next(group)
        layers = [_count(worker.get("layers")) for worker in _workers(first)]
        planned = (fixed.depth if fixed else None) or depths[min(stage, len(depths)) - 1]
        stages.append({"epoch": first["epoch"], "depth": sum(layers) or planned, "workers": layers})
    return stages


def _rounds(records: list[Record]) -> dict[str, list[Any]] | None:
    """The rounds in order: number, first and last epoch, and the best of each figure; None if nobody was ever asked."""
    groups: dict[int, list[Record]] = {}
    for record in records:
        if _is_count(record.get("round")):
            groups.setdefault(record["round"], []).append(record)
    best = {
        key: {number: max(found) for number, group in groups.items() if (found := list(_numbers(group, key)))}
        for key in ROUND_SERIES
    }
    if not any(groups) or not any(best.values()):
        return None
    numbers = sorted(groups)
    if len(numbers) > MAX_POINTS:
        kept = {numbers[0], numbers[-1]}
        for values in best.values():
            known = sorted(values)
            kept |= set(thin(known, [values[number] for number in known], MAX_POINTS // len(best) - 1)[0])
        numbers = sorted(kept)
    return {
        "round": numbers,
        "first": [min(record["epoch"] for record in groups[number]) for number in numbers],
        "last": [max(record["epoch"] for record in groups[number]) for number in numbers],
        **{
            key: [_rounded(values[number]) if number in values else None for number in numbers]
            for key, values in best.items()
        },
    }


def _workers(record: Record) -> list[dict[str, Any]]:
    workers = record.get("workers")
    return [_mapping(worker) for worker in workers] if isinstance(workers, list) else []


def _timeline(records: list[Record]) -> dict[str, Any] | None:
    """What each worker did per epoch, averaged over stretches of epochs; None without workers."""
    count = max((len(_workers(record)) for record in records), default=0)
    if not count:
        return None
    bars = min(MAX_BARS, len(records))
    ends = [(bar + 1) * len(records) // bars for bar in range(bars)]
    stretches = [records[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    workers = []
    for rank in range(count):
        parts = [[rows[rank] for record in stretch if rank < len(rows := _workers(record))] for stretch in stretches]
        workers.append(
            {key: [_rounded(sum(_numbers(part, key)) / max(1, len(part))) for part in parts] for key in WORKER_FIGURES}
        )
    return {"edges": [records[0]["epoch"] - 1, *(records[end - 1]["epoch"] for end in ends)], "workers": workers}


def _settled(config: dict[str, Any], summary: dict[str, Any]) -> list[str]:
    """What settings that were left to the data became, in a sentence if there are any."""
    left = [name for name in SETTLED if config.get(name) in (None, "auto") and summary.get(name) is not None]
    texts = [f"{name.replace('_', ' ')} {_short(summary[name])}" for name in left if _name(summary[name])]
    return [f"left to the data: {', '.join(texts)}"] if texts else []


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else _name(value)[:LONGEST_TASK]


def _figures(value: Any, most: float = math.inf) -> dict[str, float | None]:
    """Named numbers, None for what is not a number."""
    named = {_name(name)[:LONGEST_TASK]: number for name, number in list(_mapping(value).items())[:MAX_TIMES]}
    return {name: number if is_number(number) and abs(number) <= most else None for name, number in named.items()}


def _data(value: Any) -> dict[str, Any] | None:
    """The facts of the graph: numbers, and the quartiles of the degrees."""
    given = _mapping(value)
    facts: dict[str, Any] = {
        name: given[name] for name in DATA_FACTS if is_number(given.get(name)) and abs(given[name]) < 1e15
    }
    degrees = given.get("degrees")
    if isinstance(degrees, list) and len(degrees) == 5 and all(map(_is_count, degrees)):
        facts["degrees"] = degrees
    return facts or None


def _metrics(value: Any) -> dict[str, dict[str, float | None]]:
    """The figures on the nodes of each kind that there are."""
    parts = {name: _figures(_mapping(value).get(name), 1e9) for name in ("train", "val", "test")}
    return {name: figures for name, figures in parts.items() if figures}


def _reliability(value: Any) -> dict[str, Any] | None:
    """Confidence and accuracy of the bins that have rows, as shares."""
    given = _mapping(value)
    bins = given.get("bins")
    found = [_mapping(each) for each in bins[:MAX_POINTS]] if isinstance(bins, list) else []
    sound = [
        {"confidence": _rounded(each["confidence"]), "accuracy": _rounded(each["accuracy"]), "rows": each["rows"]}
        for each in found
        if all(is_number(each.get(name)) and 0 <= each[name] <= 1 for name in ("confidence", "accuracy"))
        and _is_count(each.get("rows"), 1)
    ]
    return {"nodes": _name(given.get("nodes")), "bins": sound} if sound else None


def _times(value: Any) -> dict[str, float]:
    """Seconds by task, in the order in which they were written."""
    return {name: _rounded(each) for name, each in _figures(value).items() if each is not None and each >= 0}


def _kept(config: dict[str, Any], records: list[Record]) -> int | None:
    """The epoch with the best validation score, whose weights are kept; None where validation does not choose.

    With pdADMM-G the best of all stages, since a grown network starts as the one before; else of the last stage.
    """
    if config.get("patience", 1) is None:
        return None
    method = METHODS.get(str(config.get("method")))
    best, kept = (-math.inf, -math.inf), None
    for stage, group in groupby(records, key=lambda record: record["stage"]):
        own = [(found, record) for record in group if (found := _judged(record)) is not None]
        if not own:
            continue
        (score, loss), record = max(own, key=lambda pair: pair[0])
        # A depth beyond the first must be worth it, in runs before 'growth' only where nodes without labels taught.
        costly = config["growth"] == "gain" if config.get("growth") else _count(record.get("round"))
        margin = GAIN if stage > 1 and costly else 0.0
        if (method is not None and method.optimizer) or (score - margin, loss) > best:
            best, kept = (score, loss), record["epoch"]
    return kept


def _judged(record: Record) -> tuple[float, float] | None:
    """What validation chooses by, as far as the record is sound, see :func:`~pdadmm_g.training.records.judged`."""
    score = record.get("val_accuracy") if record.get("val_score") is None else record["val_score"]
    known = is_number(score) and is_number(record.get("val_loss"))
    return judged({"val_accuracy": None} | record) if known else None


def _outputs(value: Any) -> dict[str, Any] | None:
    """The figures of each of several labels or numbers, if there are sound ones."""
    given = _mapping(value)
    names, figures = given.get("names"), given.get("figures")
    if not isinstance(names, list) or not isinstance(figures, list) or len(names) != len(figures) or not names:
        return None
    rows = [_figures(each, LARGEST_DRAWN) for each in figures[:MAX_POINTS]]
    names = [_name(name)[:LONGEST_TASK] for name in names[:MAX_POINTS]]
    return {"nodes": _name(given.get("nodes")), "names": names, "figures": rows}


def _confusion(value: Any) -> dict[str, Any] | None:
    """The confusion matrix of a summary if it has a sound one."""
    table = _mapping(value)
    classes, counts = table.get("classes"), table.get("counts")
    if not isinstance(classes, list) or not isinstance(counts, list) or len(classes) != len(counts):
        return None
    sound = all(isinstance(row, list) and len(row) == len(classes) and all(map(_is_count, row)) for row in counts)
    if not sound or not classes:
        return None
    return {"nodes": _name(table.get("nodes")), "classes": [_name(name) for name in classes], "counts": counts}
