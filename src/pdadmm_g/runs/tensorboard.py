"""Scalars of every epoch for TensorBoard."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from ..errors import InputError

#: The scalars of a record and the tags under which TensorBoard groups them.
TAGS = {
    "train_accuracy": "accuracy/training",
    "val_accuracy": "accuracy/validation",
    "val_score": "score/validation",
    "train_loss": "loss/training",
    "val_loss": "loss/validation",
    "objective": "admm/objective",
    "risk": "admm/risk",
    "primal_residual": "admm/primal residual",
    "dual_residual": "admm/dual residual",
    "rho": "admm/rho",
    "seconds": "epoch/seconds",
    "bytes_sent": "epoch/bytes sent",
}
WORKER_TAGS = {"compute_seconds": "compute seconds", "wait_seconds": "wait seconds"}


def require_tensorboard() -> None:
    """Raise unless the package is there: better before training than after the first epoch."""
    try:
        import tensorboard  # type: ignore[import-untyped,unused-ignore]  # noqa: F401
    except ImportError:
        raise InputError("tensorboard is not installed: pip install tensorboard") from None


class ScalarLog:
    """A file that TensorBoard can follow while the run goes on."""

    def __init__(self, folder: Path) -> None:
        # The package looks for TensorFlow and says so when it finds none.
        logging.getLogger("tensorflow").setLevel(logging.ERROR)
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), flush_secs=5)

    def append(self, record: dict[str, Any]) -> None:
        """The scalars of one epoch, as far as it has them."""
        for name, tag in TAGS.items():
            self._add(tag, record.get(name), record["epoch"])
        for rank, worker in enumerate(record["workers"]):
            for name, tag in WORKER_TAGS.items():
                self._add(f"worker {rank}/{tag}", worker[name], record["epoch"])

    def _add(self, tag: str, value: float | None, epoch: int) -> None:
        if value is not None:
            self._writer.add_scalar(tag, value, epoch)

    def close(self) -> None:
        """Write what is still waiting."""
        self._writer.close()
