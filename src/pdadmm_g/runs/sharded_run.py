"""Runs on a folder of shards: train into a run folder, predict and score, each in as many processes as are wanted.

Alone, in processes that are started here, or as one of those of another launcher: the same task, given a team.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..config import ModelConfig, RunConfig
from ..data.shards import ShardFolder
from ..engine.agreement import agreed
from ..engine.launch import run_workers
from ..engine.plan import Plan
from ..engine.team import PeerLostError, Team
from ..engine.watchdog import WorkerLostError
from ..errors import InputError
from ..estimator import Estimator, GAMLPClassifier, parameters
from ..training import checkpoint
from ..training.checkpoint import Checkpointing
from ..training.mesh_choice import choose_mesh
from ..training.records import OnEpoch, Record, Say, take_in
from ..training.sharded import ShardedResult, fit_sharded, with_defaults
from ..training.train import TrainingResult
from ..utils import run_tasks, task, temporary_folder, usable_cores
from .folder import DIGEST, RunFolder
from .scoring import summarize
from .tensorboard import require_tensorboard
from .train_run import SETTLED, TRAINED, lost_worker

#: The command that becomes one of the processes, to which the folder of the job is added.
PROCESS = [sys.executable, "-m", "pdadmm_g.runs.sharded_process"]
JOB, MODEL, RESULT = "job.json", "model.safetensors", "result.json"


def train_sharded_run(
    config: RunConfig,
    *,
    overwrite: bool = False,
    resume: bool = False,
    on_epoch: OnEpoch | None = None,
    say: Say | None = None,
    team: Team | None = None,
) -> dict[str, Any] | None:
    """As :func:`~.train_run.train_run` on a folder of shards; under a launcher all members of the ``team`` call it.

    The summary; None on a member that is not the first.
    """
    config = config.resolved()
    if config.workers == "auto":
        config = _with_mesh(config, team) if team is None else agreed(team, lambda: _with_mesh(config, team))
    if team is not None:
        team.arrange(config.shards or 1)
    assert config.out is not None
    folder = RunFolder(config.out)
    with ExitStack() as stack:

        def begin() -> Checkpointing | None:
            if team is None or team.rank == 0:
                stack.enter_context(folder.held())
                folder.check_free(config, overwrite=overwrite, resume=resume)
            done = resume and not overwrite and folder.settled(config)
            return None if done else _begun(config, folder, resume=resume)

        checkpointing = begin() if team is None else agreed(team, begin)
        if checkpointing is None:
            return _settled(config, folder, say, team) if team is None or team.rank == 0 else None

        def record_epoch(record: Record) -> object:
            if not folder.started:
                folder.start(config, checkpointing.history)
            folder.append(record)
            return None if on_epoch is None else on_epoch(record)

        def keep(classifier: Estimator) -> None:
            if not folder.started:  # interrupted in the very first epoch, or resumed at the very end
                folder.start(config, checkpointing.history)
            folder.keep(classifier, _summary(classifier, config))

        try:
            with task("augmentation and training"):
                classifier, result = _fit(config, checkpointing, record_epoch, say, team, keep)
        except (WorkerLostError, PeerLostError) as error:
            if folder.started and not folder.unscored:
                folder.finish(lost_worker(error))
            raise
        except KeyboardInterrupt:
            if folder.unscored and say is not None:
                say(f"{folder.path}: {TRAINED}; --resume scores it")
            raise
        if classifier is None:
            return None
        summary = _summary(classifier, config) | _figures(result)
        folder.finish(summary)
    return summary


def _begun(config: RunConfig, folder: RunFolder, *, resume: bool) -> Checkpointing:
    """What a run goes on from that may be written to the folder; raises if it cannot be trained."""
    saved = checkpoint.resumable(folder.checkpoints, config) if resume else None
    if config.tensorboard:
        require_tensorboard()
    if config.asked_target in ("multilabel", "regression"):
        raise InputError(f"{config.dataset}: a folder of shards is for classes, not for {config.asked_target}")
    if config.init is not None:
        raise InputError("init is not for a folder of shards yet: leave it out, or train on one file")
    data = ShardFolder(config.dataset)
    data.check_parts(config.shards or 1)
    with_defaults(config, data.whole)
    return Checkpointing.of_run(folder.checkpoints, config, saved, data.whole.digest)


def _settled(config: RunConfig, folder: RunFolder, say: Say | None, team: Team | None) -> dict[str, Any]:
    """The summary of a run that is trained already, with the scores that it may lack."""
    from .sharded_predictions import score_shards  # which starts its processes by run_task

    say, summary = say or (lambda _: None), folder.told()
    if not folder.unscored:
        say(f"{folder.path}: {SETTLED}")
        return summary
    folder.check_data(config, summary, ShardFolder(config.dataset).whole.digest)
    say(f"{folder.path}: {TRAINED}, which is scored now")
    # Of a team the first member does it alone: the others may have nothing to do with it but layers.
    found = score_shards(str(folder.model), config.dataset, 1 if team else config.shards or 1, say=say)
    assert found is not None
    summary |= {"dataset": config.dataset} | _figures(found)
    folder.finish(summary)
    return summary


def _summary(classifier: Estimator, config: RunConfig) -> dict[str, Any]:
    """What is known before it is scored."""
    whole = ShardFolder(config.dataset).whole
    facts = {name: getattr(whole, name) for name in ("nodes", "edges", "features", "classes")}
    with run_tasks() as tasks:
        classifier.times_ = tasks.times()
    return summarize(classifier, config) | {"confusion": None, "data": facts, DIGEST: whole.digest}


def _figures(result: dict[str, Any]) -> dict[str, Any]:
    """What scoring adds."""
    return result["accuracies"] | {name: result[name] for name in ("confusion", "processes")}


def _with_mesh(config: RunConfig, team: Team | None) -> RunConfig:
    """``config`` with numbers of workers and shards: as many shards as the folder's can be dealt to."""
    folder = ShardFolder(config.dataset)
    processes = max(1, usable_cores() // config.threads) if team is None else team.size
    fitting = [
        each
        for each in range(1, processes + 1)
        if folder.whole.shards % each == 0 and (team is None or processes % each == 0)
    ]
    shards = config.shards or fitting[-1]
    if team is not None:
        return dataclasses.replace(config, workers=processes // shards, shards=shards)
    mask = folder.part(0, 1).column("train_mask")
    rows = max(shards, 0 if mask is None else int(mask.sum()))
    given = dataclasses.replace(config, shards=shards, unlabelled=config.unlabelled or 0)
    chosen, _ = choose_mesh(given, (rows, folder.whole.features), folder.whole.classes)
    return dataclasses.replace(config, workers=chosen.workers, shards=shards)


def _fit(
    config: RunConfig,
    checkpointing: Checkpointing,
    on_epoch: OnEpoch,
    say: Say | None,
    team: Team | None,
    keep: Callable[[Estimator], None],
) -> tuple[Estimator | None, dict[str, Any]]:
    """Train, ``keep`` the model, score it; the model and what is known of it, nothing where this is not the first."""
    if team is None and config.processes > 1:
        job = {"task": "train", "config": dataclasses.asdict(config), "checkpointing": checkpointing.for_others()}
        history = checkpointing.history
        with temporary_folder() as folder:

            def found_there() -> tuple[Estimator, dict[str, Any]]:
                result = json.loads((folder / RESULT).read_text())
                return _loaded(folder / MODEL, result, config.seed, history), result

            run_task(
                folder, job, config.processes, config, say, on_epoch, history,
                on_trained=lambda: keep(found_there()[0]),
            )  # fmt: skip
            return found_there()
    found = fit_sharded(
        config.dataset, model_config(config), seed=config.seed, team=team, on_epoch=on_epoch,
        checkpointing=checkpointing, say=say, on_trained=lambda found: keep(classifier_of(found, config)),
    )  # fmt: skip
    return (None, {}) if found is None else (classifier_of(found, config), plain(found))


def _loaded(model: Path, result: dict[str, Any], seed: int, history: list[Record]) -> Estimator:
    """The estimator that the processes have left in a file, with what they tell of it."""
    classifier = GAMLPClassifier.load(model)
    classifier.config_ = ModelConfig(**result["config"]).resolved()
    classifier.set_params(**parameters(classifier.config_))
    training = TrainingResult(
        classifier.model_, history, classifier.status_, Plan(tuple(result["plan"])), result["message"]
    )
    return _adopted(classifier, seed, training, tuple(result["reasons"]))


def model_config(config: RunConfig) -> ModelConfig:
    """The settings of a run that shape the model."""
    return ModelConfig(**config.model_settings())


def classifier_of(found: ShardedResult, config: RunConfig) -> Estimator:
    """The estimator that such a run amounts to."""
    classifier = GAMLPClassifier(**parameters(found.config), random_state=config.seed)
    classifier.model_ = found.training.model.cpu().eval()
    classifier.outputs_, classifier.augmentation_ = found.classes, found.augmentation
    classifier.config_, classifier.status_ = found.config, found.training.status
    whole = ShardFolder(config.dataset).whole
    classifier._set_features(whole.features, whole.feature_names)
    return _adopted(classifier, config.seed, found.training, found.reasons)


def _adopted(classifier: Estimator, seed: int, training: TrainingResult, reasons: tuple[str, ...]) -> Estimator:
    classifier.history_, classifier.message_, classifier.seconds_ = training.history, training.message, training.seconds
    classifier.plan_, classifier.choices_ = training.plan.counts, reasons
    classifier.n_iter_, classifier.seed_ = len(training.history), seed
    return classifier


def plain(found: ShardedResult) -> dict[str, Any]:
    """What a process tells the one that started it, beside the model."""
    return {
        **({} if found.scores is None else found.scores._asdict()),
        "processes": found.processes,
        "plan": found.training.plan.counts,
        "message": found.training.message,
        "reasons": found.reasons,
        "config": dataclasses.asdict(found.config),
    }


def run_task(
    folder: Path,
    job: dict[str, Any],
    processes: int,
    config: RunConfig,
    say: Say | None = None,
    on_epoch: OnEpoch | None = None,
    history: list[Record] | None = None,
    on_trained: Callable[[], None] | None = None,
) -> None:
    """Do a task in so many processes on this machine, which leave the result in ``folder``."""

    def on_note(_: int, note: dict[str, Any]) -> object:
        if "epoch" in note:
            return take_in(note["epoch"], [] if history is None else history, on_epoch)
        if "progress" in note:
            if say is not None:
                say(note["progress"])
        elif "trained" in note and on_trained is not None:
            on_trained()
        elif "interrupted" in note:
            raise KeyboardInterrupt
        elif "error" in note:
            raise InputError(note["error"])
        elif "warning" in note:
            warnings.warn(note["warning"], stacklevel=2)
        return None

    (folder / JOB).write_text(json.dumps(job))
    run_workers(
        [*PROCESS, str(folder)], processes, threads=config.threads, timeout=config.timeout, folder=folder,
        on_note=on_note,
    )  # fmt: skip
