"""The weight decay that suits the first stage best on the validation nodes, where it is left to the data."""

from __future__ import annotations

import dataclasses
import math

from ..config import ModelConfig
from ..data.examples import Examples, some_examples
from ..metrics import shown
from .records import judged
from .short_runs import short_runs
from .train import train

#: Taken where there is no validation node.
DEFAULT_WEIGHT_DECAY = 0.1
WEIGHT_DECAYS = (0.03, 0.1, 0.3, 1.0, 3.0)
#: More rows of a kind than this are not looked at.
MOST_ROWS = 1000
#: A short run: its epochs, and from one evaluation to the next.
EPOCHS, EVAL_EVERY = 100, 5


def choose_weight_decay(
    training: Examples, validation: Examples | None, num_classes: int, config: ModelConfig, *, seed: int
) -> tuple[ModelConfig, tuple[str, ...]]:
    """``config`` with the weight decay filled in, the best by validation score of the first stage; and the reason.

    Where it is given, and for the methods by gradients, which have one, there is nothing to say.
    """
    if config.weight_decay is not None:
        return config, ()
    if validation is None:
        reason = f"weight decay {DEFAULT_WEIGHT_DECAY}, the default without validation nodes"
        return dataclasses.replace(config, weight_decay=DEFAULT_WEIGHT_DECAY), (reason,)
    some, other = (some_examples(MOST_ROWS, part) for part in (training, validation))
    assert config.stages is not None
    depth = config.stages[0]
    pilots = [
        dataclasses.replace(
            config, layers=depth, stages=(depth,), plan=None, workers=1, shards=1, weight_decay=weight_decay,
            eval_every=EVAL_EVERY, epochs=EPOCHS,
        )
        for weight_decay in WEIGHT_DECAYS
    ]  # fmt: skip

    def score(pilot: ModelConfig) -> tuple[float, float]:
        result = train(some, other, num_classes, pilot, seed=seed)
        assert result is not None
        return max(filter(None, map(judged, result.uninterrupted().history)), default=(-math.inf, -math.inf))

    scores = short_runs("weight decay", score, pilots)
    best = max(scores)
    choice = WEIGHT_DECAYS[scores.index(best)] if best[0] > -math.inf else DEFAULT_WEIGHT_DECAY
    # The risk is a sum over rows: with more of them the same pull needs a larger weight.
    number, tried = training.targets.rows().number, some.targets.rows().number
    chosen = choice * number / tried
    return dataclasses.replace(config, weight_decay=chosen), (
        f"weight decay {chosen:.3g} (validation {shown(best[0])})",
    )
