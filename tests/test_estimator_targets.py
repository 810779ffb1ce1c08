"""Several labels a node, numbers, and weights of rows and classes, through the estimators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.base import clone, is_regressor
from sklearn.metrics import accuracy_score, f1_score, make_scorer, mean_absolute_error, r2_score
from torch_geometric.data import Data

from helpers.columns import ring
from helpers.communities import communities
from helpers.estimators import classifier
from pdadmm_g import GAMLPClassifier, GAMLPRegressor, InputError, as_graph
from pdadmm_g.graph.checks import check_graph
from pdadmm_g.graph.graph import Graph

SMALL = {"layers": 3, "hidden": 16, "epochs": 40, "augment": "average", "hops": 4, "normalize": "unit",
         "teleport": 0.05, "weight_decay": 0.03, "random_state": 0}  # fmt: skip
KINDS = {"multilabel": GAMLPClassifier, "regression": GAMLPRegressor}
both = pytest.mark.parametrize("kind", KINDS)


def small(kind: str, **settings) -> GAMLPClassifier | GAMLPRegressor:
    return KINDS[kind](**SMALL | settings)


def arrays(data: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, targets that are NaN where a node is for the test, and edges."""
    y = data.y.double().numpy().copy()
    y[data.test_mask.numpy()] = np.nan
    return data.x.numpy(), y, data.edge_index.numpy()


@both
def test_a_graph_is_learned(kind: str) -> None:
    data = ring(kind)
    model = small(kind).fit(data)
    own, true = model.predict(data, data.test_mask), data.y[data.test_mask].numpy()
    if kind == "multilabel":
        assert own.dtype == np.int64
        assert set(np.unique(own)) == {0, 1}
        assert f1_score(true, own, average="micro") > 0.85
        assert model.score(data) == accuracy_score(true, own)
        P = model.predict_proba(data)
        assert ((P > 0.5) == model.predict(data)).all()
        assert not np.allclose(P.sum(1), 1)
        assert model.classes_.tolist() == [0, 1, 2]
    else:
        assert model.score(data) == pytest.approx(r2_score(true, own))
        assert model.score(data) > 0.85
        assert min(r2_score(true, own, multioutput="raw_values")) > 0.8
    assert model.config_.target == kind
    assert model.n_iter_ == len(model.history_)
    assert model.history_[-1]["val_score"] is not None
    assert model.config_.unlabelled == 0


@both
def test_targets_of_every_kind_are_the_same(kind: str) -> None:
    X, y, edges = arrays(ring(kind))
    table = pd.DataFrame(y, columns=["a", "b", "c"])
    ways: list[Any] = [torch.from_numpy(y), table, y.tolist()]
    if kind == "multilabel":
        ways += [np.where(np.isnan(y), -1, y).astype(int), scipy.sparse.csr_array(y)]
    for targets in ways:
        np.testing.assert_array_equal(check_graph(as_graph(X, targets, edges, target=kind)).y.numpy(), y)
    tables = pd.DataFrame(X), table, pd.DataFrame(edges.T, columns=["source", "target"])
    assert small(kind, epochs=1).fit(*tables).outputs_.tolist() == ["a", "b", "c"]


@both
def test_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    """What is loaded trains to the same, here on all labels at the end."""
    data = ring(kind)
    model = small(kind, refit=True, epochs=10).fit(data)
    assert "trained again on all 80 labels" in model.choices_[-1]
    model.save(tmp_path / "model.safetensors")
    again = KINDS[kind].load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(data), model.predict(data))
    assert again.config_ == model.config_
    assert again.outputs_.tolist() == model.outputs_.tolist()
    retrained = clone(again).set_params(random_state=0).fit(data)
    np.testing.assert_array_equal(retrained.predict(data), model.predict(data))
    other = next(other for name, other in KINDS.items() if name != kind)
    with pytest.raises(InputError, match=f"is a model for {kind}: load it with {KINDS[kind].__name__}"):
        other.load(tmp_path / "model.safetensors")


@both
def test_a_scorer_decides(kind: str) -> None:
    seen = []

    def scorer(estimator, X, y) -> float:
        seen.append((is_regressor(estimator), y.shape, estimator.predict(X).shape))
        return 0.0

    small(kind, scoring=scorer, epochs=3).fit(ring(kind))
    assert set(seen) == {(kind == "regression", (40, 3), (40, 3))}
    own = make_scorer(mean_absolute_error, greater_is_better=False)
    assert small(kind, scoring=own, epochs=3).fit(ring(kind)).history_[-1]["val_score"] < 0


