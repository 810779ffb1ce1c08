"""Graphs in tables: columns of nodes and of edges by their names, whatever library they were read with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from itertools import repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config import TargetKind
from ..errors import InputError
from .checks import MASKS, as_tensor, bad_weight
from .feature_names import check_lists_alone
from .graph import Graph
from .labels import is_missing, set_targets
from .matrices import as_features, as_matrix, from_matrix, is_sparse, pairs_of
from .targets import NO, YES, asked

Array = NDArray[Any]
#: Columns of a node table, and attributes of a node, that are no features.
KNOWN = ("id", "label", "split", *MASKS)
#: What is said of one that is no number.
FEATURES = f"every column is a feature but {', '.join(KNOWN)}"
#: Columns of an edge table that say who is joined.
ENDS = ("source", "target")
#: What a split may be called.
SPLITS = {"train": "train_mask", "val": "val_mask", "valid": "val_mask", "validation": "val_mask", "test": "test_mask"}
#: What a mask may say of a node of which it says nothing.
NOTHING = ("", "nan", "none")


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
    number = len(next(iter(nodes.values()))) if not is_sparse(nodes.get("x")) else nodes["x"].shape[0]
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
        data.edge_index, edge_weight = pairs_of(edges, edge_weight)
    if edge_weight is not None:
        data.edge_weight = as_tensor(as_floats(edge_weight, f"{edge_culprit}: weights"), "weights must be numbers")
    if "label" in nodes:
        set_targets(data, nodes["label"], f"{culprit}: labels", target)
    for mask, values in _masks(nodes, culprit).items():
        data[mask] = torch.from_numpy(values)
    return asked(data, target)


def graph_of_edges(y: Any, edges: Mapping[str, Any], edge_weight: Any, target: TargetKind) -> Graph:
    """The graph of a table of edges alone, by the numbers of nodes."""
    ends = _ends(edges, "edges")
    for name, end in zip(ENDS, ends, strict=True):
        if end.dtype.kind not in "iu":
            raise InputError(f"edges: column {name!r} must be whole numbers where no table of nodes has ids")
    weights = _either(_weights(edges, "edges"), edge_weight)
    data = from_matrix(None, y, np.stack(ends), weights, target)
    data.unused_edge_columns = _unused(edges)
    return data


def _either(column: Any, edge_weight: Any) -> Any:
    """The weights of edges, from their table or beside it."""
    if column is not None and edge_weight is not None:
        raise InputError("edge_weight is given beside a column 'weight' of the edges: leave one of them out")
    return edge_weight if column is None else column


def _unused(edges: Mapping[str, Any]) -> tuple[str, ...] | None:
    return tuple(name for name in edges if name not in (*ENDS, "weight")) or None


def as_floats(values: Any, culprit: str) -> Any:
    """Numbers in double precision, a tensor as it is, or an :class:`InputError`."""
    if isinstance(values, Tensor):
        return values
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{culprit} must be numbers") from None


def check_weights(weights: Array, culprit: str, called: Callable[[int], str]) -> None:
    """Raise unless all are positive and finite; an error names the edge as it is ``called``."""
    place = bad_weight(as_tensor(weights, culprit))
    if place is not None:
        raise InputError(f"{culprit} must be positive and finite, but {called(place)} has {weights[place]:g}")


def row_name(row: int) -> str:
    """What a row of a table is called, and how rows are counted."""
    return f"row {row} (the first is 0)"


def _checked_ids(ids: Array, culprit: str) -> Array:
    missing = next((row for row, value in enumerate(ids.tolist()) if is_missing(value)), None)
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
    if len(place) < len(own):
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
        weights = as_floats(weights, f"{culprit}: column 'weight'")
        check_weights(weights, f"{culprit}: column 'weight'", row_name)
    return weights


def _masks(nodes: Mapping[str, Any], culprit: str) -> dict[str, NDArray[np.bool_]]:
    masks = {mask: _booleans(nodes[mask], f"{culprit}: {mask}") for mask in MASKS if mask in nodes}
    if "split" not in nodes:
        return masks
    words = ["" if is_missing(word) else str(word).strip().lower() for word in nodes["split"].tolist()]
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
    wrong = next((word for word in words if word not in (*YES, *NO, *NOTHING)), None)
    if wrong is not None:
        raise InputError(f"{culprit} must be true or false, got {wrong!r}")
    return np.array([word in YES for word in words])
