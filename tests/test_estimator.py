from __future__ import annotations

import functools
import inspect
import json
import pickle
import re
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load, save_file
from sklearn.base import is_classifier
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch_geometric.data import Data

from helpers.communities import communities
from helpers.estimators import classifier
from pdadmm_g import GAMLP, GAMLPClassifier, GAMLPRegressor, InputError, NodeClassifier, Status, as_graph
from pdadmm_g.config import TargetKind
from pdadmm_g.errors import NotFiniteError


def small(**settings) -> GAMLPClassifier:
    fixed = {
        "layers": 3, "hidden": 16, "epochs": 30, "augment": "average", "teleport": 0.05, "normalize": "unit",
        "weight_decay": 0.1, "random_state": 0,
    }  # fmt: skip
    return GAMLPClassifier(**fixed | settings)


def test_the_docstring_documents_every_parameter() -> None:
    documented = re.findall(r"^    (\w+): ", GAMLPClassifier.__doc__ or "", re.MULTILINE)
    assert set(documented) >= set(inspect.signature(GAMLPClassifier).parameters)
    assert "neurons per hidden layer [default: 100, on a graph 400" in (GAMLPClassifier.__doc__ or "")


def test_graph(tiny_graph: Data) -> None:
    clf = small().fit(tiny_graph)
    assert clf.score(tiny_graph, tiny_graph.test_mask) == 1.0
    assert clf.score(tiny_graph) == 1.0
    assert clf.predict(tiny_graph).tolist() == tiny_graph.y.tolist()
    probabilities = clf.predict_proba(tiny_graph)
    assert probabilities.shape == (20, 2)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)
    assert (probabilities.argmax(1) == tiny_graph.y.numpy()).all()
    assert isinstance(clf.model_, GAMLP)
    assert isinstance(clf.status_, Status)
    assert clf.history_[-1]["epoch"] == len(clf.history_)
    with torch.no_grad():
        logits = clf.model_(clf.augmentation_.features(tiny_graph))
    assert clf.classes_[logits.argmax(1)].tolist() == clf.predict(tiny_graph).tolist()
    edgeless = Data(x=tiny_graph.x, y=tiny_graph.y, train_mask=tiny_graph.train_mask)
    for call in (small().fit, clf.predict):
        with pytest.raises(InputError, match="'edge_index' is missing"):
            call(edgeless)
    assert small(augment="none").fit(edgeless).predict(edgeless).shape == (20,)
    with pytest.raises(InputError, match="fitted on a graph"):
        clf.predict(tiny_graph.x.numpy())


def test_files_hold_what_was_fitted(tmp_path: Path, tiny_graph: Data) -> None:
    clf = small(levels=(0.0, 0.5, 1.0, 2.0), quantize="p", augment="hops", hops=3).fit(tiny_graph)
    expected = clf.predict_proba(tiny_graph)
    clf.set_params(hops=2, layers=7).save(tmp_path / "model.safetensors")
    for again in (GAMLPClassifier.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(clf))):
        np.testing.assert_array_equal(again.predict_proba(tiny_graph), expected)
        assert again.status_ is clf.status_
        assert again.levels == clf.levels


def test_numbers_and_arrays_of_any_kind_are_settings(tiny_graph: Data) -> None:
    """They stay as they were given, and are checked where training starts."""
    clf = small(layers=np.int64(3), rho="6", stages=np.array([2, 3]), quantize="p", levels=np.linspace(-1, 5, 8))
    config = clf.fit(tiny_graph).config_
    assert (config.layers, config.rho, config.stages, config.levels) == (3, 6, (2, 3), tuple(np.linspace(-1, 5, 8)))
    assert clf.get_params()["rho"] == "6"
    for name, value in (("augment", np.array(["hops", "none"])), ("levels", np.float64(3.0)), ("layers", 1)):
        with pytest.raises(InputError, match=f"{name} must be"):
            small(quantize="p", **{name: value}).fit(tiny_graph)


