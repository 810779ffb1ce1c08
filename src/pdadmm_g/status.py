"""How a training run ended, and what to do about it."""

from __future__ import annotations

from enum import Enum

#: The advice of MAX_EPOCHS where nothing validates, as where labels decide out of fold.
UNVALIDATED = "All epochs were used: without validation nodes nothing ends training earlier."


class Status(Enum):
    """The value of each member is the sentence of advice that the user reads."""

    CONVERGED = "Both residuals fell below the tolerance: more epochs would not change the model."
    MAX_EPOCHS = "All epochs were used; if the validation score was still rising, allow more epochs."
    LINEAR = "A linear model was better than every network that was tried: no other was trained."
    MEAN = "The mean of the best models that were tried is kept: no other was trained."
    EARLY_STOPPED = "The validation score stopped improving: training ended."
    DIVERGED = "The objective exploded: keep rho between 4 and 100 times nu, and check the scale of the features."
    NON_FINITE = "NaN or infinity appeared: normalise the features, or bring rho and nu closer to their defaults."
    INTERRUPTED = "Stopped on request; the best model so far was kept. If checkpoints were written, --resume goes on."
    STOPPED = "A callback asked to stop; the best model so far was kept."
    PEER_LOST = "A worker died, stopped answering or went wrong; if checkpoints were written, go on with --resume."

    @property
    def advice(self) -> str:
        """What the user should know or do."""
        return self.value

    @property
    def is_failure(self) -> bool:
        """True when the run broke down."""
        return self in (Status.DIVERGED, Status.NON_FINITE, Status.PEER_LOST)

    @property
    def was_stopped(self) -> bool:
        """True when somebody ended the run before its time."""
        return self in (Status.INTERRUPTED, Status.STOPPED)
