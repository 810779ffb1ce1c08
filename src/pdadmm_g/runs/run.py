"""A run from its configuration to its folder, alone or as one of many processes; estimators as run folders."""

from __future__ import annotations

import dataclasses
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import torch

from ..config import RunConfig
from ..engine.launch import run_processes, tell
from ..engine.team import PeerLostError, Team, agreed, same
from ..engine.watchdog import WorkerLostError
from ..errors import InputError, is_lack_of_memory, naming
from ..estimator import AnyEstimator, Estimator, estimator_for, warm_start
from ..graph.datasets import digest, load_dataset, require_edge_table
from ..graph.examples import with_parts
from ..graph.graph import MASKS, Graph
from ..graph.readers import graph_alone
from ..graph.shards import ShardFolder, is_sharded
from ..metrics import Estimate
from ..training import checkpoint
from ..training.checkpoint import Checkpoint, Checkpointing
from ..training.fit import assist, heard, tell_epoch
from ..training.prepare import WarmStart
from ..training.records import OnEpoch, Record, Say
from ..utils import Event, Tasks, run_tasks, task, temporary_folder, usable_cores
from .folder import DIGEST, Importance, RunFolder
from .scoring import figures, summarize

TRAINED = "holds the trained model"
SETTLED = "already holds this run, finished; nothing is left to train"


def started(config: RunConfig) -> tuple[RunConfig, WarmStart | None]:
    """The resolved ``config``, and the network that training starts from, if it does, with the stages that are left."""
    start = warm_start(config.init)
    return config.resolved() if start is None else start.staged(config.resolved()), start


