"""A run from its configuration to its folder: load the data, train, write; alone or as one of many processes."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch_geometric.data import Data

from ..config import RunConfig
from ..data.checks import check_training
from ..data.datasets import digest, load_dataset
from ..engine.launch import WorkerLostError
from ..engine.team import PeerLostError, Team
from ..errors import InputError
from ..estimator import GAMLPClassifier
from ..hardware import compute_threads
from ..status import Status
from ..training import checkpoint
from ..training.checkpoint import Checkpoint, Checkpointing
from ..training.records import Record
from ..training.train import train
from .folder import RunFolder
from .scoring import summarize
from .tensorboard import require_tensorboard

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
