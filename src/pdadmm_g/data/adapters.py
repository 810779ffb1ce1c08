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
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import repeat
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config import TargetKind
from ..errors import InputError
from .checks import LARGEST_LABEL, MASKS, as_tensor, bad_weight, hard_labels
from .feature_names import check_lists_alone
from .graph import Graph
from .propagation import quiet
from .targets import FOR_NUMBERS, asked, columns_of

Array = NDArray[Any]
#: Columns of a node table, and attributes of a node, that are no features.
KNOWN = ("id", "label", "split", *MASKS)
#: What is said of one that is no number.
FEATURES = f"every column is a feature but {', '.join(KNOWN)}"
#: Columns of an edge table that say who is joined.
ENDS = ("source", "target")
#: What a split may be called.
SPLITS = {"train": "train_mask", "val": "val_mask", "valid": "val_mask", "validation": "val_mask", "test": "test_mask"}
YES, NO = ("true", "1", "1.0", "yes"), ("false", "0", "0.0", "no", "", "nan", "none")


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
        return _of_edge_table(y, edge_columns(edge_index), edge_weight, target)
    if is_table(X) or is_table(edge_index):
        nodes = node_columns(X) if is_table(X) else {"x": X}
        if y is not None:
            _check_apart(nodes.get("feature_names", ()), y)
            nodes["label"] = y if isinstance(y, list | tuple) or is_table(y) or _is_sparse(y) else np.asarray(y)
        edges = edge_columns(edge_index) if is_table(edge_index) else edge_index
        return graph_of_columns(nodes, edges, edge_weight=edge_weight, target=target)
    return _from_matrix(X, y, edge_index, edge_weight, target)


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
        from torch_geometric.utils import to_edge_index

        (targets, sources), weights = to_edge_index(data.adj_t)
        data.edge_index = torch.stack([sources, targets])
        if weights is not None and bool((weights != 1).any()):
            data.edge_weight = weights
        del data["adj_t"]
    elif data.edge_index is not None and not isinstance(data.edge_index, Tensor):
        data.edge_index = as_tensor(_array(data.edge_index), "data: edge_index must be whole numbers")
    if data.y is not None and data.get("label_names") is None and not isinstance(data.y, Tensor):
        _set_targets(data, data.y, "data: labels 'y'", target)
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
        weights = _as_floats(weighted, f"{culprit}: 'weight' of edges")
        _check_weights(
            weights, f"{culprit}: 'weight'", lambda edge: f"edge {tuple(ids[end] for end in ends[edge][:2])}"
        )
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


# -------------------------------------------------------------------------------------------- matrices and adjacency


def _from_matrix(X: Any, y: Any, edge_index: Any, edge_weight: Any, target: TargetKind) -> Graph:
    data = Graph()
    if X is not None:
        data.x = as_features(X, "X")
    pairs, weights = _pairs(edge_index, edge_weight)
    data.edge_index = pairs
    if weights is not None:
        data.edge_weight = weights
    if X is None and _is_sparse(edge_index):
        data["num_nodes"] = edge_index.shape[0]
    if y is not None:
        _set_targets(data, y, "y", target)
    return asked(data, target)


def _is_sparse(X: Any) -> bool:
    import scipy.sparse

    return bool(scipy.sparse.issparse(X))


def _pairs(edge_index: Any, edge_weight: Any) -> tuple[Tensor, Any]:
    """Edges as pairs of nodes, and their weights, from pairs or an adjacency."""
    if _is_sparse(edge_index):
        if edge_index.shape[0] != edge_index.shape[1]:
            raise InputError(f"edge_index: an adjacency must be square, got {edge_index.shape}")
        if edge_weight is not None:
            raise InputError("edge_weight is given beside an adjacency, whose entries are the weights: leave it out")
        coo = edge_index.tocoo()
        kept = coo.data != 0  # setdiag(0), for one, leaves zeros that are no edges
        values = None if coo.dtype == bool or bool((coo.data[kept] == 1).all()) else coo.data[kept]
        return torch.from_numpy(np.stack([coo.row[kept], coo.col[kept]]).astype(np.int64)), values
    if not isinstance(edge_index, Tensor):
        edge_index = np.asarray(edge_index)
        if edge_index.size == 0:
            edge_index = np.empty((2, 0), dtype=np.int64)
    pairs = as_tensor(edge_index, "edge_index must be whole numbers")
    if pairs.ndim != 2 or pairs.shape[0] != 2:
        remedy = "; weights of rows are sample_weight=..." if pairs.ndim == 1 else ""
        raise InputError(f"edge_index must have shape (2, edges), got {tuple(pairs.shape)}{remedy}")
    return pairs, edge_weight


