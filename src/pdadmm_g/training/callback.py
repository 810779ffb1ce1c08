"""Whoever is told of the epochs as they end: what they may ask for, and what becomes of their exceptions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .records import Record

#: Called with the record of each epoch as it ends; True asks to end training with the best model so far.
OnEpoch = Callable[[Record], object]
#: Called with a line on what is being done.
Say = Callable[[str], None]


def told(record: Record, history: list[Record], on_epoch: OnEpoch | None) -> object:
    """Take in what a worker process tells of an epoch; what it tells again after an interrupt is known already."""
    if record["epoch"] <= len(history):
        return None
    history.append(record)
    return None if on_epoch is None else on_epoch(record)


class Listener:
    """Passes records on until an exception comes back, which also asks to end training: it can wait for the model."""

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
