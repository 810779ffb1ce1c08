"""A run folder: config.yaml, metrics.jsonl, summary.json and model.safetensors."""

from __future__ import annotations

import dataclasses
import json
import platform
import re
import shutil
import warnings
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix
from torch import Tensor
from torch_geometric.data import Data

from . import __version__, checkpoint
from .checkpoint import Checkpoint, Checkpointing
from .checks import MASKS, check_training
from .config import RunConfig
from .datasets import digest, load_dataset
from .engine.launch import WorkerLostError
from .engine.team import PeerLostError, Team
from .errors import InputError
from .estimator import GAMLPClassifier, compute_threads
from .events import EventLog, require_tensorboard
from .files import read_text, write_atomically, writing
from .records import WORKER_FIGURES, Record, as_line, plain
from .status import Status
from .training import train

FILES = ("summary.json", "model.safetensors", "metrics.jsonl", "config.yaml")
#: Where a report of the run goes unless another place is asked for.
REPORT = "report.html"
#: A confusion matrix of more classes than this would outgrow the rest of the summary.
MAX_CONFUSION = 200


#: How a run may have ended to go on from its checkpoint; None if it was killed.
RESUMABLE = (None, Status.INTERRUPTED.name, Status.PEER_LOST.name)


class RunFolder:
    """A folder that is created when the first epoch ends and is finished once ``summary.json`` says how it went.

    So a run that fails on its input leaves nothing behind, and an old one is replaced only by one that trains.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.events = self.path / "tensorboard"
        self._metrics: IO[str] | None = None
        self._event_log: EventLog | None = None

    @property
    def status(self) -> str | None:
        """How the run ended, as its summary says: the name of a :class:`Status`, None if there is no summary."""
        summary = self.path / "summary.json"
        if not summary.exists():
            return None
        try:
            return str(json.loads(read_text(summary, "the summary"))["status"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return "unreadable"

    @property
    def finished(self) -> bool:
        """Does it hold a run with a result, which must not be replaced unasked? One that lost a worker has none."""
        return self.status not in (None, Status.PEER_LOST.name)

    def start(self, config: RunConfig, history: Sequence[Record] = ()) -> None:
        """Make the folder, remove an earlier run's files and write the configuration and the history so far."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for name in (*FILES, REPORT):
                (self.path / name).unlink(missing_ok=True)
            if self.events.is_dir():
                shutil.rmtree(self.events)
            # The metrics come first: they tell a run that was killed here from files that are somebody's own.
            self._metrics = (self.path / "metrics.jsonl").open("w", encoding="utf-8")
            write_atomically(self.path / "config.yaml", config.to_yaml())
            self._event_log = EventLog(self.events) if config.tensorboard else None
        except OSError as error:
            raise InputError(f"{self.path}: cannot write the run folder: {error.strerror}") from None
        for record in history:
            self.append(record)

    def check_free(self, *, overwrite: bool, resume: bool = False, checkpoints: bool = False) -> None:
        """Raise unless a run may be written here: not over a finished one, nor over files that are not a run's.

        A checkpoint is there to be resumed from: nothing is lost for want of an option. A run that writes
        ``checkpoints`` and was interrupted before the first one may start over.
        """
        if overwrite or not self.path.exists():
            return
        remedy = "choose another --out or add --overwrite"
        if checkpoint.valid(self.checkpoints) and self.status in RESUMABLE:
            if resume:
                return
            raise InputError(f"{self.path}: holds a run that did not finish; go on with --resume, or {remedy}")
        if resume and checkpoints and self.status == Status.INTERRUPTED.name:
            return
        if self.finished:
            raise InputError(f"{self.path}: already holds a finished run; {remedy}")
        foreign = [name for name in FILES if (self.path / name).exists()]
        if foreign and not (self.path / "metrics.jsonl").exists():
            raise InputError(f"{self.path}: holds a {foreign[0]} that is not of a run; {remedy}")

    @property
    def started(self) -> bool:
        """Has it been written to in this process?"""
        return self._metrics is not None

    def append(self, record: Record) -> None:
        """One line of metrics, readable by others at once, and its scalars for TensorBoard where that is wanted."""
        assert self._metrics is not None
        with writing(self.path / "metrics.jsonl"):
            self._metrics.write(as_line(record))
            self._metrics.flush()
        if self._event_log is not None:
            self._event_log.append(plain(record))

    def finish(self, summary: dict[str, Any], classifier: GAMLPClassifier | None) -> None:
        """Write the model, if there is one, then the summary that marks the run as finished."""
        assert self._metrics is not None
        self._metrics.close()
        if self._event_log is not None:
            self._event_log.close()
        if classifier is not None:
            classifier.save(self.path / "model.safetensors")
        # Rows of numbers on one line each. Text in JSON has no line breaks, so nothing else can match.
        text = re.sub(r"\[\n[-\d.,\s]*\]", lambda row: " ".join(row[0].split()), json.dumps(summary, indent=2))
        write_atomically(self.path / "summary.json", text + "\n")
        # Last: a run that is not finished needs its checkpoint whole; one that was interrupted can go on from it.
        if classifier is not None and classifier.status_ is not Status.INTERRUPTED:
            shutil.rmtree(self.checkpoints, ignore_errors=True)

    def config(self) -> RunConfig:
        """The configuration that the run was made with."""
        return RunConfig.load(self.path / "config.yaml")

    def classifier(self) -> GAMLPClassifier:
        """The trained estimator."""
        if not self.path.is_dir():
            raise InputError(f"{self.path}: no such run folder")
        return GAMLPClassifier.load(self.path / "model.safetensors")


