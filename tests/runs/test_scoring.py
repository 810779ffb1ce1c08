from __future__ import annotations

import numpy as np
import pytest

from helpers.run_files import record
from pdadmm_g import GAMLPClassifier, Graph
from pdadmm_g.runs.scoring import advice, confusion, judge, look, worker_totals
from pdadmm_g.status import UNVALIDATED


def test_confusion_of_classes_that_training_never_saw() -> None:
    true, predicted = np.array([0, 0, 1, 5]), np.array([0, 1, 1, 0])
    assert confusion(true, predicted, np.array([0, 1])) == {
        "classes": [0, 1, 5], "counts": [[1, 1, 0], [0, 1, 0], [1, 0, 0]],
    }  # fmt: skip
    assert confusion(np.arange(300), np.zeros(300, dtype=int), np.array([0])) is None


def test_test_nodes_are_judged_else_those_that_validate(tiny_graph: Graph) -> None:
    clf = GAMLPClassifier(layers=2, hidden=4, epochs=2, unlabelled=0, weight_decay=0.1).fit(tiny_graph)
    for mask in ("test", "val"):
        found = judge(clf, tiny_graph)
        assert found.confusion is not None
        assert found.reliability is not None
        assert found.confusion["nodes"] == found.reliability["nodes"] == mask
        assert np.sum(found.confusion["counts"]) == int(tiny_graph[f"{mask}_mask"].sum())
        own = np.trace(found.confusion["counts"]) / np.sum(found.confusion["counts"])
        assert found.metrics[mask]["accuracy"] == found.accuracies[f"{mask}_accuracy"] == pytest.approx(own)
        del tiny_graph[f"{mask}_mask"]
    assert judge(clf, tiny_graph)[2:] == (None, None, None, None)


def test_advice_on_epochs_is_for_those_who_have_validation_nodes(tiny_graph: Graph) -> None:
    clf = GAMLPClassifier(layers=2, hidden=4, epochs=2, unlabelled=0, weight_decay=0.1).fit(tiny_graph)
    assert advice(clf) == clf.status_.advice
    assert "allow more epochs" in clf.status_.advice
    for mask in ("train_mask", "val_mask", "test_mask"):
        del tiny_graph[mask]
    assert advice(clf.set_params(patience=None).fit(tiny_graph)) == UNVALIDATED


def test_totals_of_a_run_resumed_with_more_workers() -> None:
    class Resumed:
        history_ = [record(1, 2, 1), record(2, 2, 2)]  # noqa: RUF012
        plan_ = (2, 3)

    totals = worker_totals(Resumed())  # type: ignore[arg-type]
    assert [worker["bytes_p"] for worker in totals] == [0, 50]
    assert [round(worker["compute_seconds"], 9) for worker in totals] == [0.012, 0.006]


def test_the_least_certain_nodes_and_those_whose_label_is_contradicted_are_worth_a_look() -> None:
    true, P = np.array(["a", "b", "a", "b"]), np.array([[0.6, 0.4], [0.9, 0.1], [0.2, 0.8], [0.45, 0.55]])
    seen = (np.array(["n1", "n2", "n3", "n4"], dtype=object), true, P, np.array(["a", "b"]))
    assert [each["node"] for each in look(*seen)] == ["n4", "n1", "n3", "n2"]
    first, second = look(*seen, contradicted=True)
    assert first == {"node": "n2", "label": "b", "predicted": "a", "probability": 0.9}
    assert second["node"] == "n3"
