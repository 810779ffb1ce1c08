from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import Compose

from helpers.estimators import classifier
from pdadmm_g import GAMLP, GAMLPClassifier, Graph, InputError
from pdadmm_g.graph.augmentation import GraphAugment


def test_entries_copies_and_the_number_of_nodes(tiny_graph: Graph) -> None:
    graph = Graph(x=torch.zeros(3, 2), y=None)
    graph.train_mask = torch.ones(3, dtype=torch.bool)
    assert graph["train_mask"] is graph.train_mask is graph.get("train_mask")
    assert ("x" in graph, "y" in graph, graph.y, graph.edge_index, graph.get("ids", 5)) == (True, False, None, None, 5)
    shallow, deep = copy.copy(graph), graph.clone()
    shallow.y = torch.arange(3)
    deep.x[0] = 1
    assert (graph.y, float(graph.x.sum()), shallow.x is graph.x) == (None, 0, True)
    edges = torch.tensor([[0, 4], [1, 2]])
    assert [Graph(edge_index=edges, **more).num_nodes for more in ({}, {"x": torch.zeros(6, 1)}, {"num_nodes": 7})] == [
        5, 6, 7,
    ]  # fmt: skip
    data = tiny_graph.to_pyg()
    assert isinstance(data, Data)
    assert data.to_dict() == tiny_graph.to_dict()


def test_augmentation_is_a_transform_of_either_kind(tiny_graph: Graph) -> None:
    before = tiny_graph.x
    ours, theirs = GraphAugment()(tiny_graph), Compose([GraphAugment()])(tiny_graph.to_pyg())
    assert isinstance(theirs, Data)
    assert torch.equal(ours.x, theirs.x)
    assert tiny_graph.x is before


FEATURES = list("abcde")
KNOWN = [*FEATURES, "number of neighbours"]


def tables(data: Graph) -> tuple[pd.DataFrame, pd.DataFrame]:
    nodes = pd.DataFrame(data.x.numpy() * [1, 10, 1, -1, 3], columns=FEATURES).assign(label=data.y.numpy())
    return nodes, pd.DataFrame(data.edge_index.T.numpy(), columns=["source", "target"])


def fitted(nodes: pd.DataFrame, edges: pd.DataFrame, **settings: Any) -> GAMLPClassifier:
    return classifier(normalize="centered", epochs=3, **settings).fit(nodes, edge_index=edges)


@pytest.mark.parametrize("kind", ["as it is", "loaded", "run folder"])
def test_columns_in_another_order_give_the_same(tiny_graph: Graph, tmp_path: Path, kind: str) -> None:
    nodes, edges = tables(tiny_graph)
    clf = fitted(nodes, edges)
    assert clf.feature_names_in_.tolist() == KNOWN
    expected = clf.predict_proba(nodes, edge_index=edges)
    if kind in ("loaded", "run folder"):
        path = tmp_path / ("model.safetensors" if kind == "loaded" else "run")
        clf.save(path)
        clf = GAMLPClassifier.load(path)
        assert clf.feature_names_in_.tolist() == KNOWN
    other = nodes[["e", "label", "b", "a", "d", "c"]]
    assert np.array_equal(clf.predict_proba(other, edge_index=edges), expected)
    y = nodes["label"]
    assert clf.score(other, y, edge_index=edges) == clf.score(nodes, y, edge_index=edges)
    for wrong, culprit in (
        (nodes.rename(columns={"a": "z"}), "features 'a' are missing.*; features 'z' are unknown"),
        (nodes.rename(columns=dict(zip("abcd", "tuvw", strict=True))), "features 'a', 'b', 'c', 'd' are missing"),
        (nodes.drop(columns="b"), "features 'b' are missing"),
        (nodes.assign(age=1.0), "features 'age' are unknown"),
    ):
        with pytest.raises(InputError, match=culprit):
            clf.predict(wrong, edge_index=edges)


def test_without_names_on_one_side_columns_go_by_their_place(tiny_graph: Graph) -> None:
    nodes, edges = tables(tiny_graph)
    X, pairs = nodes[FEATURES].to_numpy(), edges.to_numpy().T
    clf = fitted(nodes, edges)
    clf.fit(X, nodes["label"], edges)
    assert not hasattr(clf, "feature_names_in_")
    reordered = nodes[FEATURES[::-1]]
    backwards = clf.predict_proba(X[:, ::-1].copy(), edge_index=pairs)
    np.testing.assert_allclose(clf.predict_proba(reordered, edge_index=edges), backwards, atol=1e-6)


@pytest.mark.parametrize("names", [["a"], list("aabcd"), [1, 2, 3, 4, 5], "abcde", {}])
def test_names_must_fit_the_columns_of_a_graph_and_of_a_model_file(
    tiny_graph: Graph, tmp_path: Path, names: Any
) -> None:
    path = tmp_path / "model.safetensors"
    fitted(*tables(tiny_graph)).save(path)
    model, extra, tensors = GAMLP.load(path)
    model.save(path, extra | {"feature_names": names}, tensors)
    with pytest.raises(InputError, match="feature"):
        GAMLPClassifier.load(path)
    tiny_graph.feature_names = names
    with pytest.raises(InputError, match="feature_names must be 5 different names"):
        GAMLPClassifier().fit(tiny_graph)
