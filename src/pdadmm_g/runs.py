"""A run folder: config.yaml, metrics.jsonl, summary.json and model.safetensors."""

from __future__ import annotations

import dataclasses
import json
import math
import platform
import shutil
import warnings
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

import torch
from torch_geometric.data import Data

from . import __version__
from .config import RunConfig
from .datasets import MASKS, check_training, load_dataset
from .engine import checkpoint
from .engine.launch import WorkerLostError
from .engine.team import PeerLostError, Team
from .errors import InputError
from .estimator import GAMLPClassifier, compute_threads
from .files import read_text
from .stage import Checkpointing, Record
from .status import Status
from .training import train

FILES = ("summary.json", "model.safetensors", "metrics.jsonl", "config.yaml")


class RunFolder:
    """A folder that is created when the first epoch ends and is finished once ``summary.json`` says how it went.

    So a run that fails on its input leaves nothing behind, and an old one is replaced only by one that trains.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self._metrics: IO[str] | None = None

    @property
    def finished(self) -> bool:
        """Does it hold a complete run? One that lost a worker is not complete: it can be resumed."""
        try:
            return bool(json.loads((self.path / "summary.json").read_text())["status"] != Status.PEER_LOST.name)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError, KeyError, TypeError):
            return True

    def start(self, config: RunConfig, history: Sequence[Record] = ()) -> None:
        """Make the folder, remove an earlier run's files and write the configuration and the history so far."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for name in FILES:
                (self.path / name).unlink(missing_ok=True)
            (self.path / "config.yaml").write_text(config.to_yaml(), encoding="utf-8")
            self._metrics = (self.path / "metrics.jsonl").open("w", encoding="utf-8")
        except OSError as error:
            raise InputError(f"{self.path}: cannot write the run folder: {error.strerror}") from None
        for record in history:
            self.append(record)

    def check_free(self, *, overwrite: bool) -> None:
        """Raise unless a run may be written here: not over a finished one, nor over files that are not a run's."""
        if overwrite or not self.path.exists():
            return
        remedy = "choose another --out or add --overwrite"
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
        """One line of metrics, readable by others at once."""
        assert self._metrics is not None
        # JSON has no NaN or infinity.
        plain = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in record.items()
        }
        print(json.dumps(plain, allow_nan=False), file=self._metrics, flush=True)

    def finish(self, summary: dict[str, Any], classifier: GAMLPClassifier | None) -> None:
        """Write the model, if there is one, then the summary that marks the run as finished."""
        assert self._metrics is not None
        self._metrics.close()
        if classifier is not None:
            classifier.save(self.path / "model.safetensors")
            shutil.rmtree(self.checkpoints, ignore_errors=True)
        write_atomically(self.path / "summary.json", json.dumps(summary, indent=2) + "\n")

    def history(self, epochs: int) -> tuple[Record, ...]:
        """The records of the first ``epochs`` epochs."""
        path = self.path / "metrics.jsonl"
        lines = read_text(path, "the metrics up to the checkpoint", largest=1 << 32).splitlines()[:epochs]
        try:
            records = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            raise InputError(f"{path}: cannot read the metrics up to the checkpoint: not JSON lines") from None
        for number, record in enumerate(records, start=1):
            if not _is_record(record, number):
                raise InputError(f"{path}: line {number} is not the record of epoch {number}")
        if len(records) < epochs:
            raise InputError(f"{path}: has {len(records)} epochs, the checkpoint was written after {epochs}")
        return tuple(records)

    def config(self) -> RunConfig:
        """The configuration that the run was made with."""
        return RunConfig.load(self.path / "config.yaml")

    def classifier(self) -> GAMLPClassifier:
        """The trained estimator."""
        if not self.path.is_dir():
            raise InputError(f"{self.path}: no such run folder")
        return GAMLPClassifier.load(self.path / "model.safetensors")


#: What a worker did in one epoch.
WORKER_FIGURES = ("compute_seconds", "wait_seconds", "pack_seconds", "bytes_p", "bytes_q")


def _is_record(record: Any, epoch: int) -> bool:
    """Is it a line of metrics, as far as anything of ours reads it again?"""
    try:
        json.dumps(record, allow_nan=False)
    except ValueError:
        return False
    if not isinstance(record, dict) or record.get("epoch") != epoch or not isinstance(record.get("workers"), list):
        return False
    figures = [record.get("seconds"), record.get("bytes_sent")]
    for worker in record["workers"]:
        figures += [worker.get(name) for name in WORKER_FIGURES] if isinstance(worker, dict) else [None]
    return all(isinstance(figure, (int, float)) and abs(figure) < 1e18 for figure in figures)


