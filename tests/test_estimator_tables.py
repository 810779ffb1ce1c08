"""What people write with two tables means what they mean, or one line says what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas as pd
import pytest
import torch

from pdadmm_g import GAMLPClassifier, Graph, InputError, NodeClassifier, as_graph

LABELS = np.array(["ant", "bee"])


def classifier(**settings: Any) -> GAMLPClassifier:
    fixed = {"layers": 2, "hidden": 8, "epochs": 3, "augment": "hops", "hops": 2, "normalize": "unit"}
    return GAMLPClassifier(**fixed | {"weight_decay": 0.1, "unlabelled": 0, "random_state": 0} | settings)


@pytest.fixture
def tables(tiny_graph: Graph) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Three nodes of each kind train; two validate; of the others, three have a label and two none."""
    nodes = pd.DataFrame(tiny_graph.x.numpy(), columns=list("abcde")).assign(label=LABELS[tiny_graph.y.numpy()])
    nodes["split"] = ["train", "train", "train", "val", "val", "", "", "", "", ""] * 2
    nodes.loc[nodes.index % 10 > 7, "label"] = None
    return nodes, pd.DataFrame(tiny_graph.edge_index.T.numpy(), columns=["source", "target"])


# ------------------------------------------------------------------------------------------------- which are scored


def test_without_test_nodes_those_outside_training_are_scored(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, edges = tables
    clf = classifier().fit(nodes, edge_index=edges)
    asked: list[int] = []
    predict = clf.predict

    def noted(data: Graph, given: torch.Tensor) -> Any:
        asked[:] = given.tolist()
        return predict(data, given)

    monkeypatch.setattr(clf, "predict", noted)
    unseen = [5, 6, 7, 15, 16, 17]
    clf.score(nodes, edge_index=edges)
    assert asked == unseen
    clf.score(as_graph(nodes, edge_index=edges))
    assert asked == unseen
    clf.score(nodes, nodes["label"], edge_index=edges)
    assert asked == unseen
    nodes.loc[[7, 8], "split"] = "test"
    clf.score(nodes, nodes["label"], edge_index=edges)  # 8 has no label
    assert asked == [7]
    with pytest.raises(InputError, match="node 8 has no label"):
        clf.score(nodes, edge_index=edges)
    clf.score(nodes.drop(columns="split"), nodes["label"], edge_index=edges)  # whoever gives labels knows whose
    assert asked == [node for node in range(20) if node % 10 < 8]


def test_who_is_scored_must_be_said(tables: Any) -> None:
    nodes, edges = tables
    clf = classifier().fit(nodes, edge_index=edges)
    plain = nodes.drop(columns="split")
    message = r"test_mask' is missing.*score\(data, mask\), or give labels: score\(nodes, y, edge_index=edges\)$"
    for call in (lambda: clf.score(plain, edge_index=edges), lambda: clf.score(as_graph(plain, edge_index=edges))):
        with pytest.raises(InputError, match=message):
            call()
    everyone = nodes.assign(split="train").dropna()
    joined = edges[edges.isin(everyone.index).all(axis=1)]
    with pytest.raises(InputError, match=message):
        clf.score(everyone, edge_index=joined)


# --------------------------------------------------------------------------------------- tables in their natural place


def test_a_table_of_edges_in_second_place(tables: Any) -> None:
    nodes, edges = tables
    clf = classifier().fit(nodes, edges)
    expected = classifier().fit(nodes, edge_index=edges)
    assert np.array_equal(clf.predict_proba(nodes, edges), expected.predict_proba(nodes, edge_index=edges))
    assert clf.predict(nodes, edges).tolist() == expected.predict(nodes, edge_index=edges).tolist()
    assert clf.predictions(nodes, edges)["label"].tolist() == clf.predict(nodes, edges).tolist()
    assert clf.score(nodes, edges) == expected.score(nodes, edge_index=edges)
    assert torch.equal(as_graph(nodes, edges).edge_index, as_graph(nodes, edge_index=edges).edge_index)
    features = nodes[list("abcde")].to_numpy()
    assert clf.fit(features, nodes["label"], edges).predict(features, edges).shape == (20,)


def test_nodes_without_edges(tables: Any) -> None:
    nodes, edges = tables
    with pytest.raises(InputError, match=r"'edge_index' is missing; give edges, fit\(nodes, edges\), or leave .*none"):
        classifier().fit(nodes)
    with pytest.raises(InputError, match="labels 'y' are missing; in a table they are the column 'label'"):
        classifier().fit(nodes.drop(columns="label"))
    with pytest.raises(InputError, match="'edge_index' is missing"):
        classifier().fit(nodes, edges).predict(nodes)
    alone = classifier(augment="none", hops=None).fit(nodes)
    assert alone.predict(nodes).shape == (20,)
    assert alone.score(nodes) <= 1.0


def test_graphs_alone(tables: Any, tmp_path: Path) -> None:
    nodes, edges = tables
    clf = classifier().fit(nodes, edges)
    remedy = r"as_graph\(nodes, edges\) makes one of tables"
    array = (nodes[list("abcde")].to_numpy(), f"data must be a graph, not a ndarray: {remedy}")
    for given, message in ((nodes, "'edge_index' is missing"), array):
        for write, name in ((clf.report, "page.html"), (clf.save, "run")):
            with pytest.raises(InputError, match=message):
                write(tmp_path / name, given)
    assert not [*tmp_path.iterdir()]
    with pytest.raises(InputError, match=f"graph must be a graph, not a DataFrame: {remedy}"):
        NodeClassifier(classifier(), nodes).fit([0, 1, 10, 11], [0, 0, 1, 1])
    graph = networkx.Graph(edges.to_numpy().tolist())
    networkx.set_node_attributes(graph, {i: row.tolist() for i, row in enumerate(nodes[list("abcde")].to_numpy())}, "x")
    networkx.set_node_attributes(graph, nodes["label"].to_dict(), "label")
    other = classifier().fit(graph)
    other.save(tmp_path / "run", graph)
    samples, expected = (
        NodeClassifier(classifier(), given).fit([0, 1, 10, 11], ["ant", "ant", "bee", "bee"])
        for given in (graph, as_graph(graph))
    )
    assert samples.predict([2, 12]).tolist() == expected.predict([2, 12]).tolist()
    assert np.array_equal(samples.predict_proba([2, 12]), expected.predict_proba([2, 12]))
