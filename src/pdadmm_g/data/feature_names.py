"""Columns of features by their names: a table whose columns stand in another order is the same table."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch

from ..errors import InputError
from .graph import Graph

#: Names that an error gives at the most.
MOST_NAMED = 3


def are_names(names: Any, columns: int) -> bool:
    """Are these so many different names?"""
    return (
        isinstance(names, list | tuple)
        and all(isinstance(name, str) for name in names)
        and len(set(names)) == len(names) == columns
    )


def arranged(data: Graph, names: Iterable[str] | None, owner: str = "the model") -> Graph:
    """The graph with its columns in the order of ``names``, those of the ``owner``; as it is where one has no names."""
    own = data.get("feature_names")
    if own is None or names is None or own == (names := tuple(names)):
        return data
    places = {name: place for place, name in enumerate(own)}
    missing = [name for name in names if name not in places]
    unknown = sorted(places.keys() - set(names), key=places.__getitem__)
    if missing:
        many = len(missing) > 1
        rest = f"; {_listed(unknown)} unknown to it" if unknown else ""
        these = f"{owner} was trained with {'them' if many else 'it'}"
        raise InputError(f"data: {_listed(missing)} missing, {these}{rest}")
    if unknown:
        raise InputError(f"data: {_listed(unknown)} unknown to {owner}: leave {'them' if unknown[1:] else 'it'} out")
    order = torch.tensor([places[name] for name in names], device=data.x.device)
    data = copy.copy(data)
    x = data.x if data.x.layout == torch.strided else data.x.to_sparse_coo()
    data.x, data.feature_names = x.index_select(1, order), names
    return data


def _listed(names: list[str]) -> str:
    """Features by their names, the first few, and the verb that goes with so many."""
    first = ", ".join(map(repr, names[:MOST_NAMED])) + (", ..." if len(names) > MOST_NAMED else "")
    return f"features {first} are" if len(names) > 1 else f"feature {first} is"