#: Settings that may differ between a run and its resumption: they do not change the trained weights.
FREE_TO_CHANGE = ("workers", "plan", "timeout", "out", "data_root", "checkpoint_every", "tensorboard")


def train_run(
    config: RunConfig,
    *,
    overwrite: bool = False,
    resume: bool = False,
    on_epoch: Callable[[Record], None] | None = None,
    team: Team | None = None,
) -> dict[str, Any]:
    """Load the data, train, write the run folder; return the summary.

    Under a launcher of many processes this is what the first member of the ``team`` does, see :func:`join_run`.
    """
    config = config.resolved()
    assert config.out is not None
    folder = RunFolder(config.out)
    try:
        folder.check_free(overwrite=overwrite, resume=resume, checkpoints=config.checkpoint_every is not None)
        saved = _resumable(folder, config) if resume else None
        data = load_dataset(config.dataset, config.data_root)
        check_training(data, culprit=config.dataset)
        checkpointing = _checkpointing(folder, config, saved, data)
        if config.tensorboard:
            require_tensorboard()
    except InputError:
        _announce(team, go=False)
        raise
    _announce(team, go=True, resume=checkpointing.resume is not None)

    def record_epoch(record: Record) -> None:
        if not folder.started:
            folder.start(config, checkpointing.history)
        folder.append(record)
        if on_epoch is not None:
            on_epoch(record)

    classifier = GAMLPClassifier(**config.model_settings(), random_state=config.seed)
    try:
        classifier._fit(data, None, on_epoch=record_epoch, checkpointing=checkpointing, team=team)
    except (WorkerLostError, PeerLostError) as error:
        if folder.started:
            lost = {"status": Status.PEER_LOST.name, "advice": Status.PEER_LOST.advice, "message": str(error)}
            folder.finish(lost, None)
        raise
    if not folder.started:  # interrupted in the very first epoch, or resumed at the very end
        folder.start(config, checkpointing.history)
    summary = summarize(classifier, data, config)
    folder.finish(summary, classifier)
    return summary


def join_run(config: RunConfig, team: Team) -> bool:
    """What the other members of the team do while the first one is in :func:`train_run`. False if it gave up."""
    config = config.resolved()
    assert config.out is not None
    go, resume = team.broadcast(torch.zeros(2, dtype=torch.int64), 0).tolist()
    if not go:
        return False
    folder = RunFolder(config.out).checkpoints
    saved = checkpoint.to_go_on_from(folder) if resume else None
    checkpointing = Checkpointing(folder, dataclasses.asdict(config), config.checkpoint_every, saved)
    with compute_threads(config.threads):
        train(None, None, 0, config, seed=config.seed, team=team, checkpointing=checkpointing)
    return True


def _announce(team: Team | None, *, go: bool, resume: bool = False) -> None:
    if team is not None:
        team.broadcast(torch.tensor([int(go), int(resume)]), 0)