def arranged(config: RunConfig, processes: int) -> RunConfig:
    """The resolved ``config`` with numbers of workers and shards for a folder of shards and so many processes."""
    if config.workers != "auto":
        return config
    number = ShardFolder(config.dataset).whole.shards
    shards = config.shards or max(each for each in range(1, processes + 1) if number % each == processes % each == 0)
    return config.but(workers=max(1, processes // shards), shards=shards)


def opened(dataset: str, team: Team) -> Graph | None:
    """The part of a folder of shards that this process has; None on one that has layers alone. All call this."""
    folder = agreed(team, lambda: ShardFolder(dataset))
    same(team, folder.whole.fingerprint, str(folder.path / "description.json"))
    return agreed(team, lambda: folder.graph(team.rows) if team.chain.rank == 0 else None)


def read(config: RunConfig, team: Team) -> Graph | None:
    """The data set: whole on the first process, or its part on the first of each chain; None on all others."""
    if is_sharded(config.dataset):
        return opened(config.dataset, team)

    def whole() -> Graph | None:
        if team.rank > 0:
            return None
        data = load_dataset(
            config.dataset, config.data_root, edges=config.edges, target=config.asked_target, columns=config.columns,
            **config.naming(),
        )  # fmt: skip
        if config.labels is not None and data.y is None:
            raise InputError(f"{config.dataset}: there is no column {config.labels[0]!r}, which --labels names")
        if config.augment != "none":
            require_edge_table(data, config.dataset, ", or leave the graph out with --augment none")
        return data

    return agreed(team, whole)


def train_run(
    config: RunConfig,
    *,
    overwrite: bool = False,
    resume: bool = False,
    on_epoch: OnEpoch | None = None,
    say: Say | None = None,
    team: Team | None = None,
) -> dict[str, Any]:
    """Read the data, train, write the run folder; return the summary.

    All members of a ``team`` call it: each reads what it has of the data, they choose and train together, and the first
    one writes. The others get nothing. Going on with a finished run trains nothing: its summary is returned, and
    ``say`` is told so.
    """
    config, start = started(config)
    if team is None:
        if is_sharded(config.dataset):
            shards = config.shards or 1
            cores = max(shards, usable_cores() // config.threads)
            config = arranged(config, min(cores, shards * config.layers) if config.shards else cores)
        if config.workers != "auto" and config.processes > 1:
            return _in_processes(config, overwrite, resume, on_epoch, say)
    assert config.out is not None
    folder, say, group = RunFolder(config.out), say or (lambda _: None), team or Team()
    if is_sharded(config.dataset):
        config = arranged(config, group.size)
        agreed(group, lambda: ShardFolder(config.dataset).check_parts(config.shards or 1))
        group.arrange(config.shards or 1)
    leads, settings, summary = group.rank == 0, dataclasses.asdict(config), dict[str, Any]()
    with ExitStack() as stack:
        tasks = stack.enter_context(run_tasks())

        def claim() -> tuple[Checkpoint | None, bool]:
            """The checkpoint to go on from, and whether anything is left to train."""
            if not leads:
                return None, True
            tasks.listeners.append(folder.note)
            stack.enter_context(folder.held())
            folder.check_free(config, overwrite=overwrite, resume=resume)
            if resume and not overwrite and folder.settled(config):
                return None, False
            return checkpoint.resumable(folder.checkpoints, config) if resume else None, True

        saved, is_left = agreed(group, claim)
        flags = [saved is not None, is_left, is_left or folder.unscored]
        goes_on, is_left, scores = group.broadcast(torch.tensor(flags), 0).tolist()
        if not scores:
            say(f"{folder.path}: {SETTLED}")
            return folder.summary() if leads else {}
        with task("reading"):
            data = read(config, group)
            known = (data.get("digest") or digest(data)) if leads and data is not None else ""

        def begin() -> Checkpointing:
            if not leads:
                own = {"settings": settings, "every": config.checkpoint_every}
                return Checkpointing.joined(folder.checkpoints, resume=goes_on, **own)
            if saved is not None and saved.meta.data != known:
                text = f"{saved.folder}: was written for other data than {config.dataset} has; {checkpoint.REMEDY}"
                raise InputError(text)
            return Checkpointing(folder.checkpoints, settings, config.checkpoint_every, saved, known)

        def record_epoch(record: Record) -> object:
            folder.append(record)
            return None if on_epoch is None else on_epoch(record)

        try:
            if is_left:
                checkpointing = agreed(group, begin)
                if data is None:
                    assist(group, config, config.seed, checkpointing)
                    return {}
                estimator: Estimator = estimator_for(config, config.seed)
                if leads:
                    folder.begin(config, checkpointing.history)
                with naming(config.dataset):
                    estimator._fit(
                        data, None, on_epoch=record_epoch if leads else None, checkpointing=checkpointing, team=team,
                        start=start,
                    )  # fmt: skip
                estimator.times_ = tasks.times()
                if leads:
                    summary = summarize(estimator, config) | {DIGEST: known}
                    folder.keep(estimator, summary)
            elif data is not None:
                estimator, summary = folder.classifier(), folder.summary()
                if leads:
                    folder.check_data(config, summary, known)
                    say(f"{folder.path}: {TRAINED}, which is scored now")
                    summary["dataset"] = config.dataset
            if data is None:
                return {}
            found = _scores(config, estimator, data)
            if leads:
                times = {"times": tasks.times()} if is_left else {}
                folder.finish(summary | times | found)
        except (WorkerLostError, PeerLostError) as error:
            if leads:
                folder.lose(error)
            raise
        except KeyboardInterrupt:
            if leads and folder.unscored and (summary or not is_left):
                say(f"{folder.path}: {TRAINED}; --resume scores it")
            raise
        return folder.summary() if leads else {}


def _in_processes(
    config: RunConfig, overwrite: bool, resume: bool, on_epoch: OnEpoch | None, say: Say | None
) -> dict[str, Any]:
    """The same program, started on this machine as often as there are workers and shards, and its summary."""
    assert config.out is not None
    run, history = RunFolder(config.out), list[Record]()
    run.check_free(config, overwrite=overwrite, resume=resume)
    with run_tasks() as tasks, temporary_folder() as folder:

        def on_note(rank: int, note: dict[str, Any]) -> object:
            if "task" in note:
                tasks.tell(Event(**note["task"]))
            elif "say" in note and say is not None:
                say(note["say"])
            return heard(rank, note, history, on_epoch)

        try:
            run_processes(
                train_as_process, folder, config.processes, device=config.device, timeout=config.timeout,
                shards=config.shards or 1, on_note=on_note, settings=vars(config), overwrite=overwrite, resume=resume,
                started=time.time() - sum(tasks.times().values()),
            )  # fmt: skip
        except WorkerLostError as error:
            run.lose(error)
            raise
    return run.summary()


def train_as_process(
    team: Team, _: Path, *, settings: dict[str, Any], overwrite: bool, resume: bool, started: float
) -> None:
    """Train as one of these processes: the first one tells of it."""
    leads = team.rank == 0
    with Tasks(seconds={"starting": time.time() - started}) as tasks:
        if leads:
            tasks.listeners.append(lambda event: tell({"task": dataclasses.asdict(event)}))
        train_run(
            RunConfig(**settings), overwrite=overwrite, resume=resume, on_epoch=tell_epoch if leads else None,
            say=(lambda line: tell({"say": line})) if leads else None, team=team,
        )  # fmt: skip


def _scores(config: RunConfig, estimator: Estimator, data: Graph) -> dict[str, Any]:
    try:
        with task("evaluating"):
            return figures(estimator, with_parts(data, config, estimator.nodes_))
    except (MemoryError, RuntimeError) as error:
        if not is_lack_of_memory(error):
            raise
        why = f"{config.out}: {TRAINED}, which there is not enough memory to score"
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
