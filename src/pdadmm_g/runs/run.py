"""A run from its configuration to its folder, alone or as one of many processes; estimators as run folders."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from enum import IntEnum
from pathlib import Path
from typing import Any

import torch

from ..config import RunConfig
from ..data.checks import check_training
from ..data.datasets import digest, load_dataset, require_edge_table
from ..data.examples import one_split, with_masks
from ..data.graph import MASKS, Graph
from ..data.readers import graph_alone
from ..data.targets import target_of
from ..engine.team import PeerLostError, Team
from ..engine.watchdog import WorkerLostError
from ..errors import InputError, is_lack_of_memory
from ..estimator import AnyEstimator, Estimator, estimator_for, warm_start
from ..training import checkpoint
from ..training.checkpoint import Checkpointing
from ..training.fit import check_shards, take_part
from ..training.prepare import split_rows
from ..training.records import OnEpoch, Say
from ..training.warm_start import WarmStart
from ..utils import run_tasks, task
from .folder import DIGEST, RunFolder, require_tensorboard
from .scoring import figures, summarize

TRAINED = "holds the trained model"
SETTLED = "already holds this run, finished; nothing is left to train"


class Begin(IntEnum):
    """What the first member of a team tells the others once it has looked at folder and data."""

    REFUSED = 0
    FRESH = 1
    RESUMED = 2
    #: All has been trained already.
    SETTLED = 3


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
    say: Say | None = None,
    team: Team | None = None,
) -> dict[str, Any]:
    """Load the data, train, write the run folder; return the summary.

    Under a launcher of many processes this is what the first member of the ``team`` does, see :func:`join_run`.
    Going on with a run that is finished trains nothing: its summary is returned, and ``say`` is told so.
    """
    config, start = started(config)
    assert config.out is not None
    folder, say = RunFolder(config.out), say or (lambda _: None)
    with ExitStack() as stack:
        tasks = stack.enter_context(run_tasks())
        tasks.listeners.append(folder.note)
        try:
            stack.enter_context(folder.held())
            folder.check_free(config, overwrite=overwrite, resume=resume)
            if resume and not overwrite and folder.settled(config):
                _announce(team, Begin.SETTLED)
                return _settled(config, folder, say)
            with task("reading"):
                data, checkpointing = _opened(config, folder, resume=resume)
        except InputError:
            _announce(team, Begin.REFUSED)
            raise
        _announce(team, Begin.FRESH if checkpointing.resume is None else Begin.RESUMED)
        folder.begin(config, checkpointing.history)
        classifier, told = estimator_for(config, config.seed), folder.listening(on_epoch)
        try:
            classifier._fit(data, None, on_epoch=told, checkpointing=checkpointing, team=team, start=start)
        except (WorkerLostError, PeerLostError) as error:
            folder.lose(error)
            raise
        summary = summarize(classifier, config) | {DIGEST: digest(data)}
        folder.keep(classifier, summary)
        summary |= _scores(classifier, data, config, folder, say)
        summary["times"] = tasks.times()
        folder.finish(summary)
    return summary


def _scores(classifier: Estimator, data: Graph, config: RunConfig, folder: RunFolder, say: Say) -> dict[str, Any]:
    """What the model in the folder is worth. It is there already: whatever happens here, it can be used and scored."""
    try:
        with task("evaluating"):
            return figures(classifier, with_masks(data, config, seed=config.seed)[0])
    except KeyboardInterrupt:
        say(f"{folder.path}: {TRAINED}; --resume scores it")
        raise
    except (MemoryError, RuntimeError) as error:
        if not is_lack_of_memory(error):
            raise
        why = f"{folder.path}: {TRAINED}, which there is not enough memory to score"
        raise InputError(f"{why}: use it as it is, or score it with --resume where there is more") from None


def _settled(config: RunConfig, folder: RunFolder, say: Say) -> dict[str, Any]:
    @functools.cache
    def data() -> Graph:
        with task("reading"):
            return _load(config)

    return settled_summary(
        config, folder, say, lambda: digest(data()), lambda: _scores(folder.classifier(), data(), config, folder, say)
    )


def settled_summary(
    config: RunConfig,
    folder: RunFolder,
    say: Say,
    digest: Callable[[], str],
    scores: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    """The summary of a run that is trained already, with the ``scores`` that it may lack."""
    summary = folder.summary()
    if not folder.unscored:
        say(f"{folder.path}: {SETTLED}")
        return summary
    folder.check_data(config, summary, digest())
    say(f"{folder.path}: {TRAINED}, which is scored now")
    summary |= {"dataset": config.dataset} | scores()
    folder.finish(summary)
    return summary


def _opened(config: RunConfig, folder: RunFolder, *, resume: bool) -> tuple[Graph, Checkpointing]:
    """The data of a run that may be written to this folder, and what it goes on from."""
    saved = checkpoint.resumable(folder.checkpoints, config) if resume else None
    data = _load(config)
    if config.labels is not None and data.y is None:
        raise InputError(f"{config.dataset}: there is no column {config.labels[0]!r}, which --labels names")
    trained, *_ = split_rows(data, config.resolved(target_of(data)), seed=config.seed, culprit=config.dataset)
    check_training(trained, culprit=config.dataset)
    if config.augment != "none":
        require_edge_table(data, config.dataset, ", or leave the graph out with --augment none")
    check_shards(config, int(trained.train_mask.sum()))
    needed = saved is not None or config.checkpoint_every is not None
    checkpointing = Checkpointing.of_run(folder.checkpoints, config, saved, digest(data) if needed else "")
    if config.tensorboard:
        require_tensorboard()
    return data, checkpointing


def _load(config: RunConfig) -> Graph:
    target = config.asked_target
    return load_dataset(config.dataset, config.data_root, edges=config.edges, target=target, labels=config.labels)


def join_run(config: RunConfig, team: Team) -> bool:
    """What the other members of the team do while the first one is in :func:`train_run`. False if it gave up."""
    config = config.resolved()
    assert config.out is not None
    begin = Begin(int(team.broadcast(torch.tensor(0), 0)))
    if begin in (Begin.REFUSED, Begin.SETTLED):
        return begin is Begin.SETTLED
    checkpointing = Checkpointing.joined(
        RunFolder(config.out).checkpoints, resume=begin is Begin.RESUMED, settings=dataclasses.asdict(config),
        every=config.checkpoint_every,
    )  # fmt: skip
    take_part(config, seed=config.seed, team=team, checkpointing=checkpointing)
    return True


def _announce(team: Team | None, begin: Begin) -> None:
    if team is not None:
        team.broadcast(torch.tensor(int(begin)), 0)


# -------------------------------------------------------------------------------- estimators that were fitted in Python


def save_run(estimator: Estimator, path: str | Path, data: Graph | None = None) -> None:
    """Write what ``pdadmm-g train`` would have written, with the accuracies on ``data`` where they are given.

    It replaces a finished run, as a file of that name would be replaced.
    """
    folder = RunFolder(path)
    graph = None if data is None else _split(estimator, graph_alone(data, "data", estimator.config_.target))
    with folder.held():
        folder.check_replaceable()
        settings = dict(vars(estimator.config_))
        if callable(settings["scoring"]):
            settings["scoring"] = "auto"  # as in a model file, which has no place for a function
        # Python does not know where its data come from.
        config = RunConfig(**settings, dataset="", seed=estimator.seed_ or 0, out=str(path))
        summary = summarize(estimator, config)
        if graph is not None:
            summary |= figures(estimator, graph)
        folder.begin(config, estimator.history_)
        folder.keep(estimator, summary)
        folder.finish(summary)


def _split(estimator: Estimator, data: Graph) -> Graph:
    """The checked graph with the nodes that trained and validated, where it is the one of which these were drawn.

    That it is one can tell by the sentences on it: they have the numbers of its labels.
    """
    data, config = estimator._checked(data), estimator.config_
    drawn, reasons = with_masks(data, config, seed=estimator.seed_ or 0)
    if {*reasons} <= {*estimator.choices_}:
        return drawn
    data, _ = one_split(data, config.split)
    if data.y is not None and not any(mask in data for mask in MASKS):
        what = "nothing says which nodes train, validate or test, and its labels are not those of training"
        warnings.warn(f"data: {what}: there are no accuracies; give it masks (in a table: 'split')", stacklevel=4)
    return data


def load_run(kind: type[AnyEstimator], path: str | Path) -> AnyEstimator:
    """The estimator of a run folder, with the history of its training."""
    folder = RunFolder(path)
    estimator = kind.load(folder.model)
    estimator.history_ = folder.history()
    if (folder.path / "config.yaml").exists():
        estimator.seed_ = estimator.random_state = folder.config().seed
    if estimator.history_ and estimator.history_[-1]["workers"]:
        estimator.plan_ = tuple(worker["layers"] for worker in estimator.history_[-1]["workers"])
    summary = folder.summary()
    estimator.message_, estimator.times_ = summary.get("message", ""), summary.get("times", {})
    estimator.choices_ = tuple(summary.get("choices", ()))
    return estimator
