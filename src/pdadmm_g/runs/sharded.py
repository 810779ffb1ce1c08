"""Runs on a folder of shards: train into a run folder, predict and score, each in as many processes as are wanted.

Alone, in processes that are started here (each runs this module with the folder of its job), or as one of those of
another launcher: the same task, given a team.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..config import ModelConfig, RunConfig
from ..data.augmentation import GraphAugment
from ..data.graph import MASKS, order
from ..data.sharded_augmentation import ShardedAugment
from ..data.shards import Part, ShardFolder
from ..data.targets import check_kind
from ..engine.launch import run_workers
from ..engine.team import PeerLostError, Team, agreed
from ..engine.watchdog import WorkerLostError
from ..errors import InputError
from ..estimator import Estimator, GAMLPClassifier, load_estimator, parameters
from ..training import checkpoint
from ..training.checkpoint import Checkpointing
from ..training.choose import choose_mesh
from ..training.finish import TrainedModel
from ..training.fit import heard
from ..training.records import OnEpoch, Record, Say
from ..training.sharded import (
    Predictions,
    ShardedResult,
    all_figures,
    augmented,
    fit_sharded,
    hard_classes,
    open_part,
    predictions,
    score,
    with_defaults,
)
from ..training.worker_process import depend_on_parent, member, tell
from ..utils import check_folder, compute_threads, decoded, run_tasks, task, temporary_folder, usable_cores, writing
from .folder import DIGEST, MODEL, RunFolder, require_tensorboard
from .run import TRAINED, settled_summary
from .scoring import summarize

#: The command that becomes one of the processes, to which the folder of the job is added.
PROCESS = [sys.executable, "-m", "pdadmm_g.runs.sharded"]
JOB = "job.json"


#: What is called with a trained model before it is scored, and what is not in its file.
OnTrained = Callable[[Estimator, dict[str, Any]], None]


class Job(msgspec.Struct, frozen=True):
    """What every process of a task is told: the settings, and the model and the place of what it is to write."""

    config: dict[str, Any]
    #: None to train one.
    model: str | None = None
    out: str = ""
    #: By which a process finds the checkpoint that the run goes on from.
    checkpointing: dict[str, Any] = {}


# ----------------------------------------------------------------------------------------------------- a run folder


def train_sharded_run(
    config: RunConfig,
    *,
    overwrite: bool = False,
    resume: bool = False,
    on_epoch: OnEpoch | None = None,
    say: Say | None = None,
    team: Team | None = None,
) -> dict[str, Any] | None:
    """As :func:`~.run.train_run` on a folder of shards; under a launcher all members of the ``team`` call it.

    The summary; None on a member that is not the first.
    """
    config = config.resolved()
    if config.workers == "auto":
        config = _with_mesh(config, team) if team is None else agreed(team, lambda: _with_mesh(config, team))
    if team is not None:
        team.arrange(config.shards or 1)
    assert config.out is not None
    folder, say = RunFolder(config.out), say or (lambda _: None)
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
        folder.begin(config, checkpointing.history)
        kept: list[dict[str, Any]] = []

        def keep(estimator: Estimator, about: dict[str, Any]) -> None:
            estimator.config_ = ModelConfig(**about["config"]).resolved()
            estimator.set_params(**parameters(estimator.config_))
            estimator.message_ = about["message"]
            estimator.plan_, estimator.choices_ = tuple(about["plan"]), tuple(about["choices"])
            estimator.seed_ = estimator.random_state = config.seed
            kept.append(_summary(estimator, config))
            folder.keep(estimator, kept[0])

        told = folder.listening(on_epoch)
        try:
            with task("augmentation and training"):
                if team is not None or config.processes == 1:
                    found = _train(config, checkpointing, team or Team(), told, say, keep)
                else:
                    job = Job(dataclasses.asdict(config), checkpointing=checkpointing.for_others())
                    found = _run_processes(job, config.processes, say, told, checkpointing.history, keep)
        except (WorkerLostError, PeerLostError) as error:
            folder.lose(error)
            raise
        except KeyboardInterrupt:
            if folder.unscored:
                say(f"{folder.path}: {TRAINED}; --resume scores it")
            raise
        if found is None:
            return None
        summary = kept[0] | {"times": _times()} | _scores(found)
        folder.finish(summary)
    return summary


def _with_mesh(config: RunConfig, team: Team | None) -> RunConfig:
    """``config`` with numbers of workers and shards: as many shards as the folder's can be dealt to."""
    folder = ShardFolder(config.dataset)
    processes = max(1, usable_cores() // config.threads) if team is None else team.size
    dealt = processes if team is not None else 0  # of a team no process is left over
    shards = config.shards or max(
        each for each in range(1, processes + 1) if folder.whole.shards % each == dealt % each == 0
    )
    if team is not None:
        return dataclasses.replace(config, workers=processes // shards, shards=shards)
    mask = folder.part(0, 1).column("train_mask")
    rows = max(shards, 0 if mask is None else int(mask.sum()))
    given = dataclasses.replace(config, shards=shards, unlabelled=config.unlabelled or 0)
    chosen, _ = choose_mesh(given, (rows, folder.whole.features), folder.whole.classes)
    return dataclasses.replace(config, workers=chosen.workers, shards=shards)


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


def _settled(config: RunConfig, folder: RunFolder, say: Say, team: Team | None) -> dict[str, Any]:
    """The summary of a run that is trained already, with the scores that it may lack."""

    def scores() -> dict[str, Any]:
        # Of a team the first member does it alone: the others may have nothing to do with it but layers.
        found = apply_shards(str(folder.model), config.dataset, 1 if team else config.shards or 1, say=say)
        assert found is not None
        return _scores(found)

    return settled_summary(config, folder, say, lambda: ShardFolder(config.dataset).whole.digest, scores)


def _summary(estimator: Estimator, config: RunConfig) -> dict[str, Any]:
    """What is known before it is scored."""
    whole = ShardFolder(config.dataset).whole
    facts = {name: getattr(whole, name) for name in ("nodes", "edges", "features", "classes")}
    estimator.times_ = _times()
    return summarize(estimator, config) | {"confusion": None, "data": facts, DIGEST: whole.digest}


def _times() -> dict[str, float]:
    with run_tasks() as tasks:
        return tasks.times()


def _scores(result: dict[str, Any]) -> dict[str, Any]:
    """What scoring adds to it."""
    return result["accuracies"] | {name: result[name] for name in ("confusion", "processes")}


# ---------------------------------------------------------------------------------------------- predicting and scoring


def apply_shards(
    model: str, dataset: str, shards: int, *, out: str = "", team: Team | None = None, say: Say | None = None
) -> dict[str, Any] | None:
    """What the model of a file says of a folder of shards, by so many processes or a ``team``.

    With ``out`` a table with a label for every node, of which each process writes its rows and the first joins them;
    else the accuracies, with the keys of :class:`~pdadmm_g.training.sharded.Scores`. And ``processes``, what each took.
    None on a member of a team that is not the first.
    """
    config, say = RunConfig(dataset=dataset, shards=shards), say or (lambda _: None)
    job = Job(dataclasses.asdict(config), str(Path(model).resolve()), out)
    try:
        return _run_processes(job, shards, say) if team is None and shards > 1 else _apply(job, team or Team(), say)
    except BaseException:
        for rank in range(shards) if out else ():
            with suppress(OSError):
                _piece(Path(out), rank).unlink()
        raise


def _apply(job: Job, team: Team, say: Say) -> dict[str, Any] | None:
    """The part of one process in :func:`apply_shards`."""
    out, found = Path(job.out), dict[str, Any]()
    with compute_threads(1):
        classifier, part, sharded, figures = _opened(job, team, say)
        if job.out:
            agreed(team, lambda: check_folder(out) if team.rank == 0 else None)
            agreed(team, lambda: _write(out, classifier, part, sharded, team, say))
        else:
            y = part.column("y")
            if y is None:  # on all processes alike
                raise InputError("the data set has no labels 'y' to evaluate against; use 'pdadmm-g predict'")
            check_kind(y, classifier.classes_)
            masks = {name: mask for name in MASKS if (mask := part.column(name)) is not None}
            found = score(classifier.model_, sharded, hard_classes(y), masks, classifier.classes_, team.rows)._asdict()
    found["processes"] = all_figures(team, figures)  # by now all have written theirs
    if team.rank > 0:
        return None
    if job.out:
        with writing(out):
            with _piece(out, 0).open("ab") as joined:
                for rank in range(1, team.size):
                    with _piece(out, rank).open("rb") as piece:
                        shutil.copyfileobj(piece, joined, 1 << 22)
                    _piece(out, rank).unlink()
            _piece(out, 0).replace(out)
        found |= {"predictions": part.whole.nodes, "file": job.out}
    return found


def _opened(job: Job, team: Team, say: Say) -> tuple[GAMLPClassifier, Part, ShardedAugment, dict[str, float]]:
    """The model, the part of this process and its features, and what these took."""
    dataset = job.config["dataset"]
    classifier = agreed(team, lambda: _of_classes(str(job.model)))
    whole, part = open_part(dataset, team)
    if whole.features != classifier.n_features_in_:
        expected = f"the model was trained with {classifier.n_features_in_}"
        raise InputError(f"{dataset} has {whole.features} features, {expected}")
    if order(whole.feature_names, getattr(classifier, "feature_names_in_", None)) is not None:
        why = "the features stand in another order than those of the model"
        raise InputError(f"{dataset}: {why}: make the folder anew in its order")
    augment = classifier.augmentation_ or GraphAugment("none", row_normalize=False, normalize="none")
    sharded, figures = augmented(team, part, augment, say)
    assert part is not None
    assert sharded is not None
    return classifier, part, sharded, figures


def _of_classes(path: str) -> GAMLPClassifier:
    """The classifier of a model file, if it is of one class a node."""
    classifier = load_estimator(path)
    if not isinstance(classifier, GAMLPClassifier) or classifier.config_.target != "classification":
        raise InputError(f"{path}: is for {classifier.config_.target}, a folder of shards is for classes alone")
    return classifier


def _write(out: Path, classifier: GAMLPClassifier, part: Part, sharded: ShardedAugment, team: Team, say: Say) -> None:
    """The rows of the table for the nodes of this process."""
    import pandas as pd

    blocks, shown = list[Predictions](), 0
    for block in predictions(classifier.model_, sharded):
        blocks.append(block)
        tenths = 10 * (int(block.nodes[-1]) + 1) // part.count
        if team.rank == 0 and tenths > shown:
            shown = tenths
            say(f"predictions: {tenths * 10}%")
    _, best, probability = map(np.concatenate, zip(*blocks, strict=True))
    ids = part.column("id")
    if ids is None:
        ids = np.arange(part.first, part.first + part.count)
    elif ids.dtype.kind == "S":
        ids = np.char.decode(ids, "utf-8")
    table = pd.DataFrame({"node": ids, "label": classifier.classes_[best], "probability": probability})
    with writing(out):
        table.to_csv(
            _piece(out, team.rank), header=team.rank == 0, index=False, float_format="%.6f", lineterminator="\n"
        )


def _piece(out: Path, rank: int) -> Path:
    return out.with_name(f"{out.name}.part-{rank}")


# ------------------------------------------------------------------------------------------------------- the processes


def _run_processes(
    job: Job,
    processes: int,
    say: Say,
    on_epoch: OnEpoch | None = None,
    history: list[Record] | None = None,
    on_trained: OnTrained | None = None,
) -> dict[str, Any]:
    """Do a task in so many processes on this machine; the result, which the first of them tells."""
    config, results = RunConfig(**job.config), list[dict[str, Any]]()
    history = [] if history is None else history

    def on_note(rank: int, note: dict[str, Any]) -> object:
        if "progress" in note:
            say(note["progress"])
        elif "trained" in note and on_trained is not None:
            estimator = load_estimator(folder / MODEL)
            estimator.history_ = history
            on_trained(estimator, note["trained"])
        elif "result" in note:
            results.append(note["result"])
        return heard(rank, note, history, on_epoch)

    with temporary_folder() as folder:
        (folder / JOB).write_bytes(msgspec.json.encode(job))
        run_workers(
            [*PROCESS, str(folder)], processes, threads=config.threads, timeout=config.timeout, folder=folder,
            on_note=on_note,
        )  # fmt: skip
    return results[0]


def _train(
    config: RunConfig, checkpointing: Checkpointing, team: Team, on_epoch: OnEpoch, say: Say, on_trained: OnTrained
) -> dict[str, Any] | None:
    """The part of one process in training; the scores in the end, None where this is not the first."""

    def trained(found: ShardedResult) -> None:
        training, whole = found.training, ShardFolder(config.dataset).whole
        names = None if whole.feature_names is None else np.asarray(whole.feature_names, dtype=object)
        model = (training.model.cpu().eval(), found.config, found.augmentation, found.classes, whole.features, names)
        estimator = GAMLPClassifier.of(TrainedModel(*model, training.status))
        estimator.history_ = training.history
        about = {"plan": training.plan.counts, "message": training.message, "choices": found.reasons}
        on_trained(estimator, about | {"config": dataclasses.asdict(found.config)})

    found = fit_sharded(
        config.dataset, ModelConfig(**config.model_settings()), seed=config.seed, team=team, on_epoch=on_epoch,
        checkpointing=checkpointing, say=say, on_trained=trained,
    )  # fmt: skip
    if found is None or found.scores is None:
        return None
    return found.scores._asdict() | {"processes": found.processes}


def main(folder: Path) -> None:
    """One process of a task: join the team and do it; the first process tells the result."""
    depend_on_parent()
    job = decoded(Job, (folder / JOB).read_text())
    config = RunConfig(**job.config)

    def say(line: str) -> None:
        tell({"progress": line})

    def on_trained(estimator: Estimator, about: dict[str, Any]) -> None:
        estimator.save(folder / MODEL)
        tell({"trained": about})

    with member(config) as team:
        if job.model is None:
            checkpointing = Checkpointing.joined(**job.checkpointing)
            result = _train(config, checkpointing, team, lambda record: tell({"epoch": record}), say, on_trained)
        else:
            result = _apply(job, team, say)
        if team.rank == 0:
            tell({"result": result})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    os._exit(0)  # not through exit handlers, in which threads of groups that are gone may abort the process
