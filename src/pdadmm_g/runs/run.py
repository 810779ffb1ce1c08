"""A run from its configuration to its folder, alone or as one of many processes; estimators as run folders."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import torch

from ..config import RunConfig
from ..engine.team import PeerLostError, Team, agreed
from ..engine.watchdog import WorkerLostError
from ..errors import InputError, is_lack_of_memory
from ..estimator import AnyEstimator, Estimator, estimator_for, warm_start
from ..graph.checks import check_training
from ..graph.datasets import digest, load_dataset, require_edge_table
from ..graph.examples import with_parts
from ..graph.graph import MASKS, Graph
from ..graph.readers import graph_alone
from ..graph.shards import is_sharded
from ..graph.targets import target_of
from ..metrics import Estimate
from ..training import checkpoint
from ..training.checkpoint import Checkpointing
from ..training.fit import check_shards, trains
from ..training.prepare import WarmStart, split_rows
from ..training.records import OnEpoch, Record, Say
from ..training.train import train
from ..utils import compute_threads, run_tasks, task
from .folder import DIGEST, Importance, RunFolder
from .scoring import figures, summarize
from .sharded import Shards, arranged

TRAINED = "holds the trained model"
SETTLED = "already holds this run, finished; nothing is left to train"


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

    Under a launcher all members of the ``team`` call it. Those that are not the first get nothing, and where the run
    cannot begin an error without a text. Going on with a run that is finished trains nothing: its summary is returned,
    and ``say`` is told so.
    """
    config, start = started(config)
    assert config.out is not None
    folder, say, leads = RunFolder(config.out), say or (lambda _: None), team is None or team.rank == 0
    data: OneGraph | Shards
    if is_sharded(config.dataset):
        config = arranged(config, team)
        data = Shards(config, say, team)
    else:
        data = OneGraph(config, start, team)
    summary, settings = dict[str, Any](), dataclasses.asdict(config)
    with ExitStack() as stack:
        tasks = stack.enter_context(run_tasks())
        if isinstance(data, OneGraph):
            tasks.listeners.append(folder.note)

        def begin() -> Checkpointing | None:
            """What the run goes on from; None where nothing is left to train."""
            saved = None
            if leads:
                stack.enter_context(folder.held())
                folder.check_free(config, overwrite=overwrite, resume=resume)
                if resume and not overwrite and folder.settled(config):
                    return None
                saved = checkpoint.resumable(folder.checkpoints, config) if resume else None
            with task("reading"):
                data.check()
                needed = leads and (saved is not None or config.checkpoint_every is not None)
                digest = data.digest() if needed else ""
            if saved is not None and saved.meta.data != digest:
                text = f"{saved.folder}: was written for other data than {config.dataset} has; {checkpoint.REMEDY}"
                raise InputError(text)
            return Checkpointing(folder.checkpoints, settings, config.checkpoint_every, saved, digest)

        try:
            checkpointing = begin() if team is None else agreed(team, begin)
        except InputError:
            if leads:
                raise
            raise InputError("") from None
        if team is not None:  # the first member alone knows what is in the folder
            going_on = checkpointing is not None and checkpointing.resume is not None
            trains, resumes = team.broadcast(torch.tensor([checkpointing is not None, going_on]), 0).tolist()
            if not leads:
                told = {"settings": settings, "every": config.checkpoint_every}
                checkpointing = Checkpointing.joined(folder.checkpoints, resume=resumes, **told) if trains else None
        if checkpointing is not None:
            folder.begin(config, checkpointing.history)

        def record_epoch(record: Record) -> object:
            folder.append(record)
            return None if on_epoch is None else on_epoch(record)

        def keep(estimator: Estimator) -> None:
            estimator.times_ = tasks.times()
            summary.update(summarize(estimator, config), **data.facts())
            folder.keep(estimator, summary)

        try:
            if checkpointing is not None:
                scores = data.train(checkpointing, record_epoch, keep)
                if leads:
                    folder.finish(summary | {"times": tasks.times()} | scores)
            elif leads:
                _settle(config, folder, say, data)
        except (WorkerLostError, PeerLostError) as error:
            folder.lose(error)
            raise
        except KeyboardInterrupt:
            if leads and folder.unscored and (summary or checkpointing is None):
                say(f"{folder.path}: {TRAINED}; --resume scores it")
            raise
        return folder.summary() if leads else {}


