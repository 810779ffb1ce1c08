"""The door to training: a problem goes in, a trained network comes out, whoever computes it.

Worker processes on this machine are started afresh (not forked), so that this works in a notebook and needs no guard
in scripts. They get the data from a temporary folder, in files that hold nothing but arrays and JSON.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import warnings
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors.torch import load_file

from ..config import ModelConfig
from ..data.augmentation import NodeCopies
from ..data.examples import Examples
from ..data.propagation import Operator
from ..engine.launch import run_workers
from ..engine.layout import Plan
from ..engine.team import Team
from ..engine.watchdog import WorkerLostError
from ..errors import InputError
from ..model import GAMLP
from ..status import Status
from ..utils import compute_threads, temporary_folder
from .checkpoint import Checkpointing, write_tensors
from .prepare import Problem
from .records import OnEpoch, Record, take_in
from .train import TrainingResult, train

#: The command that becomes a worker, to which the folder of the job is added.
WORKER = [sys.executable, "-m", "pdadmm_g.training.worker_process"]
#: The files of a job: also the network to start from, if there is one.
JOB, ROWS, START, RESULT = "job.json", "data.safetensors", "start.safetensors", "result.safetensors"
#: How the names of what copies are made of begin.
COPIES = "copies_"


def fit(
    problem: Problem,
    *,
    seed: int,
    on_epoch: OnEpoch | None = None,
    checkpointing: Checkpointing | None = None,
    team: Team | None = None,
    start: GAMLP | None = None,
) -> TrainingResult:
    """Train in this process, in worker processes of its own, or as the first member of a ``team``.

    ``start`` is the network to start from. Where numbers are learned, it and the result are in the units of the data.
    """
    units = problem.units
    start = units.taken_out(start) if units is not None and start is not None else start
    check_shards(problem.config, len(problem.training.y))
    problem = problem.decided(seed, team)
    config = problem.config
    if config.processes > 1 and team is None:
        result = _fit_in_workers(problem, seed, on_epoch, checkpointing, start)
    else:
        with compute_threads(config.threads):
            found = train(
                problem.training, problem.validation, len(problem.classes), config, seed=seed, on_epoch=on_epoch,
                checkpointing=checkpointing, team=team, copies=problem.copies, start=start,
            )  # fmt: skip
        assert found is not None
        result = found
    if units is not None:
        result.model = units.taken_in(result.model)
    return result


def check_shards(config: ModelConfig, rows: int) -> None:
    """Raise unless every shard gets one of so many training rows."""
    if config.shards is not None and config.shards > rows:
        raise InputError(f"shards = {config.shards}, but there are {rows} training rows: set shards to {rows} at most")


def take_part(config: ModelConfig, *, seed: int, team: Team, checkpointing: Checkpointing | None = None) -> None:
    """What every other member of a team does while the first one is in :func:`fit`."""
    with compute_threads(config.threads):
        train(None, None, 0, config, seed=seed, team=team, checkpointing=checkpointing)


class Job(msgspec.Struct):
    """What worker processes are told."""

    settings: dict[str, Any]
    seed: int
    classes: int
    checkpointing: dict[str, Any] | None

    @property
    def config(self) -> ModelConfig:
        """The settings as a configuration."""
        return ModelConfig(**self.settings)

    def write(self, folder: Path, problem: Problem) -> None:
        """Leave the job and the rows of its problem in ``folder``."""
        parts = {"train": problem.training, "val": problem.validation}
        tensors = {
            f"{name}_{part}": rows
            for part, examples in parts.items()
            for name, rows in (examples._asdict().items() if examples else ())
            if rows is not None
        }
        if problem.copies is not None:
            tensors |= {f"{COPIES}{name}": tensor for name, tensor in problem.copies.tensors().items()}
        write_tensors(folder / ROWS, tensors, "; TMPDIR names the folder to use instead")
        (folder / JOB).write_bytes(msgspec.json.encode(self))

    @classmethod
    def read(cls, folder: Path) -> Job:
        """The job that was left in ``folder``."""
        return msgspec.json.decode((folder / JOB).read_bytes(), type=cls)

    def problem(self, folder: Path) -> Problem:
        """The problem whose rows were left in ``folder``."""
        config = self.config
        rows = load_file(str(folder / ROWS), device=config.device)
        training, validation = (
            Examples(*(rows.get(f"{name}_{part}") for name in Examples._fields)) if f"X_{part}" in rows else None
            for part in ("train", "val")
        )
        assert training is not None
        known = {name.removeprefix(COPIES): rows[name] for name in rows if name.startswith(COPIES)}
        copies = None
        if known:
            assert config.augment != "auto"
            assert config.hops is not None
            assert config.teleport is not None
            operator = Operator(config.augment, config.hops, config.teleport)
            copies = NodeCopies.of_tensors(known, operator, config.normalize, config.drop, config.drop_entries or 0.0)
        return Problem(training, validation, np.arange(self.classes), config, copies=copies)


def _fit_in_workers(
    problem: Problem,
    seed: int,
    on_epoch: OnEpoch | None,
    checkpointing: Checkpointing | None,
    start: GAMLP | None,
) -> TrainingResult:
    """Train in as many processes as the configuration says."""
    config, history = problem.config, checkpointing.history if checkpointing else []
    checkpoints = checkpointing.for_others() if checkpointing else None
    with temporary_folder() as folder:
        Job(dataclasses.asdict(config), seed, len(problem.classes), checkpoints).write(folder, problem)
        if start is not None:
            start.save(folder / START)
        run_workers(
            [*WORKER, str(folder)], config.processes, threads=config.threads, timeout=config.timeout, folder=folder,
            on_note=functools.partial(heard, history=history, on_epoch=on_epoch),
        )  # fmt: skip
        model, extra, _ = GAMLP.load(folder / RESULT)
    return TrainingResult(model, history, Status[extra["status"]], Plan(tuple(extra["plan"])), extra["message"])


def heard(_: int, note: dict[str, Any], history: list[Record], on_epoch: OnEpoch | None) -> object:
    """Take in what a process tells the one that started it."""
    if "epoch" in note:
        return take_in(note["epoch"], history, on_epoch)
    if "error" in note:
        raise InputError(note["error"])
    if "lost" in note:
        raise WorkerLostError(note["lost"])
    if "interrupted" in note:
        raise KeyboardInterrupt
    if "warning" in note:
        warnings.warn(note["warning"], stacklevel=2)
    return None
