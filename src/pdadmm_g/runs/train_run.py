"""A run from its configuration to its folder: load the data, train, write; alone or as one of many processes."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ..config import RunConfig
from ..data.checks import check_training
from ..data.datasets import load_dataset, require_edge_table
from ..data.graph import Graph
from ..data.splits import with_masks
from ..engine.team import PeerLostError, Team
from ..engine.watchdog import WorkerLostError
from ..errors import InputError
from ..estimator import GAMLPClassifier, warm_start
from ..status import Status
from ..tasks import run_tasks, task
from ..training import checkpoint
from ..training.callback import OnEpoch
from ..training.checkpoint import Checkpointing
from ..training.fit import check_shards, take_part
from ..training.prepare import split_rows
from ..training.records import Record
from ..training.warm_start import WarmStart
from .folder import RunFolder
from .scoring import summarize
from .tensorboard import require_tensorboard


def started(config: RunConfig) -> tuple[RunConfig, WarmStart | None]:
    """The resolved ``config``, and the network that training starts from, if it does, with the stages that are left."""
    start = warm_start(config.init)
    return config.resolved() if start is None else start.staged(config.resolved()), start


def train_run(
    config: RunConfig,
    *,
    overwrite: bool = False,
    resume: bool = False,
    on_epoch: OnEpoch | None = None,
    team: Team | None = None,
) -> dict[str, Any]:
    """Load the data, train, write the run folder; return the summary.

    Under a launcher of many processes this is what the first member of the ``team`` does, see :func:`join_run`.
    """
    config, start = started(config)
    assert config.out is not None
    folder = RunFolder(config.out)
    with run_tasks() as tasks:
        tasks.listeners.append(folder.note)
        try:
            with task("reading"):
                data, checkpointing = _opened(config, folder, overwrite=overwrite, resume=resume)
        except InputError:
            _announce(team, go=False)
            raise
        _announce(team, go=True, resume=checkpointing.resume is not None)

        def record_epoch(record: Record) -> object:
            if not folder.started:
                folder.start(config, checkpointing.history)
            folder.append(record)
            return None if on_epoch is None else on_epoch(record)

        classifier = GAMLPClassifier(**config.model_settings(), random_state=config.seed)
        try:
            classifier._fit(data, None, on_epoch=record_epoch, checkpointing=checkpointing, team=team, start=start)
        except (WorkerLostError, PeerLostError) as error:
            if folder.started:
                lost = {"status": Status.PEER_LOST.name, "advice": Status.PEER_LOST.advice, "message": str(error)}
                folder.finish(lost, None)
            raise
        if not folder.started:  # interrupted in the very first epoch, or resumed at the very end
            folder.start(config, checkpointing.history)
        with task("evaluating"):
            summary = summarize(classifier, with_masks(data, config, seed=config.seed)[0], config)
        summary["times"] = tasks.times()
        folder.finish(summary, classifier)
    return summary


def _opened(config: RunConfig, folder: RunFolder, *, overwrite: bool, resume: bool) -> tuple[Graph, Checkpointing]:
    """The data of a run that may be written to this folder, and what it goes on from."""
    folder.check_free(config, overwrite=overwrite, resume=resume)
    saved = checkpoint.resumable(folder.checkpoints, config) if resume else None
    data = load_dataset(config.dataset, config.data_root, edges=config.edges)
    trained, *_ = split_rows(data, config, seed=config.seed, culprit=config.dataset)
    check_training(trained, culprit=config.dataset)
    if config.needs_graph or config.sees_copies:
        require_edge_table(data, config.dataset)
    elif config.augment != "none":
        require_edge_table(data, config.dataset, ", or leave the graph out with --augment none")
    check_shards(config, int(trained.train_mask.sum()))
    checkpointing = Checkpointing.of_run(folder.checkpoints, config, saved, data)
    if config.tensorboard:
        require_tensorboard()
    return data, checkpointing


def join_run(config: RunConfig, team: Team) -> bool:
    """What the other members of the team do while the first one is in :func:`train_run`. False if it gave up."""
    config = config.resolved()
    assert config.out is not None
    go, resume = team.broadcast(torch.zeros(2, dtype=torch.int64), 0).tolist()
    if not go:
        return False
    checkpointing = Checkpointing.joined(
        RunFolder(config.out).checkpoints, dataclasses.asdict(config), config.checkpoint_every, resume=bool(resume)
    )
    take_part(config, seed=config.seed, team=team, checkpointing=checkpointing)
    return True


def _announce(team: Team | None, *, go: bool, resume: bool = False) -> None:
    if team is not None:
        team.broadcast(torch.tensor([int(go), int(resume)]), 0)