#: Settings that may differ between a run and its resumption: they do not change the trained weights.
FREE_TO_CHANGE = ("workers", "plan", "timeout", "out", "data_root", "checkpoint_every")


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
        folder.check_free(overwrite=overwrite)
        checkpointing = _checkpointing(folder, config, resume)
        data = load_dataset(config.dataset, config.data_root)
        check_training(data, culprit=config.dataset)
    except InputError:
        _announce(team, go=False)
        raise
    _announce(team, go=True, epochs=len(checkpointing.history))

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
    go, epochs = team.broadcast(torch.zeros(2, dtype=torch.int64), 0).tolist()
    if not go:
        return False
    folder = RunFolder(config.out).checkpoints
    resume = checkpoint.latest(folder) if epochs else None
    checkpointing = Checkpointing(folder, config.checkpoint_every, resume, tuple({} for _ in range(epochs)))
    with compute_threads(config.threads):
        train(None, None, 0, config, seed=config.seed, team=team, checkpointing=checkpointing)
    return True


def _announce(team: Team | None, *, go: bool, epochs: int = 0) -> None:
    if team is not None:
        team.broadcast(torch.tensor([int(go), epochs]), 0)


def _checkpointing(folder: RunFolder, config: RunConfig, resume: bool) -> Checkpointing:
    """Where to write checkpoints, and the one to go on from if that is wanted and there is one."""
    saved = checkpoint.latest(folder.checkpoints) if resume else None
    if saved is None:
        if resume:
            warnings.warn(
                f"{folder.path}: holds no checkpoint to resume from; starting from the beginning", stacklevel=3
            )
        return Checkpointing(folder.checkpoints, config.checkpoint_every)
    before = folder.config()
    for item in dataclasses.fields(RunConfig):
        old, new = getattr(before, item.name), getattr(config, item.name)
        if old != new and item.name not in FREE_TO_CHANGE:
            raise InputError(f"{folder.path}: cannot resume with {item.name} = {new}, the run has {old}")
    history = folder.history(saved.meta["total_epochs"])
    return Checkpointing(folder.checkpoints, config.checkpoint_every, saved, history)


def summarize(classifier: GAMLPClassifier, data: Data, config: RunConfig) -> dict[str, Any]:
    """The content of summary.json."""
    return {
        "status": classifier.status_.name,
        "advice": classifier.status_.advice,
        "message": classifier.message_,
        **accuracies(classifier, data),
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
    }


def worker_totals(classifier: GAMLPClassifier) -> list[dict[str, Any]]:
    """For each worker its layers in the last stage, and what it did over the whole run."""
    records = [record["workers"] for record in classifier.history_]
    return [
        {"layers": layers, **{name: _total(records, rank, name) for name in WORKER_FIGURES}}
        for rank, layers in enumerate(classifier.plan_)
    ]


def _total(records: list[list[dict[str, Any]]], rank: int, name: str) -> float:
    """A run may have had fewer workers before it was resumed."""
    return sum(workers[rank][name] for workers in records if rank < len(workers))


def accuracies(classifier: GAMLPClassifier, data: Data) -> dict[str, float | None]:
    """Accuracy on each of the three masks, None where the data set has none."""
    present = [mask for mask in MASKS if mask in data and bool(data[mask].any())]
    nodes = torch.stack([data[mask] for mask in present]).any(0).nonzero().view(-1) if present else None
    result: dict[str, float | None] = {mask.replace("_mask", "_accuracy"): None for mask in MASKS}
    if nodes is not None:
        right = torch.zeros(data.num_nodes, dtype=torch.float64)
        right[nodes] = torch.as_tensor(classifier.predict(data, nodes) == data.y[nodes].numpy(), dtype=torch.float64)
        result |= {mask.replace("_mask", "_accuracy"): float(right[data[mask]].mean()) for mask in present}
    return result


def write_atomically(path: Path, text: str) -> None:
    """Write a whole file or nothing: under a temporary name, then renamed. Links and devices stay what they are."""
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        temporary = target.with_name(target.name + ".tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror}") from None
    except ValueError:  # a name with a null byte, or text that has no UTF-8
        raise InputError(f"{path}: cannot write: the name or the text is not valid") from None
