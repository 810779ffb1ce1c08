"""Labels and scores for a folder of shards: every process streams the nodes of its own through the model."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from ..config import RunConfig
from ..data.augmentation import GraphAugment
from ..data.graph import MASKS, order
from ..data.sharded_augmentation import ShardedAugment
from ..data.shards import Part, shard_name
from ..data.targets import check_kind
from ..engine.agreement import agreed
from ..engine.team import Team
from ..errors import InputError
from ..estimator import GAMLPClassifier, load_estimator
from ..model import GCN
from ..training.records import Say
from ..training.sharded import all_figures, augmented, hard_classes, open_part
from ..training.sharded_scores import Predictions, predictions, score
from ..training.worker_process import tell
from ..utils import compute_threads, temporary_folder, write_atomically, writing
from .sharded_run import RESULT, run_task

#: Written last into a folder of predictions.
DESCRIPTION = "predictions.json"


def predict_shards(
    model: str, dataset: str, out: str, shards: int, *, team: Team | None = None, say: Say | None = None
) -> dict[str, Any] | None:
    """A label for every node of a folder of shards, by the model of a file, in so many processes or in a ``team``.

    Into one CSV file if ``out`` ends in .csv, else into a folder with two arrays for each shard. What it took; None on
    a member of a team that is not the first.
    """
    job = {"task": "predict", "model": str(Path(model).resolve()), "dataset": dataset, "out": out}
    try:
        return _done(job, shards, team, say)
    except BaseException:
        for rank in range(shards) if Path(out).suffix == ".csv" else ():
            with suppress(OSError):
                _piece(Path(out), rank).unlink()
        raise


def score_shards(
    model: str, dataset: str, shards: int, *, team: Team | None = None, say: Say | None = None
) -> dict[str, Any] | None:
    """Accuracies on a folder of shards, likewise."""
    job = {"task": "evaluate", "model": str(Path(model).resolve()), "dataset": dataset}
    return _done(job, shards, team, say)


def _done(job: dict[str, Any], shards: int, team: Team | None, say: Say | None) -> dict[str, Any] | None:
    tasks = {"predict": predict_task, "evaluate": score_task}
    if team is not None or shards == 1:
        return tasks[job["task"]](Path(), job, team or Team(), say)
    config = RunConfig(dataset=job["dataset"], shards=shards)
    job |= {"config": dataclasses.asdict(config)}
    with temporary_folder() as folder:
        run_task(folder, job, shards, config, say)
        found: dict[str, Any] = json.loads((folder / RESULT).read_text())
    return found


def predict_task(_: Path, job: dict[str, Any], team: Team, say: Say | None = None) -> dict[str, Any] | None:
    """The part of one process in :func:`predict_shards`."""
    say = say or (lambda line: tell({"progress": line}))
    with compute_threads(1):
        classifier, part, sharded, figures = _applied(job, team, say)
        out = Path(job["out"])
        agreed(team, lambda: _begin(out, team))
        agreed(team, lambda: _write(out, classifier, part, sharded, team, say))
    everyone, whole = all_figures(team, figures), part.whole  # by now all have written theirs
    if team.rank > 0:
        return None
    if out.suffix == ".csv":
        _join(out, team.size)
    else:
        about = {"nodes": whole.nodes, "counts": list(whole.counts), "data": whole.id}
        write_atomically(out / DESCRIPTION, json.dumps(about, indent=2) + "\n")
    return {"predictions": whole.nodes, "file": job["out"], "processes": everyone}


def score_task(_: Path, job: dict[str, Any], team: Team, say: Say | None = None) -> dict[str, Any] | None:
    """The part of one process in :func:`score_shards`."""
    say = say or (lambda line: tell({"progress": line}))
    with compute_threads(1):
        classifier, part, sharded, figures = _applied(job, team, say)
        y = part.column("y")
        if y is None:  # on all processes alike
            raise InputError("the data set has no labels 'y' to evaluate against; use 'pdadmm-g predict'")
        check_kind(y, classifier.classes_)
        masks = {name: mask for name in MASKS if (mask := part.column(name)) is not None}
        found = score(classifier.model_, sharded, hard_classes(y), masks, classifier.classes_, team.rows)
    everyone = all_figures(team, figures)
    return None if team.rank > 0 else found._asdict() | {"processes": everyone}


def _applied(
    job: dict[str, Any], team: Team, say: Say
) -> tuple[GAMLPClassifier, Part, ShardedAugment, dict[str, float]]:
    """The model, the part of this process and its features."""
    classifier = agreed(team, lambda: _of_classes(job["model"]))
    whole, part = open_part(job["dataset"], team)
    if isinstance(classifier.model_, GCN):
        raise InputError("a network of graph convolutions does not run on a sharded folder: give one file")
    if whole.features != classifier.n_features_in_:
        expected = f"the model was trained with {classifier.n_features_in_}"
        raise InputError(f"{job['dataset']} has {whole.features} features, {expected}")
    if order(whole.feature_names, getattr(classifier, "feature_names_in_", None)) is not None:
        why = "the features stand in another order than those of the model"
        raise InputError(f"{job['dataset']}: {why}: make the folder anew in its order")
    augment = classifier.augmentation_ or GraphAugment("none", row_normalize=False, normalize="none")
    sharded, figures = augmented(team, part, augment, say)
    assert part is not None
    assert sharded is not None
    return classifier, part, sharded, figures


def _begin(out: Path, team: Team) -> None:
    """Make room: what is there of an earlier call must not pass for that of this one."""
    if team.rank > 0:
        return
    with writing(out):
        if out.suffix == ".csv":
            if not out.parent.is_dir():
                raise InputError(f"{out}: cannot write: {out.parent} is no folder")
            return
        if out.exists() and not (out / DESCRIPTION).exists() and not all(map(_is_of_predictions, out.iterdir())):
            raise InputError(f"{out}: is a folder with something else in it; choose another --out")
        (out / DESCRIPTION).unlink(missing_ok=True)
        out.mkdir(parents=True, exist_ok=True)


def _is_of_predictions(path: Path) -> bool:
    """Is it the folder of a shard as :func:`_write_arrays` leaves it? Those that were cut short may be made again."""
    is_shard = path.is_dir() and fnmatch(path.name, "shard-*-of-*")
    return is_shard and all(file.name in ("label.npy", "probability.npy", "id.npy") for file in path.iterdir())


def _of_classes(path: str) -> GAMLPClassifier:
    """The classifier of a model file, if it is of one class a node."""
    classifier = load_estimator(path)
    if not isinstance(classifier, GAMLPClassifier) or classifier.config_.target != "classification":
        raise InputError(f"{path}: is for {classifier.config_.target}, a folder of shards is for classes alone")
    return classifier


def _write(out: Path, classifier: GAMLPClassifier, part: Part, sharded: ShardedAugment, team: Team, say: Say) -> None:
    """What this process says of its nodes: rows of a text, or two arrays for each of its shards."""

    def blocks() -> Iterator[Predictions]:
        shown = 0
        for block in predictions(classifier.model_, sharded):
            yield block
            tenths = 10 * (int(block.nodes[-1]) + 1) // part.count
            if team.rank == 0 and tenths > shown:
                shown = tenths
                say(f"predictions: {tenths * 10}%")

    classes = classifier.classes_
    with writing(out):
        if out.suffix == ".csv":
            _write_text(_piece(out, team.rank), part, classes, blocks(), header=team.rank == 0)
            return
        labels, probabilities = np.empty(part.count, dtype=classes.dtype), np.empty(part.count, dtype=np.float32)
        for block in blocks():
            labels[block.nodes], probabilities[block.nodes] = classes[block.best], block.probability
        _write_arrays(out, part, {"label": labels, "probability": probabilities})


def _write_text(path: Path, part: Part, classes: Any, blocks: Iterator[Predictions], *, header: bool) -> None:
    ids = part.column("id")
    if ids is not None and ids.dtype.kind == "S":
        ids = np.char.decode(ids, "utf-8")
    with path.open("w", encoding="utf-8", newline="") as file:
        text = csv.writer(file, lineterminator="\n")
        if header:
            text.writerow(("node", "label", "probability"))
        for nodes, best, probability in blocks:
            names = (nodes + part.first if ids is None else ids[nodes]).tolist()
            shares = map("{:.6f}".format, probability.tolist())
            text.writerows(zip(names, classes[best].tolist(), shares, strict=True))


def _write_arrays(out: Path, part: Part, arrays: dict[str, Any]) -> None:
    place, starts = 0, part.whole.starts
    for shard in part.shards:
        folder = out / shard_name(starts.index(shard.first), part.whole.shards)
        folder.mkdir(exist_ok=True)
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array[place : place + shard.count])
        if "id" in shard.arrays:
            np.save(folder / "id.npy", shard.arrays["id"])
        place += shard.count


def _piece(out: Path, rank: int) -> Path:
    return out.with_name(f"{out.name}.part-{rank}")


def _join(out: Path, pieces: int) -> None:
    """The pieces of all processes, one after the other, as one file."""
    with writing(out):
        first = _piece(out, 0)
        with first.open("ab") as whole:
            for rank in range(1, pieces):
                with _piece(out, rank).open("rb") as piece:
                    shutil.copyfileobj(piece, whole, 1 << 22)
                _piece(out, rank).unlink()
        first.replace(out)
