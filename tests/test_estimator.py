from __future__ import annotations

import dataclasses
import functools
import inspect
import io
import json
import pickle
import re
import struct
from collections.abc import Callable
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load, save_file
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch_geometric.data import Data

from pdadmm_g import GAMLP, GAMLPClassifier, InputError, Status
from pdadmm_g.config import ModelConfig
from pdadmm_g.errors import NotFiniteError


def small(**settings) -> GAMLPClassifier:
    fixed = {"layers": 3, "hidden": 16, "epochs": 30, "augment": "average", "weight_decay": 0.1, "random_state": 0}
    return GAMLPClassifier(**fixed | settings)


def joblib_dumps(estimator: object) -> bytes:
    buffer = io.BytesIO()
    joblib.dump(estimator, buffer)
    return buffer.getvalue()


def test_parameters_and_defaults_are_those_of_the_configuration() -> None:
    signature = inspect.signature(GAMLPClassifier).parameters
    # The kind of target is said by the class.
    expected = {field.name: field.default for field in dataclasses.fields(ModelConfig) if field.name != "target"}
    actual = {name: parameter.default for name, parameter in signature.items()}
    assert {name: actual[name] for name in expected} == expected
    assert actual.keys() - expected.keys() == {"verbose", "random_state"}


def test_the_docstring_documents_every_parameter() -> None:
    documented = re.findall(r"^    (\w+): ", GAMLPClassifier.__doc__ or "", re.MULTILINE)
    assert set(documented) >= set(inspect.signature(GAMLPClassifier).parameters)
    assert "neurons per hidden layer [default: 100]" in (GAMLPClassifier.__doc__ or "")


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


def test_model_alone_gives_the_same_predictions(tiny_graph: Data) -> None:
    clf = small(augment="hops").fit(tiny_graph)
    with torch.no_grad():
        logits = clf.model_(clf.augmentation_.features(tiny_graph))
    assert clf.classes_[logits.argmax(1)].tolist() == clf.predict(tiny_graph).tolist()


def test_labels_need_not_be_consecutive(tiny_graph: Data) -> None:
    tiny_graph.y = tiny_graph.y * 7 + 3
    clf = small().fit(tiny_graph)
    assert clf.classes_.tolist() == [3, 10]
    assert clf.score(tiny_graph) == 1.0


def test_masks_as_booleans_or_indices(tiny_graph: Data) -> None:
    expected = small().fit(tiny_graph)
    indices = tiny_graph.clone()
    for mask in ("train_mask", "val_mask"):
        indices[mask] = tiny_graph[mask].nonzero().view(-1)
    actual = small().fit(indices)
    np.testing.assert_array_equal(expected.predict_proba(tiny_graph), actual.predict_proba(tiny_graph))
    assert expected.score(tiny_graph, [0, 1]) == 1.0


def test_node_permutation_permutes_predictions(tiny_graph: Data) -> None:
    clf = small().fit(tiny_graph)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(0))
    permuted = Data(x=tiny_graph.x[order], edge_index=order.argsort()[tiny_graph.edge_index])
    np.testing.assert_allclose(clf.predict_proba(permuted), clf.predict_proba(tiny_graph)[order], atol=1e-5)


def test_without_validation_mask(tiny_graph: Data) -> None:
    del tiny_graph.val_mask
    clf = small(validation=0).fit(tiny_graph)
    assert clf.history_[-1]["val_accuracy"] is None
    assert "there are no validation nodes" in clf.choices_[0]
    assert clf.score(tiny_graph) == 1.0


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


