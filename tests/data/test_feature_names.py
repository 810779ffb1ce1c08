"""Columns are found by their names wherever they have any, and by their place where they have none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas as pd
import pytest
import torch

from pdadmm_g import GAMLP, GAMLPClassifier, Graph, InputError, as_graph, load_dataset

FEATURES = list("abcde")


def tables(data: Graph) -> tuple[pd.DataFrame, pd.DataFrame]:
    nodes = pd.DataFrame(data.x.numpy() * [1, 10, 1, -1, 3], columns=FEATURES).assign(label=data.y.numpy())
    return nodes, pd.DataFrame(data.edge_index.T.numpy(), columns=["source", "target"])


def fitted(nodes: pd.DataFrame, edges: pd.DataFrame, **settings: Any) -> GAMLPClassifier:
    fixed = {"layers": 2, "hidden": 8, "epochs": 3, "augment": "hops", "hops": 2, "normalize": "centered"}
    clf = GAMLPClassifier(**fixed | {"weight_decay": 0.1, "unlabelled": 0, "random_state": 0} | settings)
    return clf.fit(nodes, edge_index=edges)


@pytest.mark.parametrize("kind", ["as it is", "loaded", "run folder"])
def test_columns_in_another_order_give_the_same(tiny_graph: Graph, tmp_path: Path, kind: str) -> None:
    nodes, edges = tables(tiny_graph)
    clf = fitted(nodes, edges)
    assert clf.feature_names_in_.tolist() == FEATURES
    expected = clf.predict_proba(nodes, edge_index=edges)
    if kind in ("loaded", "run folder"):
        path = tmp_path / ("model.safetensors" if kind == "loaded" else "run")
        clf.save(path)
        clf = GAMLPClassifier.load(path)
        assert clf.feature_names_in_.tolist() == FEATURES
    other = nodes[["e", "label", "b", "a", "d", "c"]]
    assert np.array_equal(clf.predict_proba(other, edge_index=edges), expected)
    y = nodes["label"]
    assert clf.score(other, y, edge_index=edges) == clf.score(nodes, y, edge_index=edges)


WRONG = {
    "renamed": (
        {"a": "z"},
        "data: feature 'a' is missing, the model was trained with it; feature 'z' is unknown to it",
    ),
    "missing": ({"b": "label2"}, "feature 'b' is missing"),
    "many": (
        {name: name * 2 for name in FEATURES},
        "features 'a', 'b', 'c', ... are missing, the model was trained with them; "
        "features 'aa', 'bb', 'cc', ... are unknown to it",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_other_columns_are_refused(tiny_graph: Graph, name: str) -> None:
    nodes, edges = tables(tiny_graph)
    clf = fitted(nodes, edges)
    names, message = WRONG[name]
    with pytest.raises(InputError) as caught:
        clf.predict(nodes.rename(columns=names), edge_index=edges)
    assert message in str(caught.value)
    with pytest.raises(InputError, match="feature 'b' is missing, the model was trained with it$"):
        clf.predict(nodes.drop(columns="b"), edge_index=edges)
    with pytest.raises(InputError, match="data: feature 'age' is unknown to the model"):
        clf.predict(nodes.assign(age=1.0), edge_index=edges)


def test_without_names_on_one_side_columns_go_by_their_place(tiny_graph: Graph) -> None:
    nodes, edges = tables(tiny_graph)
    X, pairs = nodes[FEATURES].to_numpy(), edges.to_numpy().T
    clf = fitted(nodes, edges)
    expected = clf.predict_proba(nodes, edge_index=edges)
    np.testing.assert_allclose(clf.predict_proba(X, edge_index=pairs), expected, atol=1e-6)
    clf.fit(X, nodes["label"], edges)
    assert not hasattr(clf, "feature_names_in_")
    reordered = nodes[FEATURES[::-1]]
    backwards = clf.predict_proba(X[:, ::-1].copy(), edge_index=pairs)
    np.testing.assert_allclose(clf.predict_proba(reordered, edge_index=edges), backwards, atol=1e-6)
    numbered = nodes[FEATURES].set_axis(range(5), axis=1)
    assert as_graph(numbered, edge_index=edges).get("feature_names") is None


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".parquet"])
def test_files_have_names(tiny_graph: Graph, tmp_path: Path, kind: str) -> None:
    nodes, edges = tables(tiny_graph)
    paths = [tmp_path / f"{name}{kind}" for name in ("nodes", "edges")]
    for path, table in zip(paths, (nodes[["e", "label", "b", "a", "d", "c"]], edges), strict=True):
        if kind == ".parquet":
            table.to_parquet(path)
        else:
            table.to_csv(path, index=False, sep="\t" if kind == ".tsv" else ",")
    data = load_dataset(paths[0], edges=paths[1])
    assert data.feature_names == tuple("ebadc")
    clf = fitted(nodes, edges)
    np.testing.assert_allclose(clf.predict_proba(data), clf.predict_proba(nodes, edge_index=edges), atol=1e-6)


def test_attributes_of_networkx_nodes_have_names() -> None:
    graph = networkx.Graph([("p", "q")])
    graph.nodes["p"].update(size=1.0, height=2)
    graph.nodes["q"].update(height=4, size=3.0)
    assert as_graph(graph).feature_names == ("size", "height")
    lists = networkx.Graph([("p", "q")])
    networkx.set_node_attributes(lists, [1.0, 2.0], "x")
    assert as_graph(lists).get("feature_names") is None


def test_training_that_goes_on_from_a_model_goes_by_names_too(tiny_graph: Graph) -> None:
    nodes, edges = tables(tiny_graph)
    clf = fitted(nodes, edges, refit=True)
    settings = {name: value for name, value in clf.get_params().items() if name != "random_state"}
    again, other = (
        GAMLPClassifier(**settings, random_state=1).fit(table, edge_index=edges, init=clf)
        for table in (nodes, nodes[["e", "label", "b", "a", "d", "c"]])
    )
    assert other.feature_names_in_.tolist() == FEATURES
    expected = again.predict_proba(nodes, edge_index=edges)
    assert np.array_equal(other.predict_proba(nodes, edge_index=edges), expected)
    with pytest.raises(InputError, match="feature 'a' is missing"):
        GAMLPClassifier(**settings).fit(nodes.rename(columns={"a": "z"}), edge_index=edges, init=clf)


def test_features_of_a_matrix_keep_their_names(tiny_graph: Graph, tmp_path: Path) -> None:
    """scikit-learn looks after these itself; they must survive a file."""
    nodes, _ = tables(tiny_graph)
    clf = GAMLPClassifier(layers=2, epochs=3, weight_decay=0.1, random_state=0).fit(nodes[FEATURES], nodes["label"])
    clf.save(tmp_path / "model.safetensors")
    loaded = GAMLPClassifier.load(tmp_path / "model.safetensors")
    assert loaded.feature_names_in_.tolist() == FEATURES
    assert loaded.predict(nodes[FEATURES]).tolist() == clf.predict(nodes[FEATURES]).tolist()
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(nodes[FEATURES[::-1]])


def test_sparse_features_are_reordered(tiny_graph: Graph) -> None:
    nodes, edges = tables(tiny_graph)
    clf = fitted(nodes, edges)
    data = as_graph(nodes[FEATURES[::-1]], edge_index=edges)
    expected = clf.predict_proba(data)
    for sparse in (data.x.to_sparse(), data.x.to_sparse_csr()):
        data.x = sparse
        np.testing.assert_allclose(clf.predict_proba(data), expected, atol=1e-5)


@pytest.mark.parametrize("names", [["a", "b"], list("aabcd"), [1, 2, 3, 4, 5], "abcde"])
def test_names_of_a_graph_must_fit_its_columns(tiny_graph: Graph, names: Any) -> None:
    tiny_graph.feature_names = names
    with pytest.raises(InputError, match="data: feature_names must be 5 different names, one for each column of 'x'"):
        GAMLPClassifier().fit(tiny_graph)


def test_files_without_names_and_with_wrong_ones(tiny_graph: Graph, tmp_path: Path) -> None:
    """Models from before there were names still load; the rest is what somebody else may have written."""
    path = tmp_path / "model.safetensors"
    fitted(*tables(tiny_graph)).save(path)
    model, extra, tensors = GAMLP.load(path)
    assert extra["feature_names"] == FEATURES
    del extra["feature_names"]
    model.save(path, extra, tensors)
    assert not hasattr(GAMLPClassifier.load(path), "feature_names_in_")
    for wrong in (["a"], list("aabcd"), [1, 2, 3, 4, 5], "abcde", {}):
        model.save(path, json.loads(json.dumps(extra | {"feature_names": wrong})), tensors)
        with pytest.raises(InputError, match="feature"):
            GAMLPClassifier.load(path)


def test_names_are_saved_with_a_graph(tiny_graph: Graph, tmp_path: Path) -> None:
    nodes, edges = tables(tiny_graph)
    torch.save(as_graph(nodes, edge_index=edges), tmp_path / "graph.pt")
    assert load_dataset(tmp_path / "graph.pt").feature_names == tuple(FEATURES)
