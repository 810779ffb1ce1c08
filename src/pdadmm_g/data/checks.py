"""The door that every graph passes: features, edges, labels and masks are checked before anything is computed."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError
from .feature_names import are_names
from .graph import Graph
from .targets import FOR_NUMBERS, checked_columns, has_columns, is_indicator, target_of

MASKS = ("train_mask", "val_mask", "test_mask")


def check_graph(data: Graph, *, culprit: str = "data") -> Graph:
    """Raise :class:`InputError` unless ``data`` is a sound graph; return it with normalised labels and masks.

    Features must be finite, edges within range, their weights positive, labels integers or rows of probabilities, or of
    the kind that :mod:`.targets` tells of, masks booleans or node indices of the right shape, or with a column a split.
    Labels may be missing (-1, or a row of NaN) only outside the masks. A graph without features gets those of
    :mod:`.structure`, and an entry ``structural``.
    """
    data = Graph(**data.to_dict())  # a copy; a torch_geometric Data is as welcome
    if data.x is None and isinstance(data.edge_index, Tensor) and data.edge_index.numel():
        _give_features(data, culprit)
    x = data.x
    if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[0] == 0 or x.shape[1] == 0:
        raise InputError(f"{culprit}: features 'x' must be a matrix with at least one row and one column")
    _check_names(data, culprit)
    _check_finite(x, culprit, data.get("feature_names"))
    num_nodes = x.shape[0]
    if "num_nodes" in data:
        if not isinstance(data["num_nodes"], int) or data["num_nodes"] != num_nodes:
            raise InputError(f"{culprit}: 'num_nodes' contradicts the {num_nodes} rows of 'x'; leave it out")
        del data["num_nodes"]
    if data.edge_index is not None:
        data.edge_index = _check_edges(data.edge_index, num_nodes, culprit)
        _check_weights(data, culprit)
    data.x = x.detach()
    if data.y is not None:
        _check_targets(data, num_nodes, culprit)
    _check_ids(data, num_nodes, culprit)
    _check_label_names(data, culprit)
    for mask in MASKS:
        if mask in data:
            data[mask] = _as_masks(data[mask], num_nodes, f"{culprit}: {mask}")
    return data


def _check_targets(data: Graph, num_nodes: int, culprit: str) -> None:
    """Put labels of the kind that was asked for, or that they are, where they belong."""
    y = as_tensor(data.y, f"{culprit}: labels 'y' must be integers").cpu()
    if data.get("target_kind") is None and is_indicator(y):
        data.target_kind = "multilabel"
    if has_columns(data):
        data.y = checked_columns(y, target_of(data), num_nodes, culprit)
    else:
        data.y = check_labels(y, num_nodes, culprit)


def _check_names(data: Graph, culprit: str) -> None:
    names = data.get("feature_names")
    if names is None:
        return
    if not are_names(names, data.x.shape[1]):
        rule = f"must be {data.x.shape[1]} different names, one for each column of 'x'"
        raise InputError(f"{culprit}: feature_names {rule}: mend or delete it")
    data.feature_names = tuple(names)


def _check_ids(data: Graph, num_nodes: int, culprit: str) -> None:
    ids = data.get("ids")
    if ids is None:
        return
    data.ids = _name_array(ids)
    if data.ids.shape != (num_nodes,):
        raise InputError(f"{culprit}: ids must be {num_nodes} names, one for each node: mend or delete it")


def _check_label_names(data: Graph, culprit: str) -> None:
    """Put the names of labels, if there are any, where they belong: those of classes in order, and these likewise."""
    names, y = data.get("label_names"), data.y
    if names is None or y is None:
        data.label_names = None
        return
    names = _name_array(names)
    names = np.array(names.tolist()) if all(isinstance(name, str) for name in names) else names
    number = y.shape[1] if y.ndim == 2 else int(y.max()) + 1
    fits = len(names) == number if y.ndim == 2 else len(names) >= number
    if not fits or names.dtype.kind == "O" or len({*map(str, names.tolist())}) < len(names):
        raise InputError(f"{culprit}: label_names must be different names, one for each label: mend or delete it")
    if not has_columns(data):
        order = names.argsort(kind="stable")
        names, places = names[order], torch.from_numpy(order.argsort(kind="stable"))
        data.y = y[:, torch.from_numpy(order)] if y.ndim == 2 else places[y.clamp(min=0)].where(y >= 0, -1)
    data.label_names = names


def _name_array(names: Any) -> NDArray[Any]:
    """Names as an array; an empty one where they are no list."""
    if isinstance(names, Tensor):
        names = names.detach().cpu().numpy()
    try:
        array = np.asarray(names)
    except ValueError:  # lists of several lengths
        return np.empty(0)
    return array if array.ndim == 1 else np.empty(0)


def _as_masks(given: Any, num_nodes: int, culprit: str) -> Tensor:
    """A mask over nodes, or (nodes, splits) one for each of several splits."""
    if (
        not isinstance(given, Tensor | np.ndarray)
        or given.ndim != 2
        or given.shape[0] != num_nodes
        or not given.shape[1]
    ):
        return as_mask(given, num_nodes, culprit)
    columns = as_tensor(given, f"{culprit} must be booleans or a list of node indices").T
    return torch.stack([as_mask(column, num_nodes, culprit) for column in columns], dim=1)


def _give_features(data: Graph, culprit: str) -> None:
    """Make features of the edges, for as many nodes as anything in the graph tells of."""
    from .structure import structural_features

    edges = _check_edges(data.edge_index, sys.maxsize, culprit)
    own = [data["num_nodes"]] if isinstance(data.get("num_nodes"), int) else []
    for name in ("y", "ids"):
        column = data.get(name)
        own += [len(column)] if isinstance(column, Tensor | np.ndarray) and column.ndim else []
    number = max(own) if own else int(edges.max()) + 1
    if number > MOST_IMPLIED and not own:
        raise InputError(f"{culprit}: edge_index names node {number - 1}: say how many there are with num_nodes")
    _check_edges(edges, number, culprit)
    data.x, data.structural = structural_features(edges, number), True


def _check_weights(data: Graph, culprit: str) -> None:
    """Put weights of edges, if there are any, where they belong; a single column ``edge_attr`` counts as such."""
    number = data.edge_index.shape[1]
    name = "edge_weight" if data.get("edge_weight") is not None else "edge_attr"
    if data.get(name) is None:
        return
    weights = as_tensor(data[name], f"{culprit}: {name} must be numbers").cpu()
    if weights.ndim == 2 and weights.shape[1] == 1:
        weights = weights[:, 0]
    if name == "edge_attr" and weights.ndim != 1:
        return  # whatever it is, it is no weight
    if weights.shape != (number,) or weights.is_complex():
        raise InputError(
            f"{culprit}: {name} has shape {tuple(weights.shape)}, expected a number for each of {number} edges"
        )
    weights = weights.double()
    place = bad_weight(weights)
    if place is not None:
        remedy = "" if name == "edge_weight" else "; a single column counts as weights: delete it to leave them out"
        raise InputError(
            f"{culprit}: {name} must be positive and finite, but that of edge {place} is {weights[place]:g}{remedy}"
        )
    if name == "edge_attr":
        del data["edge_attr"]
    data.edge_weight = weights


def bad_weight(weights: Tensor) -> int | None:
    """The place of the first weight that is not positive and finite, if there is one."""
    bad = (~(weights > 0) | (weights > LARGEST)).nonzero()
    return int(bad[0]) if len(bad) else None


def labelled(data: Graph) -> Tensor:
    """A mask of the nodes that have a label, whatever it is."""
    return ~data.y.isnan().any(1) if has_columns(data) else hard_labels(data) >= 0


def hard_labels(data: Graph) -> Tensor:
    """The class of every node, the most probable one where 'y' holds probabilities; -1 for a node without label."""
    assert not has_columns(data)
    if not data.y.is_floating_point():
        return data.y
    return data.y.argmax(1).where(~data.y.isnan().any(1), -1)


def class_places(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
    """The place of each label among the sorted classes of a model, -1 for one that it does not know."""
    check_kind(labels, classes)
    places = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
    return np.where(classes[places] == labels, places, -1)


def require_y(data: Graph, *, culprit: str = "data") -> None:
    """Raise unless there are labels."""
    if data.y is None:
        raise InputError(f"{culprit}: labels 'y' are missing; in a table they are the column 'label'")


def check_kind(labels: NDArray[Any], classes: NDArray[Any]) -> None:
    """Raise if labels are numbers and the classes of a model text, or the other way round."""
    ours, theirs = (("text" if array.dtype.kind in "USO" else "numbers") for array in (classes, labels))
    if ours != theirs and len(labels):
        names = f"the labels of the data are {theirs}, those that the model was trained with {ours}"
        raise InputError(f"{names}, such as {classes[0]!s:.40}: give the data these")


def require_training_nodes(data: Graph, *, culprit: str = "data") -> None:
    """Raise unless there are labels, and nodes to train on."""
    require_y(data, culprit=culprit)
    if "train_mask" not in data:
        raise InputError(f"{culprit}: 'train_mask' is missing: mark the nodes to train on")
    if not bool(labelled(data).any()):
        raise InputError(f"{culprit}: no node has a label ({missing_label(data)} for all)")
    if not bool(data.train_mask.any()):
        raise InputError(f"{culprit}: train_mask is empty: mark at least one node per class")


def require_labels(data: Graph, mask: str, *, culprit: str = "data") -> None:
    """Raise unless every node of the mask has a label."""
    unlabelled = (data[mask] & ~labelled(data)).nonzero()
    if len(unlabelled):
        node = node_name(data, int(unlabelled[0]))
        raise InputError(f"{culprit}: node {node} of {mask} has no label ({missing_label(data)})")


def missing_label(data: Graph) -> str:
    """How 'y' says that a node has no label."""
    if data.get("label_names") is not None and not has_columns(data):
        return "it is empty"
    return "a row of NaN" if data.y.is_floating_point() else "y = -1"


def node_name(data: Graph, node: int) -> Any:
    """What the user calls a node."""
    return node if data.get("ids") is None else data.ids[node]


def class_name(data: Graph, code: int) -> Any:
    """What the user calls a class."""
    return code if data.get("label_names") is None else data.label_names[code]


def check_training(data: Graph, *, culprit: str = "data") -> None:
    """Raise :class:`InputError` unless ``data``, already through :func:`check_graph`, can be trained on."""
    require_training_nodes(data, culprit=culprit)
    used = torch.zeros_like(data.train_mask)
    for mask in MASKS:
        if mask in data:
            used |= data[mask]
            require_labels(data, mask, culprit=culprit)
    if not has_columns(data):
        _check_classes(data, used, culprit)
    _warn_overlap(data)


def _check_classes(data: Graph, used: Tensor, culprit: str) -> None:
    """Raise unless there are several classes, and training nodes of each that a node of the masks is of."""
    training = data.y[data.train_mask]
    present = set((training.sum(0).nonzero() if training.is_floating_point() else training).unique().tolist())
    absent = set(hard_labels(data)[used].unique().tolist()) - present
    if absent:
        raise InputError(f"{culprit}: class {class_name(data, min(absent))} has no training node")
    if len(present) == 1:
        only = class_name(data, min(present))
        raise InputError(f"{culprit}: all training nodes are of class {only}: there is nothing to tell apart")


def require_edges(
    data: Graph, remedy: str = "give edges, fit(nodes, edges), or leave the graph out with augment='none'"
) -> None:
    """A graph that lost its edges must not pass for one without."""
    if data.edge_index is None:
        raise InputError(f"data: 'edge_index' is missing; {remedy}")


def as_mask(mask: Any, num_nodes: int, culprit: str) -> Tensor:
    """A boolean mask over nodes from a boolean mask or a list of node indices."""
    mask = as_tensor(mask, f"{culprit} must be booleans or a list of node indices").cpu()
    if mask.dtype == torch.bool:
        if mask.shape != (num_nodes,):
            raise InputError(f"{culprit} has shape {tuple(mask.shape)}, expected ({num_nodes},)")
        return mask
    if mask.is_floating_point() or mask.is_complex() or mask.ndim != 1:
        raise InputError(f"{culprit} must be booleans or a list of node indices")
    index = mask.long()
    if len(index) and (int(index.min()) < 0 or int(index.max()) >= num_nodes):
        raise InputError(f"{culprit} names a node outside 0..{num_nodes - 1}")
    if len(index.unique()) < len(index):
        # Not a list of nodes, then: zeros and ones for every node are a mask, anything else is a mistake.
        if len(index) == num_nodes and int(index.max()) <= 1:
            return index.bool()
        raise InputError(f"{culprit} names a node twice: give booleans, or a list of different nodes")
    return torch.zeros(num_nodes, dtype=torch.bool).scatter_(0, index, True)


def node_numbers(nodes: Any, num_nodes: int) -> Tensor:
    """Node numbers in the order given, from numbers or a boolean mask."""
    rule = "nodes must be booleans or a list of node indices"
    given = as_tensor(nodes, rule).cpu()
    if given.dtype == torch.bool:
        return as_mask(given, num_nodes, "nodes").nonzero().view(-1)
    if given.numel() == 0:
        return torch.empty(0, dtype=torch.int64)
    if given.ndim != 1 or given.is_floating_point() or given.is_complex():
        raise InputError(rule)
    if int(given.min()) < 0 or int(given.max()) >= num_nodes:
        raise InputError(f"nodes names a node outside 0..{num_nodes - 1}")
    return given.long()


def as_tensor(values: Any, rule: str) -> Tensor:
    """A dense tensor of whatever was given, or an :class:`InputError` with the rule that it breaks."""
    try:
        if isinstance(values, np.ndarray):
            values = _native(values)
        tensor = torch.as_tensor(values)
        return (tensor if tensor.layout == torch.strided else tensor.to_dense()).detach()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        kind = values.dtype if isinstance(values, np.ndarray) else type(values).__name__
        raise InputError(f"{rule}, not {kind}") from None


def _native(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same numbers as torch takes them: in native byte order, writable, integers signed where they fit."""
    array = np.require(array.astype(array.dtype.newbyteorder("="), copy=False), requirements=["C", "W"])
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        if array.size and int(array.max()) >= 2**63:
            raise OverflowError
        return array.astype(np.int64)
    return array