def test_numbers_may_be_of_any_size() -> None:
    data = ring("regression", outputs=1)
    plain = small("regression").fit(data)
    scores = [plain.score(data)]
    for factor, shift in ((1e-6, 0.0), (1e6, -3e8)):
        other = Graph(**data.to_dict() | {"y": factor * data.y + shift})
        model = small("regression").fit(other)
        scores.append(model.score(other))
        assert model.predict(data).shape == (120,)
    assert scores == pytest.approx([scores[0]] * 3, abs=1e-3)
    same = Graph(**data.to_dict() | {"y": torch.full((120,), 7.0)})
    np.testing.assert_allclose(small("regression").fit(same).predict(data), 7, atol=1e-3)
    close = Graph(**data.to_dict() | {"y": 1e9 + data.y})
    with pytest.raises(InputError, match=r"the numbers of column 0 differ by .* too little for single precision"):
        small("regression").fit(close)


def test_predictions_as_a_table() -> None:
    for outputs, expected in ((1, ["value"]), (3, ["value_0", "value_1", "value_2"])):
        data = ring("regression", outputs=outputs)
        assert list(small("regression", epochs=2).fit(data).predictions(data)) == ["node", *expected]
    labels, own = ring("multilabel"), ["red", "round", "new"]
    model = small("multilabel", epochs=2)
    model.fit(labels.x.numpy(), pd.DataFrame(labels.y.numpy(), columns=own), labels.edge_index)
    columns = model.predictions(labels, probabilities=True)
    assert list(columns) == ["node", *own, *(f"probability_{name}" for name in own)]
    assert all(((columns[f"probability_{name}"] > 0.5) == columns[name]).all() for name in own)


def test_one_hot_fractions_are_probabilities_unless_the_risk_says_otherwise() -> None:
    data = communities(features=8)
    data.y = torch.nn.functional.one_hot(data.y).double()
    assert small("multilabel", epochs=1).fit(data).config_.target == "classification"
    several = small("multilabel", risk="logistic", epochs=1).fit(data)
    assert several.config_.target == "multilabel"
    assert several.predict(data).shape == (150, 3)
    data.y = data.y.long()
    assert small("multilabel", epochs=1).fit(data).config_.target == "multilabel"


# ------------------------------------------------------------------------------------------------------- wrong inputs


def changed(kind: str, **entries) -> Graph:
    return Graph(**ring(kind).to_dict() | entries)


def with_value(kind: str, value: float) -> Graph:
    y = ring(kind).y.double()
    y[5, 1] = value
    return changed(kind, y=y)


