"""Training with several worker processes on this machine."""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file

from ..config import ModelConfig
from ..data.augmentation import NodeCopies
from ..data.examples import Examples
from ..data.propagation import Operator
from ..engine.launch import run_workers
from ..engine.layout import Plan
from ..engine.watchdog import WorkerLostError
from ..errors import InputError
from ..model import GAMLP
from ..status import Status
from ..utils import temporary_folder
from .checkpoint import Checkpointing, write_tensors
from .problem import Problem
from .records import OnEpoch, Record, take_in
from .train import TrainingResult

#: The command that becomes a worker, to which the folder of the job is added.
WORKER = [sys.executable, "-m", "pdadmm_g.training.worker_process"]
#: The files of a job.
JOB, ROWS, RESULT = "job.json", "data.safetensors", "result.safetensors"
#: The network to start from, if there is one.
START = "start.safetensors"
#: How the names of what copies are made of begin.
COPIES = "copies_"


@dataclass(frozen=True)
class Job:
    """What worker processes are told, in files that hold nothing but arrays and JSON."""

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
        (folder / JOB).write_text(json.dumps(dataclasses.asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Job:
        """The job that was left in ``folder``."""
        return cls(**json.loads((folder / JOB).read_text()))

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


def train_in_workers(
    problem: Problem,
    *,
    seed: int,
    on_epoch: OnEpoch | None = None,
    checkpointing: Checkpointing | None = None,
    start: GAMLP | None = None,
) -> TrainingResult:
    """:func:`~pdadmm_g.training.train.train` in as many processes as the configuration says.

    The processes are started afresh (not forked), so that this works in a notebook and needs no guard in scripts.
    They get the data from a temporary folder.
    """
    history = checkpointing.history if checkpointing else []
    config = problem.config
    checkpoints = checkpointing.for_others() if checkpointing else None
    job = Job(dataclasses.asdict(config), seed, len(problem.classes), checkpoints)
    with temporary_folder() as folder:
        job.write(folder, problem)
        if start is not None:
            start.save(folder / START)
        run_workers(
            [*WORKER, str(folder)],
            config.processes,
            threads=config.threads,
            timeout=config.timeout,
            folder=folder,
            on_note=functools.partial(heard, history=history, on_epoch=on_epoch),
        )
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
