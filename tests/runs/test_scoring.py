from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers.communities import communities
from helpers.estimators import classifier
from pdadmm_g import GAMLPClassifier, Graph
from pdadmm_g.config import RunConfig
from pdadmm_g.graph.checks import check_graph
from pdadmm_g.graph.examples import with_parts
from pdadmm_g.runs.scoring import confusion, judge, looked_at, summarize
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


def test_where_all_labels_train_what_was_said_out_of_fold_is_judged() -> None:
    data = communities(labels=20, noise=3.0)
    data.y[::4] = -1
    for mask in ("train_mask", "val_mask", "test_mask"):
        del data[mask]
    data.ids = np.array([f"n{node}" for node in torch.randperm(150).tolist()])
    clf = classifier(hidden=100, epochs=40, weight_decay=None).fit(data)
    number, wrong = int((data.y >= 0).sum()), int((data.y < 0).sum())
    found = judge(clf, with_parts(check_graph(data), clf.config_, clf.nodes_))
    assert found.confusion["nodes"] == found.reliability["nodes"] == found.looks["nodes"] == "out of fold"
    right = np.trace(found.confusion["counts"])
    assert number == np.sum(found.confusion["counts"])
    assert clf.estimate_.figures["accuracy"][0] <= right / number < found.metrics["train"]["accuracy"]
    assert (found.looks["among"], len(found.looks["uncertain"]) > 0) == ("unlabelled", wrong > 0)
    assert len(found.looks["contradicted"]) == min(10, number - right)
    place = {name: node for node, name in enumerate(data.ids.tolist())}
    for row in found.looks["contradicted"]:  # are they those nodes?
        assert int(data.y[place[row["node"]]]) == row["label"] != row["predicted"]
    clf._out_of_fold = None  # as of a model file
    alone = judge(clf, with_parts(check_graph(data), clf.config_, clf.nodes_))
    assert (alone.confusion, alone.reliability, alone.looks["contradicted"]) == (None, None, [])
    assert alone.looks["uncertain"] == found.looks["uncertain"]


def test_advice_on_epochs_is_for_those_who_have_validation_nodes(tiny_graph: Graph) -> None:
    clf = GAMLPClassifier(layers=2, hidden=4, epochs=2, unlabelled=0, weight_decay=0.1).fit(tiny_graph)
    assert summarize(clf, RunConfig())["advice"] == clf.status_.advice != UNVALIDATED
    for mask in ("train_mask", "val_mask", "test_mask"):
        del tiny_graph[mask]
    assert summarize(clf.set_params(patience=None).fit(tiny_graph), RunConfig())["advice"] == UNVALIDATED


def test_the_least_certain_nodes_and_those_whose_label_is_contradicted_are_worth_a_look() -> None:
    true, P = np.array(["a", "b", "a", "b"]), np.array([[0.6, 0.4], [0.9, 0.1], [0.2, 0.8], [0.45, 0.55]])
    seen = looked_at(np.array(["n1", "n2", "n3", "n4"], dtype=object), true, P, np.array(["a", "b"])).to_dict("records")
    assert [each["node"] for each in seen] == ["n4", "n1", "n3", "n2"]
    assert seen[-1] == {"node": "n2", "label": "b", "predicted": "a", "probability": 0.9}