def _check_finite(x: Tensor, culprit: str, names: tuple[str, ...] | None = None) -> None:
    if x.is_complex():
        raise InputError(f"{culprit}: features 'x' must be real numbers")
    if not x.is_floating_point():
        x = x if x.element_size() < 8 else x.double()  # no smaller ones reach the limit
    if not x.is_floating_point():
        return
    if x.layout == torch.strided:
        # The norm is one cheap pass that sees everything: no entry is larger, and NaN makes it NaN.
        # As a Python number: in half precision the limit itself would be infinite.
        if torch.linalg.vector_norm(x.detach(), ord=torch.inf).item() <= LARGEST:
            return
        rows, values = torch.arange(len(x)), torch.linalg.vector_norm(x.detach(), ord=torch.inf, dim=1).cpu()
    else:
        coo = x.detach().to_sparse_coo().coalesce().cpu()
        rows, values = coo.indices()[0], coo.values().abs()

    def place(row: int) -> str:
        if names is None:
            return f"row {row}"
        bad = ~(x[row].detach().to_dense().abs() <= LARGEST)
        return f"row {row}, column {names[int(bad.nonzero()[0])]!r}"

    bad = rows[~torch.isfinite(values)]
    if len(bad):
        raise InputError(f"{culprit}: features contain NaN or infinity, first in {place(int(bad.min()))}")
    large = rows[values > LARGEST]
    if len(large):
        raise InputError(f"{culprit}: features exceed {LARGEST:g}, first in {place(int(large.min()))}: rescale them")


