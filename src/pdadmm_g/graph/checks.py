"""The door that every graph passes: features, edges, labels and masks are checked before anything is computed."""

from __future__ import annotations

import sys
import warnings
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import InputError
from .graph import LARGEST, MASKS, Graph, are_names, as_mask, as_tensor, first_bad, name_array, node_keys
from .targets import (
    check_labels,
    checked_columns,
    class_name,
    has_columns,
    is_indicator,
    require_labels,
    require_training_nodes,
    target_of,
)

#: Most nodes of a graph that has nothing but edges.
MOST_IMPLIED = 10**6


def check_graph(data: Graph, *, culprit: str = "data") -> Graph:
    """Raise :class:`InputError` unless ``data`` is a sound graph; return it with normalised labels and masks.

    Features must be finite, edges within range, their weights positive, labels integers or rows of probabilities, or of
    the kind that :mod:`.targets` tells of, masks booleans or node indices of the right shape, or with a column a split.
    Labels may be missing (-1, or a row of NaN) only outside the masks. A graph without features gets those of
    :func:`~.facts.structural_features`, and an entry ``structural``.
    """
    data = Graph(**data.to_dict())  # a copy; a torch_geometric Data is as welcome
    if data.get("part") is not None:  # checked when the folder of shards was made
        return data
    if data.x is None and isinstance(data.edge_index, Tensor) and data.edge_index.numel():
        _give_features(data, culprit)
    x, names = data.x, data.get("feature_names")
    if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[0] == 0 or x.shape[1] == 0:
        raise InputError(f"{culprit}: features 'x' must be a matrix with at least one row and one column")
    if names is not None:
        if not are_names(names, x.shape[1]):
            rule = f"must be {x.shape[1]} different names, one for each column of 'x'"
            raise InputError(f"{culprit}: feature_names {rule}: mend or delete it")
        data.feature_names = names = tuple(names)
    check_features(x, culprit, names)
    data.x, num_nodes = x.detach(), x.shape[0]
    if "num_nodes" in data:
        if not isinstance(data["num_nodes"], int) or data["num_nodes"] != num_nodes:
            raise InputError(f"{culprit}: 'num_nodes' contradicts the {num_nodes} rows of 'x'; leave it out")
        del data["num_nodes"]
    if data.edge_index is not None:
        data.edge_index = check_edges(data.edge_index, num_nodes, culprit)
        _check_weights(data, culprit)
    return check_nodes(data, num_nodes, culprit)


def check_nodes(data: Graph, num_nodes: int, culprit: str) -> Graph:
    """The same graph with sound labels, ids and masks for so many nodes, or an :class:`InputError`."""
    if data.y is not None:
        y = as_tensor(data.y, f"{culprit}: labels 'y' must be integers").cpu()
        if data.get("target_kind") is None and is_indicator(y):
            data.target_kind = "multilabel"
        if has_columns(data):
            data.y = checked_columns(y, target_of(data), num_nodes, culprit)
        else:
            data.y = check_labels(y, num_nodes, culprit, data.get("label_column"))
    if data.get("ids") is not None:
        data.ids = name_array(data.ids)
        if data.ids.shape != (num_nodes,):
            raise InputError(f"{culprit}: ids must be {num_nodes} names, one for each node: mend or delete it")
    _check_label_names(data, culprit)
    for mask in MASKS:
        if mask in data:
            given, owner = data[mask], f"{culprit}: {mask}"
            if (
                isinstance(given, Tensor | np.ndarray)
                and given.ndim == 2
                and len(given) == num_nodes
                and given.shape[1]
            ):
                # a column for each of several splits
                columns = as_tensor(given, f"{owner} must be booleans or a list of node indices").T
                data[mask] = torch.stack([as_mask(column, num_nodes, owner) for column in columns], dim=1)
            else:
                data[mask] = as_mask(given, num_nodes, owner)
    return data


def _check_label_names(data: Graph, culprit: str) -> None:
    """Put the names of labels, if there are any, where they belong: those of classes in order, and these likewise."""
    y, names = data.y, data.get("label_names")
    if names is None or y is None:
        data.label_names = None
        return
    names = name_array(names)
    names = np.array(names.tolist()) if all(isinstance(name, str) for name in names) else names
    fits = len(names) == y.shape[1] if y.ndim == 2 else len(names) > int(y.max())
    if not fits or names.dtype.kind == "O" or len({*map(str, names.tolist())}) < len(names):
        raise InputError(f"{culprit}: label_names must be different names, one for each label: mend or delete it")
    if not has_columns(data):
        order = torch.from_numpy(names.argsort(kind="stable"))
        names = names[order.numpy()]
        data.y = y[:, order] if y.ndim == 2 else order.argsort()[y.clamp(min=0)].where(y >= 0, -1)
    data.label_names = names