@pytest.mark.parametrize(
    ("kind", "data", "settings", "message"),
    [
        ("multilabel", with_value("multilabel", 3.0), {"risk": "logistic"}, r"0 or 1 in each column, but y\[5, 1\]"),
        ("multilabel", with_value("multilabel", np.nan), {"risk": "logistic"}, "row 5 of 'y' has NaN in some columns"),
        ("regression", with_value("regression", np.inf), {}, r"finite and at most 1e\+15, but y\[5, 1\] = inf"),
        ("regression", with_value("regression", np.nan), {}, "row 5 of 'y' has NaN in some columns"),
        ("regression", changed("regression", y=torch.arange(120) - 1), {}, "-1 among whole numbers may stand for no"),
        ("regression", changed("regression", y=torch.zeros(3)), {}, r"'y' have shape \(3, 1\), expected \(120, col"),
        ("multilabel", ring("multilabel"), {"risk": "cross-entropy"}, "risk must be one of logistic with multilabel"),
        ("regression", ring("regression"), {"calibrate": True}, "calibrate is for classes"),
        ("multilabel", changed("regression", y=ring("regression").y[:, 0]), {}, "GAMLPRegressor"),
    ],
)  # fmt: skip
def test_refused_in_one_line(kind: str, data: Graph, settings: dict, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        small(kind, **settings).fit(data)
    assert "\n" not in str(error.value)


def test_text_is_no_number() -> None:
    nodes = pd.DataFrame({"f": [0.1, 0.2, 0.3], "label": ["a", "b", "a"]})
    edges = pd.DataFrame({"source": [0, 1], "target": [1, 2]})
    with pytest.raises(InputError, match="nodes: labels must be numbers, got 'a'"):
        small("regression").fit(nodes, edges)
    with pytest.raises(InputError, match="the labels are text, such as a: they are classes, not numbers"):
        small("regression").fit(as_graph(nodes, edges))
    with pytest.raises(InputError, match="column 'f' is learned, and a feature as well"):
        small("regression").fit(nodes.drop(columns="label"), nodes[["f"]], edges)
    with pytest.raises(InputError, match="numbers have no probabilities"):
        small("regression", epochs=1).fit(ring("regression")).predictions(ring("regression"), probabilities=True)
    data = check_graph(as_graph(ring("regression"), target="regression"))
    with pytest.raises(InputError, match="the graph is for regression: take GAMLPRegressor"):
        small("multilabel").fit(data)


# Weights of rows and classes, and labels that are probabilities: what the estimator makes of them.


def quick(**settings: object) -> GAMLPClassifier:
    fixed = {"layers": 3, "hidden": 8, "epochs": 20, "weight_decay": 0.1, "random_state": 0}
    return GAMLPClassifier(**fixed | settings)


def parameters(clf: GAMLPClassifier) -> list[np.ndarray]:
    return [parameter.detach().numpy() for parameter in clf.model_.parameters()]


def assert_same(a: GAMLPClassifier, b: GAMLPClassifier) -> None:
    assert a.classes_.tolist() == b.classes_.tolist()
    for ours, theirs in zip(parameters(a), parameters(b), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of three classes, and how often each is there: some twice or thrice, some not at all."""
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    return np.eye(3, 6)[y] + 0.7 * rng.standard_normal((30, 6)), y, rng.integers(0, 4, 30)


@pytest.fixture
def soft() -> np.ndarray:
    return np.random.default_rng(1).dirichlet(np.ones(3) / 2, 30)


# ---------------------------------------------------------------------------------------------------- weights of rows


SETTINGS = [
    {}, {"solver": "linearized", "weight_decay": 0.0}, {"risk": "squared-error"},
    {"quantize": "pq", "bits": 4},  # with more, a last bit moves some value to the next level
]  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_weight_is_a_number_of_equal_rows(rows, settings: dict[str, object]) -> None:
    X, y, times = rows
    weighted = quick(**settings).fit(X, y, sample_weight=times)
    repeated = quick(**settings).fit(X.repeat(times, 0), y.repeat(times))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-5)
    for name in ("train_accuracy", "train_loss"):
        assert weighted.history_[-1][name] == pytest.approx(repeated.history_[-1][name], rel=1e-3)


def test_weights_of_one_change_no_bit(rows, tiny_graph: Data) -> None:
    X, y, _ = rows
    assert_same(quick().fit(X, y), quick().fit(X, y, sample_weight=np.ones(30)))
    plain = classifier().fit(tiny_graph)
    assert_same(plain, classifier().fit(tiny_graph, sample_weight=torch.ones(20)))
    assert_same(plain, classifier(class_weight="balanced").fit(tiny_graph))


def test_rows_that_weigh_nothing_are_not_there(rows) -> None:
    X, y, _ = rows
    names = np.array(["a", "b", "c"])[y]
    clf = quick().fit(X, names, sample_weight=y != 1)
    assert clf.classes_.tolist() == ["a", "c"]
    assert_same(clf, quick().fit(X[y != 1], names[y != 1]))


def test_weights_of_a_graph(tiny_graph: Data) -> None:
    """Of all nodes or of the training nodes; those of others do not matter, and zero takes a node out."""
    weights = torch.full((20,), torch.nan)
    weights[tiny_graph.train_mask] = torch.tensor([1.0, 2.0, 0.0, 1.5, 0.0, 3.0])
    by_node = classifier().fit(tiny_graph, sample_weight=weights)
    of_training = classifier().fit(tiny_graph, sample_weight=weights[tiny_graph.train_mask].numpy())
    assert_same(by_node, of_training)
    without = tiny_graph.clone()
    without.train_mask = weights > 0
    assert_same(by_node, classifier().fit(without, sample_weight=[1.0, 2.0, 1.5, 3.0]))
    unlabelled = tiny_graph.clone()
    unlabelled.y[tiny_graph.train_mask & (weights == 0)] = -1
    assert_same(by_node, classifier().fit(unlabelled, sample_weight=weights))
    plain = classifier().fit(tiny_graph)
    assert any((a != b).any() for a, b in zip(parameters(by_node), parameters(plain), strict=True))
    assert "train_mask" in tiny_graph
    assert int(tiny_graph.train_mask.sum()) == 6


# ------------------------------------------------------------------------------------------------- weights of classes


def test_a_weight_of_a_class_is_that_of_its_rows(rows) -> None:
    X, y, times = rows
    names = np.array(["a", "b", "c"])[y]
    by_class = quick(class_weight={"b": 4, "c": 0.5}).fit(X, names, sample_weight=times + 1)
    by_row = quick().fit(X, names, sample_weight=(times + 1) * np.array([1, 4, 0.5])[y])
    assert_same(by_class, by_row)


@pytest.mark.parametrize("labels", [np.array([0.0, 1.0]), np.array([False, True]), np.array(["0", "1"])])
def test_labels_as_the_user_knows_them(rows, labels: np.ndarray) -> None:
    X, y, _ = rows
    y = labels[y % 2]
    by_row = quick().fit(X, y, sample_weight=np.where(y == labels[1], 5.0, 1.0))
    for key in (labels[1], labels[1].item()):
        assert_same(quick(class_weight={key: 5}).fit(X, y), by_row)


def test_a_class_of_no_weight_neither_trains_nor_validates(tiny_graph: Data) -> None:
    """Where validation nodes are set aside, they are of the classes that are told apart."""
    for mask in ("train_mask", "val_mask", "test_mask"):
        del tiny_graph[mask]
    tiny_graph.y = torch.tensor([4, 6, 9])[torch.arange(20) % 3]
    clf = classifier(class_weight={6: 0}, refit=True, validation=0.2).fit(tiny_graph)
    assert clf.classes_.tolist() == [4, 9]
    assert any("2 of the 13 nodes with a label for training" in choice for choice in clf.choices_)
    assert any("trained again on all 13 labels" in choice for choice in clf.choices_)
    assert clf.history_[-1]["val_accuracy"] is not None


# ------------------------------------------------------------------------------------------------------- probabilities


def test_certain_labels_as_probabilities_change_no_bit(rows, tiny_graph: Data) -> None:
    X, y, times = rows
    weighted = quick().fit(X, np.eye(3)[y], sample_weight=times)
    assert_same(weighted, quick().fit(X, y, sample_weight=times))
    assert weighted.score(X, np.eye(3)[y]) == weighted.score(X, y)
    changed = tiny_graph.clone()
    changed.y = torch.eye(2)[tiny_graph.y]
    clf = classifier().fit(changed)
    assert_same(clf, classifier().fit(tiny_graph))
    assert clf.score(changed) == clf.score(tiny_graph)


def test_weighted_probabilities_are_equal_rows(rows, soft: np.ndarray) -> None:
    X, _, times = rows
    for settings in ({}, {"class_weight": "balanced"}, {"class_weight": {1: 3.0}}):
        weighted = quick(**settings).fit(X, soft, sample_weight=times)
        repeated = quick(**settings).fit(X.repeat(times, 0), soft.repeat(times, 0))
        np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-5)


def test_a_graph_with_probabilities(tiny_graph: Data) -> None:
    """Validation, test and score go by the most probable class; NaN is no label."""
    tiny_graph.y = torch.tensor([[0.7, 0.3, 0.0], [0.1, 0.5, 0.4]])[tiny_graph.y]
    unused = ~(tiny_graph.train_mask | tiny_graph.val_mask | tiny_graph.test_mask)
    assert not unused.any()
    tiny_graph.test_mask[9] = False
    tiny_graph.y[9] = torch.nan
    clf = classifier(epochs=20).fit(tiny_graph)
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.score(tiny_graph) == 1.0
    assert clf.history_[-1]["val_accuracy"] == 1.0
    with pytest.raises(InputError, match=r"node 9 has no label \(a row of NaN\) to score against"):
        clf.score(tiny_graph, [9])
    tiny_graph.y[3] = torch.tensor([0.1, 0.1, 0.8])  # a validation node of a class that training has only a share of
    clf = classifier().fit(tiny_graph)
    assert 3 in clf.nodes_.val
    assert "never predicted" not in " ".join(clf.choices_)
    tiny_graph.y[tiny_graph.train_mask] = torch.tensor([0.6, 0.4, 0.0])
    clf = classifier().fit(tiny_graph)
    assert 3 not in clf.nodes_.val
    assert "no training node is of class 2: it is never predicted" in " ".join(clf.choices_)


# ---------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ([np.nan] * 3, "the probabilities of row 4 must"),
        ([0.5, 0.6, 0.0], "the probabilities of row 4 must .* got 0.5, 0.6, 0"),
        ([1.5, -0.5, 0.0], "the probabilities of row 4 must"),
        ([np.nan, 1.0, 0.0], "the probabilities of row 4 must .* got nan, 1, 0"),
    ],
)
def test_probabilities_that_are_refused(rows, tiny_graph: Data, soft: np.ndarray, change: list, message: str) -> None:
    soft[4] = change
    with pytest.raises(InputError, match=f"^y: {message}"):
        quick().fit(rows[0], soft)
    tiny_graph.y = torch.tensor(soft[:20])
    known = "data: node 4 of val_mask has no label" if np.isnan(change).all() else f"data: labels 'y': {message}"
    with pytest.raises(InputError, match=f"^{known}"):
        classifier().fit(tiny_graph)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ([1, 2], "class_weight must be a mapping"),
        ({0: np.nan}, "class_weight of class 0 must be"),
        ({0: 1, "0": 2}, "class_weight names class 0 twice"),
        ({7: 1}, "class_weight names class 7, which no training row has; there are 0, 1, 2"),
    ],
)
def test_class_weights_that_are_refused(rows, class_weight: object, message: str) -> None:
    clf = quick(class_weight=class_weight)
    with pytest.raises(InputError, match=message):
        clf.fit(*rows[:2])
    assert not hasattr(clf, "model_")