def _settle(config: RunConfig, folder: RunFolder, say: Say, data: OneGraph | Shards) -> None:
    """Score a run that is trained already, if it is not scored yet."""
    if not folder.unscored:
        say(f"{folder.path}: {SETTLED}")
        return
    summary = folder.summary()
    with task("reading"):
        digest = data.digest()
    folder.check_data(config, summary, digest)
    say(f"{folder.path}: {TRAINED}, which is scored now")
    folder.finish(summary | {"dataset": config.dataset} | data.scores(folder))


class OneGraph:
    """Data that one process has whole: the only one, or the first of a team."""

    def __init__(self, config: RunConfig, start: WarmStart | None, team: Team | None) -> None:
        self.config, self.start, self.team = config, start, team

    @functools.cached_property
    def graph(self) -> Graph:
        """The data set."""
        config, target = self.config, self.config.asked_target
        return load_dataset(
            config.dataset, config.data_root, edges=config.edges, target=target, columns=config.columns,
            **config.naming(),
        )  # fmt: skip

    def check(self) -> None:
        """Raise unless it can be trained on."""
        if self.team is not None and self.team.rank > 0:
            return
        config, data = self.config, self.graph
        if config.labels is not None and data.y is None:
            raise InputError(f"{config.dataset}: there is no column {config.labels[0]!r}, which --labels names")
        known = None if self.start is None else self.start.nodes
        settings = config.resolved(target_of(data))
        trained, *_ = split_rows(data, settings, seed=config.seed, culprit=config.dataset, known=known, crosses=True)
        check_training(trained, culprit=config.dataset)
        if config.augment != "none":
            require_edge_table(data, config.dataset, ", or leave the graph out with --augment none")
        check_shards(config, int(trained.train_mask.sum()))

    def digest(self) -> str:
        """By which a run knows its data."""
        return digest(self.graph)

    def facts(self) -> dict[str, Any]:
        """What a summary says of the data before the model is scored."""
        return {DIGEST: self.digest()}

    def train(
        self, checkpointing: Checkpointing, on_epoch: OnEpoch, keep: Callable[[Estimator], None]
    ) -> dict[str, Any]:
        """Train, ``keep`` the estimator, and score it; on a member of a team that is not the first, help to train."""
        config, team = self.config, self.team
        if team is not None and team.rank > 0:
            if trains(team):
                with compute_threads(config.threads):
                    train(None, None, 0, config, seed=config.seed, team=team, checkpointing=checkpointing)
            return {}
        estimator = estimator_for(config, config.seed)
        estimator._fit(self.graph, None, on_epoch=on_epoch, checkpointing=checkpointing, team=team, start=self.start)
        keep(estimator)
        return self._scores(estimator)

    def scores(self, folder: RunFolder) -> dict[str, Any]:
        """Those of the model of a run."""
        return self._scores(folder.classifier())

    def _scores(self, estimator: Estimator) -> dict[str, Any]:
        try:
            with task("evaluating"):
                return figures(estimator, with_parts(self.graph, self.config, estimator.nodes_))
        except (MemoryError, RuntimeError) as error:
            if not is_lack_of_memory(error):
                raise
            why = f"{self.config.out}: {TRAINED}, which there is not enough memory to score"
            raise InputError(f"{why}: use it as it is, or score it with --resume where there is more") from None


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
        if estimator.importance_ is not None:
            Importance.of(estimator.importance_).save(folder.path)


def _split(estimator: Estimator, data: Graph) -> Graph:
    """The checked graph with the nodes that trained and validated."""
    data = with_parts(estimator._checked(data), estimator.config_, estimator.nodes_)
    if data.y is not None and not any(mask in data and bool(data[mask].any()) for mask in MASKS):
        what = "nothing says which nodes train, validate or test, and it has none of those of training"
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
    estimator.estimate_ = msgspec.convert(summary.get("estimate"), Estimate | None)
    return estimator