def test_save_and_load(tmp_path: Path, tiny_graph: Data) -> None:
    clf = small(levels=(0.0, 0.5, 1.0, 2.0), quantize="p", augment="hops").fit(tiny_graph)
    clf.save(tmp_path / "model.safetensors")
    again = GAMLPClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict_proba(tiny_graph), clf.predict_proba(tiny_graph))
    assert again.status_ is clf.status_
    assert again.levels == clf.levels


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"settings": {"nonsense": 1}},
        {"settings": {"layers": -1}},
        {"settings": {}, "classes": [0, 1], "n_features_in": 99, "status": "MAX_EPOCHS", "graph": True},
        {"settings": {}, "classes": [0], "n_features_in": 4, "status": "MAX_EPOCHS", "graph": False},
        {"settings": {}, "classes": [0, 1], "n_features_in": 4, "status": "PERFECT", "graph": False},
    ],
)
def test_model_files_that_contradict_themselves_are_refused(tmp_path: Path, extra: dict[str, object]) -> None:
    GAMLP([4, 3, 2]).save(tmp_path / "model.safetensors", extra)
    with pytest.raises(InputError, match="not a pdadmm-g model file"):
        GAMLPClassifier.load(tmp_path / "model.safetensors")


def test_feature_count_must_fit(tiny_graph: Data) -> None:
    clf = small().fit(tiny_graph)
    tiny_graph.x = tiny_graph.x[:, :4]
    with pytest.raises(InputError, match="data has 4 features, the model was trained with 5"):
        clf.predict(tiny_graph)


def test_graph_model_refuses_a_matrix(tiny_graph: Data) -> None:
    clf = small().fit(tiny_graph)
    with pytest.raises(InputError, match="fitted on a graph"):
        clf.predict(tiny_graph.x.numpy())


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"rho": -1.0}, "rho must be a number, above 0"), ({"device": "abacus"}, "device 'abacus' is not available")],
)
def test_bad_settings_are_named(tiny_graph: Data, settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small(**settings).fit(tiny_graph)


def test_a_graph_without_edges_is_not_taken_for_none(tiny_graph: Data) -> None:
    clf = small().fit(tiny_graph)
    edgeless = Data(x=tiny_graph.x, y=tiny_graph.y, train_mask=tiny_graph.train_mask)
    for call in (small().fit, clf.predict):
        with pytest.raises(InputError, match="'edge_index' is missing"):
            call(edgeless)
    assert small(augment="none").fit(edgeless).predict(edgeless).shape == (20,)


def test_save_writes_what_was_fitted(tmp_path: Path, tiny_graph: Data) -> None:
    clf = small(augment="hops", hops=3).fit(tiny_graph)
    expected = clf.predict_proba(tiny_graph)
    clf.set_params(hops=2, layers=7).save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        GAMLPClassifier.load(tmp_path / "model.safetensors").predict_proba(tiny_graph), expected
    )


def test_numpy_numbers_are_numbers(tiny_graph: Data) -> None:
    clf = small(layers=np.int64(3), rho=np.float32(6.0)).fit(tiny_graph)
    assert clf.config_.layers == 3


def test_arrays_are_lists_of_numbers(tiny_graph: Data) -> None:
    clf = small(layers=3, stages=np.array([2, 3]), quantize="p", levels=np.linspace(-1, 5, 8)).fit(tiny_graph)
    assert clf.config_.stages == (2, 3)
    assert clf.config_.levels == tuple(np.linspace(-1, 5, 8))
    with pytest.raises(InputError, match="augment must be one of auto, none, .*, got"):
        small(augment=np.array(["hops", "none"])).fit(tiny_graph)
    with pytest.raises(InputError, match="levels must be a comma-separated list"):
        small(quantize="p", levels=np.float64(3.0)).fit(tiny_graph)


@pytest.mark.parametrize("kind", ["graph", "matrix"])
def test_where_training_fails_the_model_before_stays_with_its_features(tiny_graph: Data, kind: str) -> None:
    table = pd.DataFrame(tiny_graph.x.numpy(), columns=list("abcde"))
    labels, edges = tiny_graph.y.numpy(), tiny_graph.edge_index.numpy() if kind == "graph" else None
    clf = small(validation=0.0).fit(table, labels, edges)
    before = clf.predict(table, edge_index=edges)
    clf.set_params(calibrate=True)
    with pytest.raises(InputError, match="calibrate needs validation nodes"):
        clf.fit(table[["b", "c"]], labels, edges)
    assert clf.n_features_in_ == 5
    np.testing.assert_array_equal(
        clf.predict(table[list("edcba")] if edges is not None else table, edge_index=edges), before
    )


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


