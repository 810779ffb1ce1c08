"""Random search over hyperparameters, judged on the validation nodes only."""

from __future__ import annotations

import dataclasses
import math
import random
import warnings
from collections.abc import Callable
from typing import Any

from ..config import RunConfig
from ..data.adapters import labels_of
from ..data.checks import class_places
from ..data.datasets import load_dataset
from ..data.graph import Graph
from ..data.splits import with_masks
from ..data.targets import has_columns, target_of
from ..errors import InputError
from ..estimator import Estimator
from ..kinds import estimator_for
from ..metrics import score
from ..model import outputs
from ..status import Status

#: What is drawn, each uniformly from its values; rho as a multiple of nu.
SPACE: dict[str, tuple[Any, ...]] = {
    "augment": ("average", "hops"),
    "hops": (2, 4, 8, 16),
    "weight_decay": (0.03, 0.1, 0.3, 1.0, 3.0),
    "nu": (0.1, 0.3, 1.0),
    "rho": (1.0, 5.0, 20.0),
    "hidden": (64, 100, 256),
}


def search(
    config: RunConfig,
    *,
    given: set[str],
    budget: int,
    on_trial: Callable[[int, dict[str, Any], float, RunConfig | None], None] | None = None,
) -> RunConfig:
    """``config`` with the best of ``budget`` draws from :data:`SPACE` filled in, the settings ``given`` kept.

    The first trial is ``config`` as it is. ``on_trial`` gets the number of each, its settings, its score and, if it
    is the best so far, its configuration. The test mask is removed from the data before anything else happens.
    """
    target, labels = config.asked_target, config.labels
    data = load_dataset(config.dataset, config.data_root, edges=config.edges, target=target, labels=labels)
    config = dataclasses.replace(config, target=target_of(data))
    data, _ = with_masks(data, config, seed=config.seed)
    if "test_mask" in data:
        del data.test_mask
    if "val_mask" not in data or not bool(data.val_mask.any()):
        raise InputError(f"{config.dataset}: tuning needs validation nodes (val_mask)")
    draw = random.Random(config.seed)
    best, highest = config, -math.inf
    for trial in range(1, budget + 1):
        settings = {} if trial == 1 else _draw(draw, config, given)
        candidate = dataclasses.replace(config, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            classifier = estimator_for(candidate, config.seed).fit(data)
        if classifier.status_ is Status.INTERRUPTED:
            raise KeyboardInterrupt  # fit keeps what it has, which is no fair trial
        found = _score(classifier, data)
        if trial == 1 or found > highest:
            best, highest = candidate, found
        if on_trial is not None:
            on_trial(trial, settings or {"settings": "as given"}, found, best if best is candidate else None)
    return best


def _score(classifier: Estimator, data: Graph) -> float:
    """What ``scoring`` makes of the validation nodes; the lowest there is where it is not defined on them."""
    scoring, target, own = classifier.config_.scoring, classifier.config_.target, data.val_mask.numpy()
    true = data.y.numpy()[own] if has_columns(data) else class_places(labels_of(data)[own], classifier.outputs_)
    found = score(scoring, true, outputs(classifier._logits(data, data.val_mask), target), target)
    return -math.inf if found is None else found


def _draw(draw: random.Random, config: RunConfig, given: set[str]) -> dict[str, Any]:
    settings = {name: draw.choice(values) for name, values in SPACE.items()}
    settings["rho"] *= settings["nu"] if "nu" not in given else config.nu
    return {name: value for name, value in settings.items() if name not in given}
