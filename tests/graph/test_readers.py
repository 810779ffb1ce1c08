"""One small graph in everything that people have graphs in: the same predictions."""

from __future__ import annotations

from typing import Any

import networkx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data

from helpers.estimators import classifier
from pdadmm_g import InputError, as_graph
from pdadmm_g.graph.checks import check_graph

NAMES = np.array(["ant", "bee"])
IDS = [f"node {number}" for number in range(20)]
SPLIT = ["train", "train", "train", "val", "val", "val", "", "", "", ""] * 2


def node_table(data: Data) -> pd.DataFrame:
    features = pd.DataFrame(data.x.numpy(), columns=[f"feature {place}" for place in range(5)])
    return features.assign(id=IDS, label=NAMES[data.y.numpy()], split=SPLIT)


def edge_table(data: Data) -> pd.DataFrame:
    sources, targets = data.edge_index.tolist()
    return pd.DataFrame({"source": [IDS[a] for a in sources], "target": [IDS[b] for b in targets]})


def as_networkx(data: Data) -> networkx.Graph:
    graph = networkx.Graph()
    for number, name in enumerate(IDS):
        label, split = str(NAMES[data.y[number]]), SPLIT[number]
        graph.add_node(name, x=data.x[number].tolist(), label=label, split=split)
    graph.add_edges_from((IDS[a], IDS[b]) for a, b in data.edge_index.T.tolist())
    return graph