#: Larger features would overflow in single precision.
LARGEST = 1e15
#: Whole numbers up to here are themselves in double precision.
LARGEST_LABEL = 2**53
#: Most nodes of a graph that has nothing but edges.
MOST_IMPLIED = 10**6


def _check_edges(edge_index: Any, num_nodes: int, culprit: str) -> Tensor:
    if not isinstance(edge_index, Tensor) or edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise InputError(f"{culprit}: edge_index must have shape (2, edges)")
    if edge_index.layout != torch.strided:
        raise InputError(f"{culprit}: edge_index must be dense, a list of pairs of nodes")
    if edge_index.is_floating_point() or edge_index.is_complex() or edge_index.dtype == torch.bool:
        raise InputError(f"{culprit}: edge_index must hold integers, not {edge_index.dtype}")
    edge_index = edge_index.long()
    if edge_index.numel():
        for value in (int(edge_index.min()), int(edge_index.max())):
            if not 0 <= value < num_nodes:
                raise InputError(f"{culprit}: edge_index names node {value}, but nodes are 0..{num_nodes - 1}")
    return edge_index


def check_labels(y: Any, num_nodes: int, culprit: str) -> Tensor:
    """Labels as integers, or as rows of probabilities, or an :class:`InputError`."""
    y = as_tensor(y, f"{culprit}: labels 'y' must be integers").cpu()
    if y.ndim == 2 and y.shape[1] == 1:
        y = y.squeeze(1)
    if is_soft(y) and len(y) == num_nodes:
        return check_probabilities(y, f"{culprit}: labels 'y'", missing=True)
    if y.shape != (num_nodes,):
        raise InputError(f"{culprit}: labels 'y' have shape {tuple(y.shape)}, expected ({num_nodes},)")
    if y.is_floating_point():
        fractional = (~torch.isfinite(y) | (y != y.round())).nonzero()
        if len(fractional):
            row = int(fractional[0])
            raise InputError(f"{culprit}: labels must be integers, but y[{row}] = {y[row].item()}; {FOR_NUMBERS}")
        large = (y.abs() > LARGEST_LABEL).nonzero()
        if len(large):
            row = int(large[0])
            raise InputError(f"{culprit}: labels must be at most {LARGEST_LABEL}, but y[{row}] = {y[row].item():g}")
    if y.is_complex() or y.dtype == torch.bool:
        raise InputError(f"{culprit}: labels must be integers, not {y.dtype}")
    y = y.long()
    if int(y.min()) < -1:
        raise InputError(f"{culprit}: labels must be 0 or more (-1 for unlabelled nodes), got {int(y.min())}")
    return y