@pytest.mark.parametrize("kind", ["graph", "matrix"])
def test_where_training_fails_the_model_before_stays_with_its_features(tiny_graph: Data, kind: str) -> None:
    table = pd.DataFrame(tiny_graph.x.numpy(), columns=list("abcde"))
    labels, edges = tiny_graph.y.numpy(), tiny_graph.edge_index.numpy() if kind == "graph" else None
    clf = small(validation=0.0, epochs=3).fit(table, labels, edges)
    before = clf.predict(table, edge_index=edges)
    clf.set_params(calibrate=True)
    with pytest.raises(InputError, match="calibrate needs validation nodes"):
        clf.fit(table[["b", "c"]], labels, edges)
    assert clf.n_features_in_ == 5
    again = table[list("edcba")] if kind == "graph" else table
    np.testing.assert_array_equal(clf.predict(again, edge_index=edges), before)


def test_outputs_without_a_finite_norm_are_never_converged() -> None:
    """Beside an infinite norm of the outputs every residual is small."""
    X, y = load_iris(return_X_y=True)
    clf = small(layers=2, quantize="p", solver="linearized", tolerance=1e-3).fit(X * 1e18, y)
    assert (clf.status_, clf.message_) == (Status.NON_FINITE, "epoch 1, layer 1, variable q")


def test_no_prediction_is_nan(tiny_graph: Data) -> None:
    """Not for features whose sum has no inverse in single precision; and where a network overflows, it is said."""
    clf = small().fit(tiny_graph)
    tiny_graph.x[3] = 1e-40
    assert np.isfinite(clf.predict_proba(tiny_graph)).all()
    assert small().fit(tiny_graph).score(tiny_graph) > 0.5
    X, y = tiny_graph.x.numpy(), tiny_graph.y.numpy()
    clf = small().fit(X, y)
    for ask in (clf.predict, clf.predict_proba, lambda X: clf.score(X, y)):
        with pytest.raises(NotFiniteError, match="the prediction for row 3 of the features is NaN or infinite"):
            ask(np.where(np.arange(20)[:, None] == 3, np.float32(3e38), X))


def test_scoring_needs_labels_and_nodes(tiny_graph: Data) -> None:
    clf = small().fit(tiny_graph)
    with pytest.raises(InputError, match=r"node 4 has no label \(y = -1\)"):
        clf.score(Data(x=tiny_graph.x, edge_index=tiny_graph.edge_index, y=torch.full((20,), -1)), [4])
    with pytest.raises(InputError, match="mask is empty"):
        clf.score(tiny_graph, torch.zeros(20, dtype=torch.bool))
    with pytest.raises(InputError, match=r"labels of the graph, which it has already: write score\(data\)"):
        clf.score(tiny_graph, tiny_graph.y)  # zeros and ones, which else would be a mask
    with pytest.raises(InputError, match="labels 'y' are missing"):
        clf.score(Data(x=tiny_graph.x, edge_index=tiny_graph.edge_index), [0])
    expected = clf.score(tiny_graph)
    del tiny_graph.test_mask
    assert clf.score(tiny_graph) == expected  # the labelled nodes outside the other masks
    del tiny_graph.train_mask
    with pytest.raises(InputError, match="'test_mask' is missing"):
        clf.score(tiny_graph)


