"""The record of an epoch, a line of metrics.jsonl: how it is put together, and what it says of the run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from ..status import Status
from ..utils import Count, Size

#: One dict per epoch, with the keys of metrics.jsonl.
Record = dict[str, Any]
#: Called with the record of each epoch as it ends; True asks to end training with the best model so far.
OnEpoch = Callable[[Record], object]
#: Called with a line on what is being done.
Say = Callable[[str], None]


def is_task_line(line: str) -> bool:
    """Is this line of metrics.jsonl on a task of the run (:class:`~pdadmm_g.utils.Event`), and not of an epoch?"""
    return line.startswith('{"task"')


#: What is known of an epoch in which the network was evaluated.
SCORES = ("train_loss", "train_accuracy", "val_loss", "val_accuracy")


class WorkerFigures(Struct, frozen=True):
    """What a worker did in one epoch, as far as it is read again."""

    compute_seconds: float
    wait_seconds: float
    pack_seconds: float
    bytes_p: float
    bytes_q: float


WORKER_FIGURES = WorkerFigures.__struct_fields__


class Written(Struct, frozen=True):
    """What of the record of an epoch is read again."""

    epoch: Count
    stage: Count
    #: None where the network was not evaluated, or the score is not defined.
    val_loss: float | None
    val_accuracy: float | None
    seconds: float
    bytes_sent: float
    workers: list[WorkerFigures]
    val_score: float | None = None
    round: Size | None = None


def judged(record: Record) -> tuple[float, float] | None:
    """What validation chooses by, the higher the better: the score, then the negative loss; None where not evaluated.

    The score is the accuracy, or ``val_score`` where the setting ``scoring`` is another; one that is not defined on
    the validation rows leaves it to the loss.
    """
    if record["val_loss"] is None:
        return None
    score = record.get("val_score", record["val_accuracy"])
    return -math.inf if score is None else score, -record["val_loss"]


def failure(record: Record, scale: float) -> Status | None:
    """NON_FINITE, DIVERGED or None. ``scale`` is that of an objective that has not exploded.

    Every variable enters one of the numbers that are looked at: r, z, q and u the objective, and W and b too (see
    ``Worker._shares``), the movements of p, W, b and z the descent, and that of q the dual residual. The norm of the
    outputs is what residuals are compared with: beside infinity all of them are small.
    """
    numbers = ("objective", "descent", "primal_residual", "dual_residual", "output_norm")
    if not all(math.isfinite(record[name]) for name in numbers):
        return Status.NON_FINITE
    return Status.DIVERGED if abs(record["objective"]) > 1e3 * scale else None


def converged(record: Record, tolerance: float) -> bool:
    """Residuals small against the outputs q, and the descent of the epoch small against the objective.

    The last condition is there because p and q may stand still while the rest still moves: on coarse levels, and in
    the first epochs of a stage, before the change of z_L has travelled down the chain.
    """
    return (
        record["primal_residual"] <= tolerance * record["output_norm"]
        and record["dual_residual"] <= tolerance * record["rho"] * record["output_norm"]
        and record["descent"] <= tolerance * abs(record["objective"])
    )


def as_line(record: Record) -> str:
    """The record as a line of JSON, which has no NaN or infinity: they become null."""
    return msgspec.json.encode(record).decode() + "\n"


class Callback:
    """A user's callback whose exception is deferred: it asks to end training, and is raised once the model is kept."""

    def __init__(self, on_epoch: OnEpoch | None) -> None:
        self.on_epoch = on_epoch
        self.error: Exception | None = None

    def __call__(self, record: Record) -> bool:
        if self.on_epoch is not None and self.error is None:
            try:
                answer = self.on_epoch(record)
                return isinstance(answer, (bool, np.bool_)) and bool(answer)
            except Exception as error:
                self.error = error
        return self.error is not None

    def raise_error(self) -> None:
        """Raise what came back, if anything did."""
        if self.error is not None:
            raise self.error