def is_soft(y: Tensor) -> bool:
    """Do these labels look like probabilities: a matrix of fractions with a column for each of several classes?"""
    return y.ndim == 2 and y.shape[1] >= 2 and y.is_floating_point()


def probabilities_of(y: Any) -> Tensor | None:
    """Labels of a feature matrix that are probabilities, a column a class; None if they are anything else."""
    try:
        array = np.asarray(y)
    except (TypeError, ValueError, RuntimeError):
        return None
    if array.ndim != 2 or array.dtype.kind != "f":
        return None
    given = as_tensor(array, "y must be numbers")
    return check_probabilities(given, "y") if is_soft(given) else None


def check_probabilities(y: Tensor, culprit: str, *, missing: bool = False) -> Tensor:
    """Rows of probabilities, made to sum to one exactly. With ``missing``, a row of NaN is a node without label."""
    y = y.double()
    absent = y.isnan().all(1) & missing
    total = y.sum(1)
    for bad, rule in (
        ((~y.isfinite()).any(1), "must be finite"),
        ((y < 0).any(1), "must not be negative"),
        ((total - 1).abs() > SUM_TOLERANCE, "must sum to one"),
    ):
        rows = (bad & ~absent).nonzero()
        if len(rows):
            row = int(rows[0])
            values = ", ".join(f"{value:g}" for value in y[row, :6].tolist()) + (", ..." if y.shape[1] > 6 else "")
            raise InputError(f"{culprit}: the probabilities of row {row} {rule}, got {values}")
    return y / total[:, None]


#: Sums of probabilities differ from one by so much at the most.
SUM_TOLERANCE = 1e-3


def _warn_overlap(data: Graph) -> None:
    present = [mask for mask in MASKS if mask in data]
    for index, first in enumerate(present):
        for second in present[index + 1 :]:
            shared = int((data[first] & data[second]).sum())
            if shared:
                warnings.warn(f"{first} and {second} share {shared} nodes", stacklevel=4)
