"""What people have a graph in, as one kind of object: a :class:`~pdadmm_g.data.graph.Graph`.

Matrices with edges or with a sparse adjacency, tables of nodes and edges, ``networkx`` graphs, DGL graphs, and
``torch_geometric``'s ``Data``, also with arrays inside. Three entries of the result remember what the user calls
things: ``ids`` of the nodes, where these are not 0, 1, 2, ...; ``label_names``, where labels are not whole numbers, and
``y`` numbers these, or the columns of ``y`` have names; and ``feature_names``, where the columns of ``x`` have names.
``unused_edge_columns`` are those of a table of edges that nothing is made of.
"""

from __future__ import annotations

import copy
import numbers
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config import TargetKind
from ..errors import InputError
from .checks import MASKS, as_tensor, hard_labels
from .columns import (
    ENDS,
    KNOWN,
    as_floats,
    check_weights,
    edge_columns,
    graph_of_columns,
    graph_of_edges,
    is_table,
    node_columns,
)
from .graph import Graph
from .labels import object_array, set_targets
from .matrices import as_features, as_matrix, from_matrix, is_sparse
from .targets import asked

Array = NDArray[Any]


def is_graph(X: Any) -> bool:
    """Is it a graph by itself, with its edges?"""
    return isinstance(X, Graph) or _is_pyg(X) or _is_networkx(X) or _is_dgl(X)


def as_graph(
    X: Any, y: Any = None, edge_index: Any = None, *, edge_weight: Any = None, target: TargetKind = "auto"
) -> Graph:
    """The graph in whatever people have it in, with the names that they gave to nodes and labels.

    Args:
        X: A graph (``torch_geometric``, ``networkx``, DGL), which has all of the rest; a feature matrix (array, tensor,
            scipy matrix); a pandas table of nodes with columns ``label`` and ``split`` if known, the rest features, and
            the ids of the nodes in a column ``id`` or the index; or None, for a graph without features, whose edges
            name nodes by their numbers.
        y: Labels of a matrix or table: whole numbers or text; -1, None, NaN or "" for a node without label. Or
            probabilities. Or a column for each of several labels or numbers, see :mod:`.targets`.
        edge_index: Numbers of nodes (2, edges), a square scipy matrix, or a pandas table with columns ``source`` and
            ``target``, by the ids of nodes, and perhaps ``weight``. Such a table may stand in the place of ``y``.
        edge_weight: A positive number an edge, where ``edge_index`` has none.
        target: What the labels are: ``classification``, ``multilabel`` or ``regression``; ``auto`` for several labels
            where there are several columns of 0 and 1, else classes.
    """
    y, edge_index = edges_apart(y, edge_index)
    if is_graph(X):
        for name, given in (("y", y), ("edge_index", edge_index), ("edge_weight", edge_weight)):
            if given is not None:
                raise InputError(f"{name} is given beside a graph, which has its own: leave it out, or pass a matrix")
        if isinstance(X, Graph):
            return _with_tensors(X, target)
        if _is_pyg(X):
            return _from_pyg(X, target)
        return from_networkx(X, target=target) if _is_networkx(X) else _from_dgl(X, target)
    if X is None and is_table(edge_index):
        return graph_of_edges(y, edge_columns(edge_index), edge_weight, target)
    if is_table(X) or is_table(edge_index):
        nodes = node_columns(X) if is_table(X) else {"x": X}
        if y is not None:
            _check_apart(nodes.get("feature_names", ()), y)
            nodes["label"] = y if isinstance(y, list | tuple) or is_table(y) or is_sparse(y) else np.asarray(y)
        edges = edge_columns(edge_index) if is_table(edge_index) else edge_index
        return graph_of_columns(nodes, edges, edge_weight=edge_weight, target=target)
    return from_matrix(X, y, edge_index, edge_weight, target)


def _check_apart(features: Sequence[Any], y: Any) -> None:
    """Raise if a column is learned and a feature as well."""
    learned = [*y.columns] if is_table(y) else [getattr(y, "name", None)]
    both = next((name for name in learned if name is not None and name in features), None)
    if both is not None:
        raise InputError(f"column {both!r} is learned, and a feature as well: drop it from the table of nodes")


def edges_apart(second: Any, edge_index: Any) -> tuple[Any, Any]:
    """What was given in second place, and the edges: a table of edges is meant as such in either place."""
    is_edges = is_table(second) and {*ENDS} <= {*map(str, second.columns)}
    return (None, second) if edge_index is None and is_edges else (second, edge_index)


def graph_alone(data: Any, name: str, target: TargetKind = "auto") -> Graph:
    """The graph in the argument of that ``name``, which takes nothing beside it."""
    if not is_graph(data):
        remedy = "as_graph(nodes, edges) makes one of tables, as_graph(X, y, edge_index) one of arrays"
        raise InputError(f"{name} must be a graph, not a {type(data).__name__}: {remedy}")
    return as_graph(data, target=target)


def labels_of(data: Graph) -> Array:
    """The label of every node as the user calls it; of those without, whatever is first."""
    y = hard_labels(data).numpy()
    names = data.get("label_names")
    return y if names is None else names[y.clip(0)]


def ids_of(data: Graph) -> Array:
    """What the user calls the nodes."""
    ids = data.get("ids")
    return np.arange(data.num_nodes) if ids is None else ids


# ------------------------------------------------------------------------------------------------ graphs as objects


