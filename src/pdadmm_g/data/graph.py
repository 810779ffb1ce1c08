"""A graph in memory: what all the rest of the package computes with."""

from __future__ import annotations

import copy
import warnings
from typing import Any

from ..errors import InputError


class Graph:
    """Features ``x``, ``edge_index`` (2, edges), labels ``y``, masks, and whatever else is known, each by its name.

    It is used like a ``torch_geometric`` ``Data`` (``graph.x``, ``graph["x"]``, ``"x" in graph``) but does without that
    library; :meth:`to_pyg` gives one. Entries are of any
    type until :func:`~pdadmm_g.data.checks.check_graph` has seen them. What is None is not there. Where the columns of
    ``x`` have names, these are its ``feature_names``.
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
        """A ``torch_geometric`` ``Data`` with the same entries."""
        data, *_ = pyg_records()
        return data.from_dict(self.to_dict())


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
