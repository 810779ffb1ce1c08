"""A callback may end training, on one worker or several, in any stage or round; the best model so far is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_geometric.data import Data

from helpers.blobs import fit
from helpers.communities import communities
from pdadmm_g import GAMLPClassifier, Status

SMALL: dict[str, Any] = {
    "layers": 3, "hidden": 8, "epochs": 6, "augment": "average", "hops": 2, "teleport": 0.05, "normalize": "unit",
    "weight_decay": 0.1,
    "unlabelled": 0, "random_state": 0,
}  # fmt: skip


def small(**settings: Any) -> GAMLPClassifier:
    return GAMLPClassifier(**SMALL | settings)


@pytest.mark.parametrize(("answer", "settings"), [(True, {}), (np.bool_(True), {"eval_every": 2}), ("not yet", {})])
def test_true_alone_ends_training(tiny_graph: Data, answer: object, settings: dict[str, Any]) -> None:
    clf = small(**settings).fit(tiny_graph, on_epoch=lambda record: answer if record["epoch"] == 8 else None)
    assert not clf.status_.is_failure
    if answer == "not yet":
        assert len(clf.history_) == 12
        return
    assert (clf.status_, len(clf.history_), clf.history_[-1]["stage"]) == (Status.STOPPED, 8, 2)
    assert clf.score(tiny_graph) == 1.0


def test_true_in_the_last_epoch_of_a_stage_ends_training() -> None:
    for ending in ({"patience": 4}, {"tolerance": 1.0}):
        last = len([record for record in fit(**ending).history if record["stage"] == 1])
        result = fit(on_epoch=lambda record, last=last: record["epoch"] == last, **ending)
        assert (result.status, len(result.history)) == (Status.STOPPED, last)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("workers", [1, 2])
def test_an_exception_waits_for_the_model(tiny_graph: Data, workers: int) -> None:
    """Several workers may be some epochs further when they hear of it."""
    clf, seen = small(workers=workers, epochs=6 if workers == 1 else 100_000, patience=None, tolerance=0), []

    def fail(record: dict[str, Any]) -> None:
        seen.append(record["epoch"])
        if record["epoch"] == 5:
            raise ZeroDivisionError("of the callback")

    with pytest.raises(ZeroDivisionError, match="of the callback"):
        clf.fit(tiny_graph, on_epoch=fail)
    assert seen == list(range(1, 6))
    assert clf.status_ is Status.STOPPED
    assert len(clf.history_) == 5 if workers == 1 else len(clf.history_) >= 5
    assert np.isfinite(clf.predict_proba(tiny_graph)).all()


def test_stopped_and_interrupted_in_a_round() -> None:
    data = communities()
    settings = SMALL | {"unlabelled": 50, "rounds": 3, "layers": 2, "sharpness": 2.0, "drop_entries": 0.0}

    def stop(record: dict[str, Any]) -> bool:
        return record["round"] == 2

    def interrupt(record: dict[str, Any]) -> None:
        if record["round"] == 2:
            raise KeyboardInterrupt

    for callback, status in ((stop, Status.STOPPED), (interrupt, Status.INTERRUPTED)):
        clf = GAMLPClassifier(**settings).fit(data, on_epoch=callback)
        assert (clf.status_, clf.history_[-1]["round"]) == (status, 2)
        assert clf.score(data) > 0.5


def test_an_interrupt_before_the_first_epoch_is_raised(tiny_graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pdadmm_g.training.choose.train", interrupt)
    clf = small(weight_decay=None)
    with pytest.raises(KeyboardInterrupt):
        clf.fit(tiny_graph)
    assert not hasattr(clf, "model_")
