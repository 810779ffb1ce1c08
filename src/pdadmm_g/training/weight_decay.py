"""The weight decay that suits the first stage best on the validation nodes, where it is left to the data."""

from __future__ import annotations

import dataclasses
import math

from ..config import ModelConfig
from ..data.examples import Examples, some_examples
from .records import judged
from .train import train

#: Taken where there is no validation node.
DEFAULT_WEIGHT_DECAY = 0.1
WEIGHT_DECAYS = (0.03, 0.1, 0.3, 1.0, 3.0)
#: More rows of a kind than this are not looked at.
MOST_ROWS = 2000


def choose_weight_decay(
    training: Examples, validation: Examples | None, num_classes: int, config: ModelConfig, *, seed: int
) -> ModelConfig:
    """``config`` with the weight decay filled in: the best by validation score of the first stage."""
    if config.weight_decay is not None:
        return config
    if validation is None:
        return dataclasses.replace(config, weight_decay=DEFAULT_WEIGHT_DECAY)
    some, other = (some_examples(MOST_ROWS, part) for part in (training, validation))
    assert config.stages is not None
    depth = config.stages[0]
    best, choice = (-math.inf, -math.inf), DEFAULT_WEIGHT_DECAY
    for weight_decay in WEIGHT_DECAYS:
        pilot = dataclasses.replace(
            config, layers=depth, stages=(depth,), plan=None, workers=1, shards=1, weight_decay=weight_decay,
            eval_every=5,
            epochs=200,
        )  # fmt: skip
        result = train(some, other, num_classes, pilot, seed=seed)
        assert result is not None
        scores = filter(None, map(judged, result.uninterrupted().history))
        score = max(scores, default=best)
        if score > best:
            best, choice = score, weight_decay
    # The risk is a sum over rows: with more of them the same pull needs a larger weight.
    number, tried = training.targets.rows().number, some.targets.rows().number
    return dataclasses.replace(config, weight_decay=choice * number / tried)