# ------------------------------------------------------------------------------------------------ feature matrices


def test_feature_matrix_with_string_labels() -> None:
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = make_pipeline(StandardScaler(), small(epochs=100))
    assert cross_val_score(model, X, names, cv=3).mean() > 0.9


def test_grid_search_and_clone() -> None:
    X, y = load_iris(return_X_y=True)
    search = GridSearchCV(small(epochs=5), {"weight_decay": [1e-3, 1e3]}, cv=2).fit(
        StandardScaler().fit_transform(X), y
    )
    assert search.best_params_ == {"weight_decay": 1e-3}
    assert clone(search.best_estimator_).get_params() == search.best_estimator_.get_params()


def test_grid_search_over_a_pipeline() -> None:
    X, y = load_iris(return_X_y=True)
    model = make_pipeline(StandardScaler(), small(layers=2, epochs=10))
    search = GridSearchCV(model, {"gamlpclassifier__hidden": [1, 8]}, cv=2).fit(X, y)
    assert search.best_estimator_[-1].model_.widths == (4, search.best_params_["gamlpclassifier__hidden"], 3)
    assert search.score(X, y) > 0.8


def test_parameters_are_kept_as_given_and_checked_when_fitting() -> None:
    clf = small().set_params(layers=4, rho="6", stages=[2, 4])
    assert clf.get_params()["rho"] == "6"
    assert clone(clf).get_params() == clf.get_params()
    X, y = load_iris(return_X_y=True)
    assert len(clf.fit(X, y).model_.linears) == 4
    assert clf.get_params()["stages"] == [2, 4]
    with pytest.raises(InputError, match="layers must be .* at least 2 .*, got 1"):
        clf.set_params(layers=1, stages=None).fit(X, y)
    with pytest.raises(ValueError, match="Invalid parameter 'depth'"):
        clf.set_params(depth=3)


@pytest.mark.parametrize("dump", [pickle.dumps, joblib_dumps], ids=["pickle", "joblib"])
def test_fitted_estimators_can_be_pickled(tiny_graph: Data, dump: Callable[[object], bytes]) -> None:
    clf = small(epochs=5, normalize="centered").fit(tiny_graph)
    again = joblib.load(io.BytesIO(dump(clf)))
    np.testing.assert_array_equal(again.predict_proba(tiny_graph), clf.predict_proba(tiny_graph))
    assert again.history_ == clf.history_
    assert again.status_ is clf.status_
    assert again.get_params() == clf.get_params()


def test_order_of_samples_does_not_matter() -> None:
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X).astype(np.float32)
    expected = small().fit(X, y).predict_proba(X)
    backwards = small().fit(X[::-1], y[::-1])  # negative strides, which torch does not have
    np.testing.assert_allclose(backwards.predict_proba(X[::-1])[::-1], expected, atol=1e-3)
    np.testing.assert_allclose(backwards.predict_proba(X), expected, atol=1e-3)


@parametrize_with_checks([GAMLPClassifier(layers=2, hidden=16, epochs=100)])
def test_scikit_learn_contract(estimator, check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # else the check with array_api_dispatch is skipped
    if check.func.__name__ == "check_sample_weight_equivalence_on_dense_data":
        # It wants seven digits of what was trained, in another order of rows, in single precision, which has seven.
        close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-5)
        monkeypatch.setattr("sklearn.utils.estimator_checks.assert_allclose_dense_sparse", close)
    check(estimator)


# -------------------------------------------------------------------------------------------- models, runs, checkpoints


def test_model_files_that_lie(tmp_path: Path, tiny_graph: Data) -> None:
    path = tmp_path / "m.safetensors"
    clf = GAMLPClassifier(layers=2, hidden=4, epochs=2, augment="average", weight_decay=0.1, normalize="centered")
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
        ({"linears.0.weight": None}, "linears.0.weight' is missing"),
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
        with pytest.raises(InputError, match="not a pdadmm-g model file: its"):
            GAMLPClassifier.load(path)