class FakeDgl:
    """What we use of a DGL graph."""

    def __init__(self, data: Data) -> None:
        self.ndata = {"feat": data.x, "label": data.y, "train_mask": data.train_mask, "val_mask": data.val_mask}
        self.edata: dict[str, torch.Tensor] = {}
        self._edges = data.edge_index

    def edges(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._edges[0], self._edges[1]

    def num_nodes(self) -> int:
        return 20


def with_arrays(data: Data) -> Data:
    arrays = {name: data[name].numpy() for name in ("x", "edge_index", "y", "train_mask", "val_mask")}
    return Data(**arrays)


def with_transposed_adjacency(data: Data) -> Data:
    sources, targets = data.edge_index
    adjacency = torch.sparse_coo_tensor(torch.stack([targets, sources]), torch.ones(len(sources)), (20, 20))
    masks = {name: data[name] for name in ("train_mask", "val_mask")}
    return Data(x=data.x, y=data.y, adj_t=adjacency.to_sparse_csr(), **masks)


def with_sparse_features(data: Data) -> Data:
    changed = data.clone()
    changed.x = scipy.sparse.csr_matrix(data.x.numpy())
    return changed


GRAPHS = {
    "a Data": lambda data: data.to_pyg(),
    "arrays in a Data": with_arrays,
    "adj_t": with_transposed_adjacency,
    "scipy features": with_sparse_features,
    "networkx": as_networkx,
    "DGL": FakeDgl,
    "tables": lambda data: as_graph(node_table(data), edge_index=edge_table(data), columns=()),
    "index as id": lambda data: as_graph(node_table(data).set_index("id"), edge_index=edge_table(data), columns=()),
    "lists as x": lambda data: as_graph(
        pd.DataFrame({"id": IDS, "x": data.x.tolist(), "label": NAMES[data.y], "split": SPLIT}),
        edge_index=edge_table(data),
    ),
}


@pytest.mark.parametrize("kind", GRAPHS)
def test_every_way_in_gives_the_same_predictions(tiny_graph: Data, kind: str) -> None:
    expected = classifier().fit(tiny_graph)
    graph = GRAPHS[kind](tiny_graph)
    clf = classifier().fit(graph)
    tolerance = 1e-6 if kind == "scipy features" else 0  # sums of a row in another order
    np.testing.assert_allclose(clf.predict_proba(graph), expected.predict_proba(tiny_graph), rtol=0, atol=tolerance)
    names = clf.classes_.tolist()
    assert names in ([0, 1], ["ant", "bee"])
    assert clf.predict(graph).tolist() == [names[label] for label in expected.predict(tiny_graph)]
    assert clf.score(graph, tiny_graph.test_mask) == expected.score(tiny_graph)


@pytest.mark.parametrize("kind", ["array", "tensor", "list", "adjacency", "table"])
def test_features_labels_and_edges(tiny_graph: Data, kind: str) -> None:
    """Beside a matrix, edges of any kind; labels that are not there are of nodes without one."""
    sources, targets = tiny_graph.edge_index.numpy()
    adjacency = scipy.sparse.coo_array((np.ones(len(sources)), (sources, targets)), shape=(20, 20))
    table = pd.DataFrame({"source": sources, "target": targets})
    edges = {
        "array": tiny_graph.edge_index.numpy(), "tensor": tiny_graph.edge_index,
        "list": tiny_graph.edge_index.tolist(), "adjacency": adjacency, "table": table,
    }[kind]  # fmt: skip
    y = [None if number % 10 > 5 else str(NAMES[label]) for number, label in enumerate(tiny_graph.y)]
    X = tiny_graph.x.numpy()
    clf = classifier().fit(X, y, edges)
    assert clf.classes_.tolist() == ["ant", "bee"]
    assert clf.predict(X, edge_index=edges).tolist() == NAMES[tiny_graph.y].tolist()
    assert clf.score(X, y, edge_index=edges) == 1.0
    assert clf.predict(X, [0, 19], edge_index=edges).tolist() == ["ant", "bee"]


@pytest.mark.parametrize("nothing", [None, float("nan"), "", -1, pd.NA])
def test_what_counts_as_no_label(nothing: Any) -> None:
    graph = as_graph(np.ones((3, 1)), [nothing, "b", "a"], [[0], [1]])
    assert (graph.y.tolist(), graph.label_names.tolist()) == ([-1, 1, 0], ["a", "b"])
    numbers = as_graph(np.ones((3, 1)), np.array([nothing, 4, 2], dtype=object), [[0], [1]])
    assert (numbers.y.tolist(), numbers.get("label_names")) == ([-1, 4, 2], None)


def test_weights_of_every_kind_are_the_same(tiny_graph: Data) -> None:
    generator = np.random.default_rng(0)
    matrix = np.triu(generator.random((20, 20)) * (np.arange(20)[:, None] // 10 == np.arange(20) // 10), 1)
    sources, targets = np.nonzero(matrix)
    weights = matrix[sources, targets]
    pairs = np.stack([sources, targets])
    graph = networkx.Graph()
    graph.add_nodes_from(range(20))
    graph.add_weighted_edges_from(zip(sources.tolist(), targets.tolist(), weights.tolist(), strict=True))
    table = pd.DataFrame({"source": sources, "target": targets, "weight": weights})
    X = tiny_graph.x.numpy()
    found = [
        as_graph(X, edge_index=pairs, edge_weight=weights),
        as_graph(X, edge_index=scipy.sparse.csr_array(matrix)),
        as_graph(pd.DataFrame(X, columns=list("abcde")), edge_index=table),
        as_graph(pd.DataFrame(X, columns=list("abcde")), table[["source", "target"]], edge_weight=weights),
        Data(x=tiny_graph.x, edge_index=torch.from_numpy(pairs), edge_attr=torch.from_numpy(weights)[:, None]),
    ]
    clf = classifier().fit(tiny_graph)
    expected = clf.predict_proba(found[0])
    for other in found[1:]:
        np.testing.assert_allclose(clf.predict_proba(other), expected, atol=1e-6)
    assert sorted(as_graph(graph).edge_weight.tolist()) == sorted([*weights.tolist(), *weights.tolist()])
    assert not np.allclose(clf.predict_proba(X, edge_index=pairs), expected, atol=1e-3)


REFUSED = {
    "labels beside a graph": (lambda g: as_graph(g, [0] * 20), "y is given beside a graph, which has its own"),
    "sample_weight in third place": (
        lambda g: classifier().fit(g.x.numpy(), g.y.numpy(), np.ones(20)),
        r"edge_index must have shape \(2, edges\), got \(20,\); weights of rows are sample_weight",
    ),
    "edges of different lengths": (
        lambda g: as_graph(Data(x=g.x, edge_index=[[0, 1], [1]])), "data: edge_index must be whole numbers, not list",
    ),
    "no square": (lambda g: as_graph(g.x, None, scipy.sparse.eye_array(3, 4)), "an adjacency must be square"),
    "weight in a graph": (
        lambda g: as_graph(networkx.Graph([("p", "q", {"weight": 1}), ("q", "r", {"weight": 0})])),
        r"graph: edges: column 'weight' must be positive and finite numbers, but row 1 .* has 0",
    ),
    "column twice": (
        lambda g: as_graph(pd.concat([node_table(g), node_table(g)[["feature 3"]]], axis=1), edge_table(g)),
        "nodes: column 'feature 3' is there twice",
    ),
    "labels of two kinds": (lambda g: as_graph(g.x, [1, "a"] * 10, [[0], [1]]), "all text or all whole numbers, got"),
    "ids that are one as text": (
        lambda _: as_graph(
            pd.DataFrame({"f": [1.0, 2.0], "id": np.array([1, "1"], dtype=object)}),
            pd.DataFrame({"source": ["1"], "target": ["1"]}),
        ), "nodes 1 and '1' have the same name",
    ),
    "weights twice": (
        lambda g: as_graph(node_table(g), edge_table(g).assign(weight=1.0), edge_weight=np.ones(g.edge_index.shape[1])),
        "edge_weight is given beside a column 'weight' of the edges",
    ),
    "weights without edges": (
        lambda g: classifier().fit(g.x.numpy(), g.y.numpy(), edge_weight=[1]), "edge_weight is given without edges",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused(tiny_graph: Data, name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        call(tiny_graph)


def test_a_column_x_of_lists_is_all_features_and_one_of_numbers_is_one() -> None:
    edges = pd.DataFrame({"source": [0], "target": [1]})
    graph = as_graph(pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]}), edges)
    assert (graph.table.to_numpy().tolist(), graph.feature_names) == ([[1, 3], [2, 4]], ("x", "y"))
    nodes = pd.DataFrame({"x": [[1.0, 2.0], [3.0, 4.0]]})
    assert as_graph(nodes, edge_index=edges).x.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InputError, match="nodes: column 'x' of lists .*'age'"):
        as_graph(nodes.assign(age=[30, 40], size=[5, 6]), edge_index=edges)


def test_a_networkx_graph_keeps_its_direction() -> None:
    graph = networkx.DiGraph([("b", "a"), ("c", "b")])
    assert as_graph(graph).edge_index.tolist() == [[0, 2], [1, 0]]
    assert as_graph(graph.to_undirected()).edge_index.shape == (2, 4)
    numbers = networkx.Graph()
    numbers.add_node("p", size=1.0, height=2, name="any")
    numbers.add_node("q", size=3.0, height=4, name="text")
    assert as_graph(numbers).x.tolist() == [[1, 2], [3, 4]]
    numbers.add_node("r", size=1.0)
    with pytest.raises(InputError, match="node 'r' has no 'height', which is a feature of others"):
        as_graph(numbers)


def test_a_table_of_edges_alone_names_nodes_by_their_numbers(tiny_graph: Data) -> None:
    """Without features there may be nodes that have no edge, as far as labels tell of them."""
    labels = [*tiny_graph.y.tolist(), 1]
    pairs = pd.DataFrame(tiny_graph.edge_index.T.numpy(), columns=["source", "target"])
    for edges in (pairs, tiny_graph.edge_index.numpy()):
        found = check_graph(as_graph(None, labels, edges))
        assert torch.equal(found.edge_index, tiny_graph.edge_index)
        assert len(found.x) == len(found.y) == 21
    weighted = as_graph(None, labels, pairs.assign(weight=2.0, note="old"))
    assert weighted.edge_weight.tolist() == [2.0] * len(pairs)
    assert "columns 'note' of the edges are not used" in weighted.notes[0]
    with pytest.raises(
        InputError, match="edges: column 'source' must be whole numbers where no table of nodes has ids"
    ):
        as_graph(None, labels, edge_table(tiny_graph))
    with pytest.raises(InputError, match="edge_index names node 10000000000: say how many there are with num_nodes"):
        check_graph(as_graph(None, None, [[0], [10**10]]))
