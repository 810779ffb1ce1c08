"""A graph in memory: what all the rest of the package computes with."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError

MASKS = ("train_mask", "val_mask", "test_mask")
#: Larger features and weights would overflow in single precision.
LARGEST = 1e15


class Graph:
    """Features ``x``, ``edge_index`` (2, edges), labels ``y``, masks, and whatever else is known, each by its name.

    It is used like a ``torch_geometric`` ``Data`` (``graph.x``, ``graph["x"]``, ``"x" in graph``) but does without that
    library; :meth:`to_pyg` gives one. Entries are of any
    type until :func:`~pdadmm_g.graph.checks.check_graph` has seen them. What is None is not there. Where the columns of
    ``x`` have names, these are its ``feature_names``. Where ``x`` was made of a table, that is its ``table``, and what
    its columns were understood as are its ``columns``.
    """

    _entries: dict[str, Any]

    def __init__(self, /, **entries: Any) -> None:
        vars(self)["_entries"] = {name: value for name, value in entries.items() if value is not None}

    @property
    def num_nodes(self) -> int:
        """As many as are said to be, or have features, or are named by edges."""
        if "num_nodes" in self:
            return int(self["num_nodes"])
        if self.x is not None:
            return int(self.x.shape[0])
        return int(self.edge_index.max()) + 1 if self.edge_index is not None and self.edge_index.numel() else 0

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> Any:
        return self._entries[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if value is None:
            self._entries.pop(name, None)
        else:
            self._entries[name] = value

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __getattr__(self, name: str) -> Any:
        entries = vars(self).get("_entries", {})  # none yet while a copy is made
        if name in entries or name in ("x", "edge_index", "y"):
            return entries.get(name)
        raise AttributeError(f"this graph has no {name!r}; to_pyg() makes a torch_geometric Data of it, which may")

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        del self[name]

    def __copy__(self) -> Graph:
        return Graph(**self._entries)

    def __repr__(self) -> str:
        sizes = {name: getattr(value, "shape", None) for name, value in self._entries.items()}
        return f"Graph({', '.join(name if size is None else f'{name}={list(size)}' for name, size in sizes.items())})"

    def get(self, name: str, default: Any = None) -> Any:
        """The entry of that name, if there is one."""
        return self._entries.get(name, default)

    def to_dict(self) -> dict[str, Any]:
        """All entries by their names."""
        return dict(self._entries)

    def clone(self) -> Graph:
        """The same with entries of its own."""
        return copy.deepcopy(self)

    def to_pyg(self) -> Any:
        """A ``torch_geometric`` ``Data`` with the same entries, but for the table of which features were made."""
        data, *_ = pyg_records()
        return data.from_dict(
            {name: value for name, value in self.to_dict().items() if name not in ("table", "columns")}
        )


def pyg_records() -> tuple[Any, ...]:
    """``Data`` of ``torch_geometric``, and the records that a saved one is made of."""
    try:
        with warnings.catch_warnings():  # what torch has to say of its style is not for our users
            warnings.simplefilter("ignore")
            from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
            from torch_geometric.data.storage import GlobalStorage
    except ImportError:
        raise InputError("a Data of torch_geometric needs that library: pip install torch_geometric") from None
    return Data, DataEdgeAttr, DataTensorAttr, GlobalStorage


# ---------------------------------------------------------------------------------------------------- names of features


def are_names(names: Any, columns: int) -> bool:
    """Are these so many different names?"""
    return (
        isinstance(names, list | tuple)
        and all(isinstance(name, str) for name in names)
        and len(set(names)) == len(names) == columns
    )


def order(own: Sequence[str] | None, names: Iterable[str] | None, owner: str = "the model") -> list[int] | None:
    """Where the columns called ``own`` stand in the order of ``names``, those of the ``owner``.

    None where one has no names, or both have the same order.
    """
    if own is None or names is None or list(own) == (names := list(names)):
        return None
    places, known = {name: place for place, name in enumerate(own)}, {*names}
    missing = listed([repr(name) for name in names if name not in places])
    unknown = listed([repr(name) for name in own if name not in known])
    if missing:
        rest = f"; features {unknown} are unknown to it" if unknown else ""
        raise InputError(f"data: features {missing} are missing, which {owner} was trained with{rest}")
    if unknown:
        names = "name ids and labels as in training, as_graph(..., id_column=..., labels=...)"
        raise InputError(f"data: features {unknown} are unknown to {owner}: leave out what is new, or {names}")
    return [places[name] for name in names]


def arranged(data: Graph, names: Iterable[str] | None, owner: str = "the model") -> Graph:
    """The graph with its columns in the order of ``names``, those of the ``owner``; as it is where one has no names."""
    own = data.get("feature_names")
    places = order(own, names, owner)
    if places is None:
        return data
    data = copy.copy(data)
    data.x = _selected(data.x, 1, torch.tensor(places))
    data.feature_names = tuple(own[place] for place in places)
    return data


def _selected(x: Tensor, dim: int, places: Tensor) -> Tensor:
    """Rows or columns of features, dense or sparse."""
    return (x if x.layout == torch.strided else x.to_sparse_coo()).index_select(dim, places.to(x.device))


def listed(names: Iterable[Any], most: int = 8) -> str:
    """The first few names."""
    names = [str(name) for name in names]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


# ------------------------------------------------------------------------------------------- values as people have them


def as_mask(mask: Any, num_nodes: int, culprit: str) -> Tensor:
    """A boolean mask over nodes from a boolean mask or a list of node indices."""
    index = node_numbers(mask, num_nodes, culprit)
    found = torch.zeros(num_nodes, dtype=torch.bool).scatter_(0, index, True)
    if int(found.sum()) < len(index):
        # Not a list of nodes, then: zeros and ones for every node are a mask, anything else is a mistake.
        if len(index) == num_nodes and int(index.max()) <= 1:
            return index.bool()
        raise InputError(f"{culprit} names a node twice: give booleans, or a list of different nodes")
    return found


def node_numbers(nodes: Any, num_nodes: int, culprit: str = "nodes") -> Tensor:
    """Node numbers in the order given, from numbers or a boolean mask."""
    rule = f"{culprit} must be booleans or a list of node indices"
    given = as_tensor(nodes, rule).cpu()
    if given.dtype == torch.bool:
        if given.shape != (num_nodes,):
            raise InputError(f"{culprit} has shape {tuple(given.shape)}, expected ({num_nodes},)")
        return given.nonzero().view(-1)
    if given.numel() == 0:
        return torch.empty(0, dtype=torch.int64)
    if given.ndim != 1 or given.is_floating_point() or given.is_complex():
        raise InputError(rule)
    if int(given.min()) < 0 or int(given.max()) >= num_nodes:
        raise InputError(f"{culprit} names a node outside 0..{num_nodes - 1}")
    return given.long()


def as_tensor(values: Any, rule: str) -> Tensor:
    """A dense tensor of whatever was given, or an :class:`InputError` with the rule that it breaks."""
    try:
        if not isinstance(values, Tensor):  # in native byte order, writable, whole numbers with a sign
            values = np.asarray(values)
            kind = values.dtype.newbyteorder("=")
            if kind.kind == "u" and kind.itemsize > 1:
                kind = np.dtype(np.int64 if values.max(initial=0) < 2**63 else object)
            values = torch.from_numpy(np.require(values.astype(kind, copy=False), requirements=["C", "W"]))
        return (values if values.layout == torch.strided else values.to_dense()).detach()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        kind = values.dtype if isinstance(values, np.ndarray) else type(values).__name__
        raise InputError(f"{rule}, not {kind}") from None


def node_name(data: Graph, node: int) -> Any:
    """What the user calls a node."""
    return node if data.get("ids") is None else data.ids[node]


def natural(name: Any) -> tuple[str, str]:
    """By which names are sorted: n2 comes before n10, and 2 before 10."""
    text = str(name)
    return re.sub(r"\d+", lambda digits: digits[0].zfill(20), text), text


def node_keys(data: Graph) -> NDArray[np.int64]:
    """A number for each node that says which one it is, wherever it stands.

    Its number, or its id where that is a whole number, as a number or as text; of any other id a hash, below zero.
    """
    ids = data.get("ids")
    if ids is None:
        return np.arange(data.num_nodes)
    text = pd.Series([*map(str, ids.tolist())], dtype=object)
    keys = pd.util.hash_array(text.to_numpy(), categorize=False).view(np.int64) | np.int64(-(2**63))
    whole = text.str.fullmatch(r"0|[1-9]\d{0,17}").to_numpy(dtype=bool)
    keys[whole] = text[whole].astype(np.int64)
    return keys


def id_order(data: Graph) -> Tensor | None:
    """The numbers of the nodes in the order of their ids; None where they stand in it, have no ids, or are a part."""
    if data.get("ids") is None or data.get("part") is not None:
        return None
    if data.ids.dtype.kind in "iu":
        order = torch.from_numpy(data.ids.argsort(kind="stable"))
    else:
        names = [*map(natural, data.ids.tolist())]
        order = torch.tensor(sorted(range(len(names)), key=names.__getitem__))
    return None if bool((order.diff() > 0).all()) else order


def reordered(data: Graph, order: Tensor | None) -> Graph:
    """The checked graph with its nodes in this order, if one is given."""
    if order is None:
        return data
    data, places = copy.copy(data), order.argsort()
    data.x = _selected(data.x, 0, order)
    for name in ("y", "sample_weight", *MASKS):
        if data.get(name) is not None:
            data[name] = data[name][order]
    data.ids = data.ids[order.numpy()]
    if data.get("table") is not None:
        data.table = data.table.iloc[order.numpy()]
    if data.edge_index is not None:
        data.edge_index = places[data.edge_index]
    return data


def name_array(names: Any) -> NDArray[Any]:
    """Names as an array; an empty one where they are no list."""
    try:
        array = np.asarray(names.detach().cpu() if isinstance(names, Tensor) else names)
    except ValueError:  # lists of several lengths
        return np.empty(0)
    return array if array.ndim == 1 else np.empty(0)


def first_bad(bad: Tensor) -> int | None:
    """The place, or the row, of the first that is bad, if there is one."""
    places = bad.nonzero()
    return int(places[0, 0]) if len(places) else None


def object_array(values: Sequence[Any]) -> NDArray[Any]:
    """A value an entry, whatever they are."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def is_missing(value: Any) -> bool:
    """None, NaN, pandas' NA and NaT, and the empty text."""
    return not value.strip() if isinstance(value, str) else bool(pd.api.types.is_scalar(value) and pd.isna(value))


def check_file(path: Path) -> None:
    """Raise unless there is such a file."""
    with reading(path, "a graph"):
        if not path.is_file():
            raise InputError(f"{path}: no such file")


@contextmanager
def reading(culprit: Path | str, kind: str, reason: str | None = None) -> Iterator[None]:
    """Whatever a library says of a file that is damaged or hostile, in one line, or the ``reason`` instead."""
    try:
        yield
    except InputError:
        raise
    except MemoryError:
        raise InputError(f"{culprit} does not fit in memory") from None
    except Exception as error:  # libraries raise many kinds
        if isinstance(error, OSError) and error.strerror:
            raise InputError(f"{culprit}: cannot read: {error.strerror}") from None
        raise InputError(f"{culprit}: cannot read as {kind}: {reason or first_line(error)}") from None


def first_line(error: Exception) -> str:
    """The first line of an error's text, or its kind where it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]