def _resumable(folder: RunFolder, config: RunConfig) -> Checkpoint | None:
    """The checkpoint to go on from, if there is one."""
    saved = checkpoint.latest(folder.checkpoints)
    if saved is None:
        warnings.warn(f"{folder.path}: holds no checkpoint to resume from; starting from the beginning", stacklevel=3)
        return None
    try:
        before = RunConfig.from_settings(saved.meta["settings"])
    except (InputError, KeyError, TypeError) as error:
        raise InputError(f"{saved.folder}: its settings are of another version: {error}") from None
    for item in dataclasses.fields(RunConfig):
        old, new = getattr(before, item.name), getattr(config, item.name)
        if old != new and item.name not in FREE_TO_CHANGE:
            remedy = f"give the options of the run again, or --config {folder.path / 'config.yaml'}"
            raise InputError(f"{folder.path}: cannot resume with {item.name} = {new}, the run has {old}; {remedy}")
    return saved


def _checkpointing(folder: RunFolder, config: RunConfig, saved: Checkpoint | None, data: Data) -> Checkpointing:
    """Where and how often to write checkpoints; raises if the one to go on from is of other data."""
    mark = digest(data) if saved is not None or config.checkpoint_every is not None else ""
    if saved is not None and saved.meta["data"] != mark:
        raise InputError(f"{saved.folder}: was written for other data than {config.dataset} has; {checkpoint.REMEDY}")
    return Checkpointing(folder.checkpoints, dataclasses.asdict(config), config.checkpoint_every, saved, mark)


def summarize(classifier: GAMLPClassifier, data: Data, config: RunConfig) -> dict[str, Any]:
    """The content of summary.json."""
    predicted = _predictions(classifier, data)
    return {
        "status": classifier.status_.name,
        "advice": classifier.status_.advice,
        "message": classifier.message_,
        **_accuracies(data, predicted),
        "dataset": config.dataset,
        "seed": config.seed,
        "method": config.method,
        **{name: getattr(classifier.config_, name) for name in ("augment", "hops", "weight_decay")},
        "layers": len(classifier.model_.linears),
        "parameters": sum(parameter.numel() for parameter in classifier.model_.parameters()),
        "epochs": len(classifier.history_),
        "seconds": classifier.seconds_,
        "bytes_sent": sum(record["bytes_sent"] for record in classifier.history_),
        "workers": worker_totals(classifier),
        "versions": {
            "pdadmm_g": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "confusion": confusion(data, predicted, classifier.classes_),
    }


def worker_totals(classifier: GAMLPClassifier) -> list[dict[str, Any]]:
    """For each worker its layers in the last stage, and what it did in all epochs that it took part in.

    Empty for methods without workers; and a resumed run may have had another number of them before.
    """
    records = [record["workers"] for record in classifier.history_]
    return [
        {"layers": layers, **{name: sum(workers[rank][name] for workers in own) for name in WORKER_FIGURES}}
        for rank, layers in enumerate(classifier.plan_)
        if (own := [workers for workers in records if rank < len(workers)])
    ]


def accuracies(classifier: GAMLPClassifier, data: Data) -> dict[str, float | None]:
    """Accuracy on each of the three masks, None where the data set has none."""
    return _accuracies(data, _predictions(classifier, data))


def _present(data: Data) -> list[str]:
    return [mask for mask in MASKS if mask in data and bool(data[mask].any())]


def _predictions(classifier: GAMLPClassifier, data: Data) -> Tensor:
    """The predicted label of every node that is in a mask; those of the others are not computed and -1."""
    result = torch.full((data.num_nodes,), -1)
    if masks := _present(data):
        nodes = torch.stack([data[mask] for mask in masks]).any(0).nonzero().view(-1)
        result[nodes] = torch.as_tensor(classifier.predict(data, nodes))
    return result


def _accuracies(data: Data, predicted: Tensor) -> dict[str, float | None]:
    result: dict[str, float | None] = {mask.replace("_mask", "_accuracy"): None for mask in MASKS}
    for mask in _present(data):
        nodes = data[mask]
        result[mask.replace("_mask", "_accuracy")] = float((predicted[nodes] == data.y[nodes]).double().mean())
    return result


def confusion(data: Data, predicted: Tensor, classes: NDArray[Any]) -> dict[str, Any] | None:
    """How often each class (rows) was taken for each class (columns) on the test nodes, or else on validation.

    None without such nodes, or with so many classes that nobody could read it.
    """
    for mask in ("test_mask", "val_mask"):
        if mask in data and bool((nodes := data[mask] & (data.y >= 0)).any()):
            true = data.y[nodes].numpy()
            names = np.union1d(classes, true)
            if len(names) > MAX_CONFUSION:
                return None
            counts = confusion_matrix(true, predicted[nodes].numpy(), labels=names)
            return {"nodes": mask.removesuffix("_mask"), "classes": names.tolist(), "counts": counts.tolist()}
    return None
