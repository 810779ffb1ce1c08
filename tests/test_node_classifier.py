from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate
from torch_geometric.data import Data

from helpers.communities import communities
from pdadmm_g import GAMLPClassifier, InputError, NodeClassifier, as_graph
from pdadmm_g.config import TargetKind

DATA = communities()
NODES = np.arange(0, DATA.num_nodes, 2)
NAMES = np.array(["ash", "birch", "cedar"])[DATA.y]


def small(**settings: object) -> GAMLPClassifier:
    fixed = {
        "layers": 2, "hidden": 8, "epochs": 5, "augment": "average", "hops": 2, "normalize": "unit",
        "weight_decay": 0.1, "unlabelled": 0, "random_state": 0,
    }  # fmt: skip
    return GAMLPClassifier(**fixed | settings)


def test_searches_and_cross_validation_of_scikit_learn() -> None:
    model = NodeClassifier(small(), DATA)
    scores = cross_validate(model, NODES, NAMES[NODES], cv=3, scoring=["accuracy", "roc_auc_ovr"])
    assert scores["test_accuracy"].mean() > 0.6
    assert scores["test_roc_auc_ovr"].mean() > 0.8
    search = GridSearchCV(model, {"estimator__epochs": [1, 5]}, cv=2, scoring="neg_log_loss")
    search.fit(NODES[:, None], NAMES[NODES])
    assert search.best_params_ == {"estimator__epochs": 5}
    assert search.best_estimator_.estimator_.epochs == 5
    assert set(search.predict(np.arange(1, DATA.num_nodes, 2))) <= set(NAMES)
    assert cross_val_predict(model, NODES, NAMES[NODES], cv=2).shape == NODES.shape


def test_a_graph_whose_labels_are_text() -> None:
    """Labels that come with the graph, and their names, are not those of a fold."""
    graph = as_graph(DATA.x.numpy(), NAMES, DATA.edge_index.numpy())
    model = NodeClassifier(small(), graph)
    assert cross_validate(model, NODES, NAMES[NODES], cv=2)["test_score"].mean() > 0.6
    assert set(model.fit(NODES, NAMES[NODES]).predict(NODES)) <= set(NAMES)


def test_what_is_held_out_is_not_seen() -> None:
    """Neither labels nor masks of the graph change anything, and the nodes of fit are all that has labels."""
    other = DATA.clone()
    other.y = torch.zeros_like(DATA.y)
    del other.train_mask, other.val_mask, other.test_mask
    seen = []

    class Spy(GAMLPClassifier):
        def fit(self, X: Data, *rest: object, **others: object) -> GAMLPClassifier:
            seen.append(X)
            return super().fit(X, *rest, **others)

    Spy.__init__ = GAMLPClassifier.__init__  # scikit-learn reads the parameters of the constructor
    probabilities = []
    for graph in (DATA, other):
        estimator = Spy(**small().get_params())
        probabilities.append(NodeClassifier(estimator, graph).fit(NODES, NAMES[NODES]).predict_proba(NODES))
    np.testing.assert_array_equal(*probabilities)
    for data in seen:
        assert (data.y >= 0).nonzero().view(-1).tolist() == NODES.tolist()
        assert data.train_mask.nonzero().view(-1).tolist() == NODES.tolist()
        assert "val_mask" not in data


def test_a_clone_shares_the_graph_and_without_validation_all_train() -> None:
    model = NodeClassifier(small(validation=0), DATA)
    assert clone(model).graph is DATA
    assert clone(model).estimator is not model.estimator
    assert model.fit(NODES, DATA.y[NODES]).estimator_.history_[-1]["val_accuracy"] is None


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([[0, 1], [2, 3]], "one a sample"),
        ([0.5, 1.5], "whole numbers"),
        ([0, 10**6], "outside 0"),
        ([0, 0], "twice"),
    ],
)
def test_mistakes_are_named(nodes: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        NodeClassifier(small(), DATA).fit(nodes, ["ash", "birch"])


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_a_graph_with_targets_of_another_kind(kind: TargetKind) -> None:
    """Whatever the graph has, the labels are those of fit, which may stand in a column."""
    columns = np.stack([DATA.y.numpy() > 0, DATA.y.numpy() > 1], axis=1).astype(float)
    graph = as_graph(DATA.x.numpy(), columns, DATA.edge_index.numpy(), target=kind)
    expected = NodeClassifier(small(), DATA).fit(NODES, NAMES[NODES]).predict(NODES)
    np.testing.assert_array_equal(
        NodeClassifier(small(), graph).fit(NODES, NAMES[NODES, None]).predict(NODES), expected
    )


def test_several_labels_are_refused(tiny_graph: Data) -> None:
    wrapped = NodeClassifier(GAMLPClassifier(), tiny_graph)
    with pytest.raises(InputError, match="NodeClassifier is for one class a node"):
        wrapped.fit(np.arange(20), np.eye(2, dtype=int)[tiny_graph.y] | 1)