def _is_pyg(X: Any) -> bool:
    # Whoever has such an object has loaded the library already.
    library = sys.modules.get("torch_geometric.data.data")
    return library is not None and isinstance(X, library.BaseData)


def _from_pyg(X: Any, target: TargetKind) -> Graph:
    from torch_geometric.data import Data

    if not isinstance(X, Data):
        raise InputError(f"data: a {type(X).__name__} has several kinds of nodes: take one with data.to_homogeneous()")
    return _with_tensors(Graph(**X.to_dict()), target)


def _with_tensors(data: Graph, target: TargetKind) -> Graph:
    """The same graph with tensors inside, edges as pairs and weights of edges under their own name."""
    data = copy.copy(data)
    if data.x is not None and not isinstance(data.x, Tensor):
        data.x = as_features(data.x, "data: features 'x'")
    if data.edge_index is None and data.get("adj_t") is not None:
        adjacency = data.adj_t
        if isinstance(adjacency, Tensor):
            adjacency = adjacency.to_sparse_coo().coalesce()
            (targets, sources), weights = adjacency.indices(), adjacency.values()
        else:  # torch_sparse's own kind
            targets, sources, weights = adjacency.coo()
        data.edge_index = torch.stack([sources, targets])
        if weights is not None and bool((weights != 1).any()):
            data.edge_weight = weights
        del data["adj_t"]
    elif data.edge_index is not None and not isinstance(data.edge_index, Tensor):
        data.edge_index = as_tensor(_array(data.edge_index), "data: edge_index must be whole numbers")
    if data.y is not None and data.get("label_names") is None and not isinstance(data.y, Tensor):
        set_targets(data, data.y, "data: labels 'y'", target)
    return asked(data, target)


def _array(values: Any) -> Any:
    """Lists as one array; those of different lengths as they are, for whoever refuses them."""
    try:
        return np.asarray(values)
    except ValueError:
        return values


def _is_networkx(X: Any) -> bool:
    return hasattr(X, "is_directed") and hasattr(X, "adjacency") and hasattr(X, "nodes") and hasattr(X, "edges")


def from_networkx(graph: Any, culprit: str = "graph", target: TargetKind = "auto") -> Graph:
    """Node attributes ``label`` (or ``y``), ``split`` and ``x``, or each other number a feature; edge ``weight``."""
    ids = list(graph.nodes)
    if not ids:
        raise InputError(f"{culprit}: there is no node")
    attributes = [graph.nodes[node] for node in ids]
    names = {name: None for own in attributes for name in own}
    nodes: dict[str, Any] = {"id": object_array(ids)}
    for name in names:
        if name in KNOWN or (name == "y" and "label" not in names):
            nodes["label" if name == "y" else name] = object_array([own.get(name) for own in attributes])
    features = ["x"] if "x" in names else [name for name in names if name not in (*KNOWN, "y")]
    features = [name for name in features if name == "x" or any(_is_number(own.get(name)) for own in attributes)]
    if features:
        lacking = next(((n, f) for n, own in zip(ids, attributes, strict=True) for f in features if f not in own), None)
        if lacking:
            raise InputError(f"{culprit}: node {lacking[0]!r} has no {lacking[1]!r}, which is a feature of others")
        rows = [own["x"] for own in attributes] if "x" in names else [[own[f] for f in features] for own in attributes]
        nodes["x"] = as_matrix(rows, f"{culprit}: features")
        if "x" not in names:
            nodes["feature_names"] = features
    place = {node: number for number, node in enumerate(ids)}
    ends = [(place[a], place[b], own.get("weight")) for a, b, own in graph.edges(data=True)]
    weighted = [w for _, _, w in ends if w is not None]
    if weighted and len(weighted) < len(ends):
        raise InputError(f"{culprit}: some edges have a 'weight' and others none: give all of them one")
    pairs = np.array([(a, b) for a, b, _ in ends], dtype=np.int64).reshape(-1, 2).T
    weights = None
    if weighted:
        weights = as_floats(weighted, f"{culprit}: 'weight' of edges")
        check_weights(weights, f"{culprit}: 'weight'", lambda edge: f"edge {tuple(ids[end] for end in ends[edge][:2])}")
    if not graph.is_directed():
        pairs = np.concatenate([pairs, pairs[::-1]], axis=1)
        weights = None if weights is None else np.concatenate([weights, weights])
    return graph_of_columns(nodes, pairs, edge_weight=weights, culprit=culprit, target=target)


def _is_dgl(X: Any) -> bool:
    return hasattr(X, "ndata") and hasattr(X, "edata") and hasattr(X, "num_nodes")


def _from_dgl(graph: Any, target: TargetKind) -> Graph:
    """``feat`` (or ``x``), ``label`` (or ``y``) and masks of ``ndata``, ``weight`` (or ``w``) of ``edata``."""

    def first(owner: Any, *names: str) -> Any:
        return next((owner[name] for name in names if name in owner), None)

    sources, targets = graph.edges()
    data = Graph(
        x=first(graph.ndata, "feat", "x"),
        edge_index=torch.stack([torch.as_tensor(sources), torch.as_tensor(targets)]).long(),
        y=first(graph.ndata, "label", "y"),
    )
    for mask in MASKS:
        if mask in graph.ndata:
            data[mask] = graph.ndata[mask]
    weight = first(graph.edata, "weight", "w")
    if weight is not None:
        data.edge_weight = weight
    if data.x is None:
        data["num_nodes"] = int(graph.num_nodes())
    return _with_tensors(data, target)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real)
