"""Training with several worker processes on this machine."""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..config import ModelConfig
from ..data.examples import Examples
from ..engine.launch import run_workers
from ..engine.plan import Plan
from ..errors import InputError
from ..model import GAMLP
from ..status import Status
from .checkpoint import Checkpointing, write_tensors
from .records import Record
from .train import TrainingResult

#: The command that becomes a worker, to which the folder of the job is added.
WORKER = [sys.executable, "-m", "pdadmm_g.training.worker_process"]


def train_in_workers(
    training: Examples,
    validation: Examples | None,
    num_classes: int,
    config: ModelConfig,
    *,
    seed: int,
    on_epoch: Callable[[Record], None] | None = None,
    checkpointing: Checkpointing | None = None,
) -> TrainingResult:
    """:func:`~pdadmm_g.training.train` in ``config.workers`` processes.

    The processes are started afresh (not forked), so that this works in a notebook and needs no guard in scripts.
    They get the data from a temporary folder, in files that hold nothing but arrays and JSON.
    """
    history = checkpointing.history if checkpointing else []

    def on_event(_: int, event: dict[str, Any]) -> None:
        if "epoch" in event:
            history.append(event["epoch"])
            if on_epoch is not None:
                on_epoch(event["epoch"])
        elif "error" in event:
            raise InputError(event["error"])
        elif "warning" in event:
            warnings.warn(event["warning"], stacklevel=2)

    with tempfile.TemporaryDirectory(prefix="pdadmm-g-") as name:
        folder = Path(name)
        tensors = {"X_train": training.X, "y_train": training.y}
        if validation is not None:
            tensors |= {"X_val": validation.X, "y_val": validation.y}
        write_tensors(folder / "data.safetensors", tensors, "; TMPDIR names the folder to use instead")
        job = {
            "config": dataclasses.asdict(config),
            "seed": seed,
            "classes": num_classes,
            "checkpointing": checkpointing
            and {
                "folder": str(checkpointing.folder.resolve()),
                "settings": checkpointing.settings,
                "every": checkpointing.every,
                "resume": checkpointing.resume is not None,
                "data": checkpointing.data,
            },
        }
        (folder / "job.json").write_text(json.dumps(job))
        run_workers(
            [*WORKER, name],
            config.workers,
            threads=config.threads,
            timeout=config.timeout,
            folder=folder,
            on_event=on_event,
        )
        model, extra, _ = GAMLP.load(folder / "result.safetensors")
    return TrainingResult(model, history, Status[extra["status"]], Plan(tuple(extra["plan"])), extra["message"])