def as_features(X: Any, culprit: str) -> Tensor:
    """Features as a tensor, sparse if they are."""
    if isinstance(X, Tensor):
        return X
    if hasattr(X, "to_torch_sparse_csr_tensor"):  # torch_sparse's own kind
        return cast(Tensor, X.to_torch_sparse_csr_tensor())
    if _is_sparse(X):
        coo = X.tocoo()
        place = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
        with quiet():
            return torch.sparse_coo_tensor(place, torch.from_numpy(coo.data.astype(np.float32)), coo.shape).coalesce()
    return as_tensor(as_matrix(X, culprit), f"{culprit} must be numbers")


def as_matrix(rows: Any, culprit: str) -> Array:
    """A matrix of numbers, or an :class:`InputError`."""
    try:
        matrix = np.asarray(rows)
        if matrix.dtype.kind not in "biufc":
            matrix = np.asarray(rows, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError(f"{culprit} must be numbers, as many for each node") from None
    if matrix.ndim != 2:
        raise InputError(f"{culprit} must be a matrix with a row a node, got shape {matrix.shape}")
    return matrix


# ------------------------------------------------------------------------------------------------------------- tables


def is_table(value: Any) -> bool:
    """Is it a table of pandas, or one that behaves so?"""
    return hasattr(value, "columns") and hasattr(value, "iloc")


def node_columns(table: Any) -> dict[str, Any]:
    """The columns of a pandas table of nodes, features as one matrix ``x``."""
    twice = table.columns[table.columns.duplicated()]
    if len(twice):
        raise InputError(f"nodes: column {twice[0]!r} is there twice: give each its own name")
    columns = {name: table[name].to_numpy() for name in table.columns if name in KNOWN}
    columns.setdefault("id", table.index.to_numpy())
    features = [name for name in table.columns if name not in KNOWN]
    if "x" in features and table["x"].dtype.kind not in "biuf":
        check_lists_alone(features, "nodes")
        columns["x"] = as_matrix([np.asarray(row) for row in table["x"]], "nodes: column 'x'")
    elif features:
        for name in features:
            if table[name].dtype.kind not in "biuf":
                raise InputError(f"nodes: column {name!r} must be numbers, not {table[name].dtype}; {FEATURES}")
        columns["x"] = table[features].to_numpy(dtype=np.float32)
        columns["feature_names"] = features
    return columns


def edge_columns(table: Any) -> dict[str, Any]:
    """The columns of a pandas table of edges."""
    return {str(name): table[name].to_numpy() for name in table.columns}


def graph_of_columns(
    nodes: Mapping[str, Any],
    edges: Mapping[str, Any] | Any,
    *,
    edge_weight: Any = None,
    culprit: str = "nodes",
    edge_culprit: str = "edges",
    target: TargetKind = "auto",
) -> Graph:
    """The graph of a table of nodes and one of edges, by the ids of nodes; or of edges by their numbers.

    Nodes have ``id``, ``label``, perhaps with several columns, ``split`` or masks, ``x`` and ``feature_names``, each if
    known; edges have ``source``, ``target`` and perhaps ``weight``.
    """
    data = Graph()
    number = len(next(iter(nodes.values()))) if not _is_sparse(nodes.get("x")) else nodes["x"].shape[0]
    if "x" in nodes:
        data.x = as_features(nodes["x"], f"{culprit}: features")
        names = nodes.get("feature_names", ())
        if names and all(isinstance(name, str) for name in names):  # numbers of columns say no more than their places
            data.feature_names = tuple(names)
    else:
        data["num_nodes"] = number
    ids = nodes.get("id")
    if ids is not None and not (ids.dtype.kind in "iu" and np.array_equal(ids, np.arange(number))):
        data.ids = _checked_ids(ids, f"{culprit}: column 'id'")
    if isinstance(edges, Mapping):
        pairs, weights = _ends_by_id(edges, data.get("ids"), number, edge_culprit)
        edge_weight = _either(weights, edge_weight)
        data.edge_index = torch.from_numpy(pairs)
        data.unused_edge_columns = _unused(edges)
    elif edges is not None:
        data.edge_index, edge_weight = _pairs(edges, edge_weight)
    if edge_weight is not None:
        data.edge_weight = as_tensor(_as_floats(edge_weight, f"{edge_culprit}: weights"), "weights must be numbers")
    if "label" in nodes:
        _set_targets(data, nodes["label"], f"{culprit}: labels", target)
    for mask, values in _masks(nodes, culprit).items():
        data[mask] = torch.from_numpy(values)
    return asked(data, target)


def _of_edge_table(y: Any, edges: Mapping[str, Any], edge_weight: Any, target: TargetKind) -> Graph:
    """The graph of a table of edges alone, by the numbers of nodes."""
    ends = _ends(edges, "edges")
    for name, end in zip(ENDS, ends, strict=True):
        if end.dtype.kind not in "iu":
            raise InputError(f"edges: column {name!r} must be whole numbers where no table of nodes has ids")
    weights = _either(_weights(edges, "edges"), edge_weight)
    data = _from_matrix(None, y, np.stack(ends), weights, target)
    data.unused_edge_columns = _unused(edges)
    return data


def _either(column: Any, edge_weight: Any) -> Any:
    """The weights of edges, from their table or beside it."""
    if column is not None and edge_weight is not None:
        raise InputError("edge_weight is given beside a column 'weight' of the edges: leave one of them out")
    return edge_weight if column is None else column


def _unused(edges: Mapping[str, Any]) -> tuple[str, ...] | None:
    return tuple(name for name in edges if name not in (*ENDS, "weight")) or None


def _as_floats(values: Any, culprit: str) -> Any:
    if isinstance(values, Tensor):
        return values
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{culprit} must be numbers") from None


def _check_weights(weights: Array, culprit: str, called: Callable[[int], str]) -> None:
    """Raise unless all are positive and finite; an error names the edge as it is ``called``."""
    place = bad_weight(as_tensor(weights, culprit))
    if place is not None:
        raise InputError(f"{culprit} must be positive and finite, but {called(place)} has {weights[place]:g}")


def row_name(row: int) -> str:
    """What a row of a table is called, and how rows are counted."""
    return f"row {row} (the first is 0)"


def _checked_ids(ids: Array, culprit: str) -> Array:
    missing = next((row for row, value in enumerate(ids.tolist()) if _is_missing(value)), None)
    if missing is not None:
        raise InputError(f"{culprit} has none in {row_name(missing)}")
    values = ids.tolist()
    odd = next((value for value in values if not isinstance(value, Hashable)), None)
    if odd is not None:
        raise InputError(f"{culprit} must be text or numbers, got {odd!r:.60}")
    if len(set(values)) < len(values):
        twice = next(value for value, times in Counter(values).items() if times > 1)
        raise InputError(f"{culprit} names node {twice!r} twice")
    return ids


def _ends_by_id(
    edges: Mapping[str, Any], ids: Array | None, number: int, culprit: str
) -> tuple[NDArray[np.int64], Any]:
    """Numbers of nodes (2, edges) and weights, None if there are none."""
    ends = _ends(edges, culprit)
    own = np.arange(number) if ids is None else ids
    # Text and numbers may name the same node: a table that was read as text beside one that was not.
    as_text = any(end.dtype.kind not in "iu" for end in ends) or own.dtype.kind not in "iu"
    place = {(str(name) if as_text else name): row for row, name in enumerate(own.tolist())}
    if len(place) < number:
        row, other = next((row, place[str(name)]) for row, name in enumerate(own.tolist()) if place[str(name)] != row)
        both = f"nodes {own[row]!r} and {own[other]!r} have the same name"
        raise InputError(f"{both}, as the edges write it: give all of them text, or numbers")
    found = []
    for end in ends:
        values = list(map(str, end.tolist())) if as_text else end.tolist()
        rows = np.fromiter(map(place.get, values, repeat(-1)), dtype=np.int64, count=len(values))
        unknown = np.flatnonzero(rows < 0)
        if len(unknown):
            where = f"{culprit}: {row_name(int(unknown[0]))}"
            raise InputError(f"{where} names node {values[unknown[0]]!r}, which no node is called")
        found.append(rows)
    return np.stack(found), _weights(edges, culprit)


def _ends(edges: Mapping[str, Any], culprit: str) -> list[Array]:
    """Who the edges join, as it stands in their table."""
    for name in ENDS:
        if name not in edges:
            raise InputError(f"{culprit}: column {name!r} is missing; there are {', '.join(edges) or 'none'}")
    return [np.asarray(edges[name]) for name in ENDS]


def _weights(edges: Mapping[str, Any], culprit: str) -> Any:
    weights = edges.get("weight")
    if weights is not None:
        weights = _as_floats(weights, f"{culprit}: column 'weight'")
        _check_weights(weights, f"{culprit}: column 'weight'", row_name)
    return weights


def _masks(nodes: Mapping[str, Any], culprit: str) -> dict[str, NDArray[np.bool_]]:
    masks = {mask: _booleans(nodes[mask], f"{culprit}: {mask}") for mask in MASKS if mask in nodes}
    if "split" not in nodes:
        return masks
    words = ["" if _is_missing(word) else str(word).strip().lower() for word in nodes["split"].tolist()]
    unknown = next((word for word in words if word and word not in SPLITS), None)
    if unknown:
        raise InputError(f"{culprit}: 'split' has {unknown!r}; known: train, val, test")
    named = np.array([SPLITS.get(word, "") for word in words])
    return masks | {mask: named == mask for mask in MASKS if bool((named == mask).any())}


def _booleans(values: Any, culprit: str) -> NDArray[np.bool_]:
    array = np.asarray(values)
    if array.dtype == bool:
        return array
    words = [str(value).strip().lower() for value in array.tolist()]
    wrong = next((word for word in words if word not in (*YES, *NO)), None)
    if wrong is not None:
        raise InputError(f"{culprit} must be true or false, got {wrong!r}")
    return np.array([word in YES for word in words])


# ------------------------------------------------------------------------------------------------------------- labels


def _set_targets(data: Graph, y: Any, culprit: str, target: TargetKind) -> None:
    """Give the graph its labels, of the kind that was asked for, and what they are called."""
    data.y, names = columns_of(y, target, culprit) or encoded_labels(y, culprit)
    if names is not None:
        data.label_names = names


def encoded_labels(y: Any, culprit: str) -> tuple[Tensor, Array | None]:
    """Labels as whole numbers, -1 where there is none, or as probabilities; and what the numbers stand for.

    Whole numbers stand for themselves (None). None, NaN, "" and -1 are no label.
    """
    if isinstance(y, Tensor):
        return y, None
    array = y if isinstance(y, np.ndarray) else _label_array(y)
    if array.dtype.kind in "iu" or (array.dtype.kind == "f" and array.ndim == 2):
        return as_tensor(array, f"{culprit} must be numbers"), None
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"{culprit} must be one for each node, got shape {array.shape}")
    values = array.tolist()
    missing = np.array([_is_missing(value) or _is_minus_one(value) for value in values], dtype=bool)
    known = [value for value, absent in zip(values, missing, strict=True) if not absent]
    codes = np.full(len(values), -1, dtype=np.int64)
    if all(_is_whole(value) for value in known):
        large = next((value for value in known if abs(value) > _largest(value)), None)
        if large is not None:
            raise InputError(f"{culprit} must be at most {_largest(large)}, got {large}")
        codes[~missing] = [int(value) for value in known]
        return torch.from_numpy(codes), None
    if any(isinstance(value, float) for value in known):
        wrong = next(value for value in known if isinstance(value, float))
        raise InputError(f"{culprit} must be whole numbers or text, got {wrong!r}; {FOR_NUMBERS}")
    kinds = {isinstance(value, str) for value in known}
    if len(kinds) > 1:
        raise InputError(f"{culprit} must be all text or all numbers, got both")
    odd = next((value for value in known if not isinstance(value, str | numbers.Real)), None)
    if odd is not None:
        raise InputError(f"{culprit} must be text or whole numbers, got {odd!r:.60}")
    names, codes[~missing] = np.unique(np.array(known), return_inverse=True)
    return torch.from_numpy(codes), names


def object_array(values: Sequence[Any]) -> Array:
    """A value an entry, whatever they are."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    kinds = {type(value) for value in values}
    # Plain types where all are of one, so that names sort and are saved.
    return np.array(values) if kinds in ({int}, {str}, {bool}) else array


def _label_array(y: Any) -> Array:
    """Labels as an array; one value an entry where they are of several kinds."""
    if isinstance(y, list | tuple) and any(value is None or isinstance(value, str) for value in y):
        return object_array(y)
    try:
        return np.asarray(y)
    except ValueError:  # lists of several lengths
        return object_array(list(y))


def _is_missing(value: Any) -> bool:
    """None, NaN, pandas' NA and NaT, and the empty text."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return True
    return bool(isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real)


def _largest(label: Any) -> int:
    """Whole numbers that came as fractions are themselves up to some size only."""
    return LARGEST_LABEL if isinstance(label, float) else sys.maxsize


def _is_minus_one(value: Any) -> bool:
    return _is_whole(value) and int(value) == -1


def _is_whole(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return isinstance(value, numbers.Integral) or float(value).is_integer()