@parametrize_with_checks([kind(layers=2, hidden=16, epochs=100) for kind in (GAMLPClassifier, GAMLPRegressor)])
def test_scikit_learn_contract(estimator, check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # else the check with array_api_dispatch is skipped
    if check.func.__name__ == "check_sample_weight_equivalence_on_dense_data":
        # It wants seven digits of what was trained, in another order of rows, in single precision, which has seven.
        atol = 1e-5 if is_classifier(estimator) else 1e-4
        close = functools.partial(np.testing.assert_allclose, rtol=0, atol=atol)
        monkeypatch.setattr("sklearn.utils.estimator_checks.assert_allclose_dense_sparse", close)
    check(estimator)


# -------------------------------------------------------------------------------------------- models, runs, checkpoints


def test_model_files_that_lie(tmp_path: Path, tiny_graph: Data) -> None:
    path = tmp_path / "m.safetensors"
    clf = GAMLPClassifier(layers=2, hidden=4, epochs=2, augment="average", weight_decay=0.1, normalize="centered",
                          teleport=0.05)  # fmt: skip
    clf.fit(tiny_graph).save(path)
    content = path.read_bytes()
    assert GAMLPClassifier.load(path).classes_.tolist() == [0, 1]
    tensors = load(content)
    head = struct.unpack("<Q", content[:8])[0]
    about = json.loads(content[8 : 8 + head])["__metadata__"]["pdadmm_g"]

    def write(change: dict, description: str = about) -> None:
        kept = {name: value for name, value in (tensors | change).items() if value is not None}
        save_file(kept, str(path), metadata={"pdadmm_g": description})

    for change, message in (
        ({"linears.0.bias": torch.full((4,), float("inf"))}, "linears.0.bias holds something else than finite"),
        ({"extra.scale": torch.zeros(5)}, "column scales are not positive"),
        ({"extra.mean": torch.zeros(3)}, "column means do not fit"),
        ({"linears.1.bias": torch.zeros(3)}, "weights do not fit its description"),
        ({"linears.0.weight": None}, "weights do not fit its description"),
    ):
        write(change)
        with pytest.raises(InputError, match=message):
            GAMLPClassifier.load(path)
    for old, new in (
        ('"widths": [5, 4, 2]', f'"widths": [{10**12}, {10**12}, 2]'),
        ('"classes": [0, 1]', '"classes": [1, 1]'),
        ('"activation": "relu", "extra"', '"activation": "tanh", "extra"'),
    ):
        assert old in about
        write({}, about.replace(old, new))
        with pytest.raises(InputError, match="not a pdadmm-g model file: "):
            GAMLPClassifier.load(path)


DATA = communities(nodes=90)
NODES = np.arange(0, DATA.num_nodes, 2)
NAMES = np.array(["ash", "birch", "cedar"])[DATA.y]


def test_searches_and_cross_validation_of_scikit_learn() -> None:
    """Labels that come with the graph, and their names, are not those of a fold."""
    graph = as_graph(DATA.x.numpy(), NAMES, DATA.edge_index.numpy())
    model = NodeClassifier(classifier(epochs=20), graph)
    scores = cross_validate(model, NODES, NAMES[NODES], cv=3, scoring=["accuracy", "roc_auc_ovr"])
    assert scores["test_accuracy"].mean() > 0.6
    assert scores["test_roc_auc_ovr"].mean() > 0.8
    search = GridSearchCV(model, {"estimator__epochs": [1, 5]}, cv=2, scoring="neg_log_loss")
    search.fit(NODES[:, None], NAMES[NODES])
    assert search.best_params_ == {"estimator__epochs": 5}
    assert search.best_estimator_.estimator_.epochs == 5
    assert set(search.predict(np.arange(1, DATA.num_nodes, 2))) <= set(NAMES)


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
        estimator = Spy(**classifier().get_params())
        probabilities.append(NodeClassifier(estimator, graph).fit(NODES, NAMES[NODES]).predict_proba(NODES))
    np.testing.assert_array_equal(*probabilities)
    for data in seen:
        assert (data.y >= 0).nonzero().view(-1).tolist() == NODES.tolist()
        assert data.train_mask.nonzero().view(-1).tolist() == NODES.tolist()
        assert "val_mask" not in data


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
        NodeClassifier(classifier(), DATA).fit(nodes, ["ash", "birch"])


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_a_graph_with_targets_of_another_kind(kind: TargetKind) -> None:
    """Whatever the graph has, the labels are those of fit, which may stand in a column."""
    columns = np.stack([DATA.y.numpy() > 0, DATA.y.numpy() > 1], axis=1).astype(float)
    graph = as_graph(DATA.x.numpy(), columns, DATA.edge_index.numpy(), target=kind)
    expected = NodeClassifier(classifier(), DATA).fit(NODES, NAMES[NODES]).predict(NODES)
    np.testing.assert_array_equal(
        NodeClassifier(classifier(), graph).fit(NODES, NAMES[NODES, None]).predict(NODES), expected
    )