def _give_features(data: Graph, culprit: str) -> None:
    """Make features of the edges, for as many nodes as anything in the graph tells of."""
    from .parts import structural_features

    number = int(check_edges(data.edge_index, sys.maxsize, culprit).max()) + 1
    own = [len(each) for each in (data.y, data.get("ids")) if isinstance(each, Tensor | np.ndarray) and each.ndim]
    own += [data["num_nodes"]] if isinstance(data.get("num_nodes"), int) else []
    if number > MOST_IMPLIED and not own:
        raise InputError(f"{culprit}: edge_index names node {number - 1}: say how many there are with num_nodes")
    number = max(own, default=number)
    edges = check_edges(data.edge_index, number, culprit)
    keys = None if data.get("ids") is None or len(data.ids) != number else node_keys(data)
    data.x, data.structural = structural_features(edges, number, keys), True


def _check_weights(data: Graph, culprit: str) -> None:
    """Put weights of edges, if there are any, where they belong; a single column ``edge_attr`` counts as such."""
    number = data.edge_index.shape[1]
    name = "edge_weight" if data.get("edge_weight") is not None else "edge_attr"
    if data.get(name) is None:
        return
    rule = f"{culprit}: {name} must be a positive and finite number for each of {number} edges"
    weights = as_tensor(data[name], rule).cpu()
    weights = weights[:, 0] if weights.ndim == 2 and weights.shape[1] == 1 else weights
    if name == "edge_attr" and weights.ndim != 1:
        return  # whatever it is, it is no weight
    if weights.shape != (number,) or weights.is_complex():
        raise InputError(f"{rule}, got shape {tuple(weights.shape)} of {weights.dtype}")
    weights = weights.double()
    if (place := first_bad(~(weights > 0) | (weights > LARGEST))) is not None:
        remedy = "" if name == "edge_weight" else "; a single column counts as weights: delete it to leave them out"
        raise InputError(f"{rule}, but that of edge {place} is {weights[place]:g}{remedy}")
    data.edge_attr, data.edge_weight = None if name == "edge_attr" else data.get("edge_attr"), weights


def check_training(data: Graph, *, culprit: str = "data") -> None:
    """Raise :class:`InputError` unless ``data``, already through :func:`check_graph`, can be trained on."""
    require_training_nodes(data, culprit=culprit)
    for mask in MASKS:
        if mask in data:
            require_labels(data, mask, culprit=culprit)
    if not has_columns(data):
        training = data.y[data.train_mask]
        present = set((training.sum(0).nonzero() if training.is_floating_point() else training).unique().tolist())
        if len(present) == 1:
            only = class_name(data, min(present))
            raise InputError(f"{culprit}: all training nodes are of class {only}: there is nothing to tell apart")
    for first, second in combinations([mask for mask in MASKS if mask in data], 2):
        if shared := int((data[first] & data[second]).sum()):
            warnings.warn(f"{first} and {second} share {shared} nodes", stacklevel=3)


def require_edges(
    data: Graph, remedy: str = "give edges, fit(nodes, edges), or leave the graph out with augment='none'"
) -> None:
    """A graph that lost its edges must not pass for one without."""
    if data.edge_index is None and data.get("part") is None:
        raise InputError(f"data: 'edge_index' is missing; {remedy}")


def check_features(x: Tensor, culprit: str, names: tuple[str, ...] | None = None, start: int = 0) -> None:
    """Raise unless features are finite numbers of a size that can be computed with; rows are counted from ``start``."""
    if x.is_complex():
        raise InputError(f"{culprit}: features 'x' must be real numbers")
    if not x.is_floating_point() and x.element_size() < 8:
        return  # such numbers do not reach the limit
    x = x.detach() if x.is_floating_point() else x.double()
    x = x if x.layout == torch.strided else x.to_sparse_coo().coalesce()
    values = x if x.layout == torch.strided else x.values()
    # The norm is one cheap pass that sees everything: no entry is larger, and NaN makes it NaN.
    # As a Python number: in half precision the limit itself would be infinite.
    if not values.numel() or torch.linalg.vector_norm(values, ord=torch.inf).item() <= LARGEST:
        return
    bad = ~values.isfinite() | (values.abs() > LARGEST)
    row, column = (bad.nonzero() if values is x else x.indices().T[bad])[0].tolist()
    what = f"exceed {LARGEST:g}" if values[bad][0].isfinite() else "contain NaN or infinity"
    where = f"row {start + row}" if names is None else f"row {start + row}, column {names[column]!r}"
    raise InputError(f"{culprit}: features {what}, first in {where}")


def check_edges(edge_index: Any, num_nodes: int, culprit: str) -> Tensor:
    """Pairs of nodes as 64-bit numbers, or an :class:`InputError`."""
    if not isinstance(edge_index, Tensor) or edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise InputError(f"{culprit}: edge_index must have shape (2, edges)")
    if edge_index.layout != torch.strided:
        raise InputError(f"{culprit}: edge_index must be dense, a list of pairs of nodes")
    if edge_index.is_floating_point() or edge_index.is_complex() or edge_index.dtype == torch.bool:
        raise InputError(f"{culprit}: edge_index must hold integers, not {edge_index.dtype}")
    edge_index = edge_index.long()
    for value in map(int, edge_index.aminmax()) if edge_index.numel() else ():
        if not 0 <= value < num_nodes:
            raise InputError(f"{culprit}: edge_index names node {value}, but nodes are 0..{num_nodes - 1}")
    return edge_index
