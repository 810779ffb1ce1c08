"""Columns of features by their names: a table whose columns stand in another order is the same table."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
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


def order(own: Sequence[str] | None, names: Iterable[str] | None, owner: str = "the model") -> list[int] | None:
    """Where the columns called ``own`` stand in the order of ``names``, those of the ``owner``.

    None where one has no names, or both have the same order.
    """
    if own is None or names is None or list(own) == (names := list(names)):
        return None
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
    return [places[name] for name in names]


def arranged(data: Graph, names: Iterable[str] | None, owner: str = "the model") -> Graph:
    """The graph with its columns in the order of ``names``, those of the ``owner``; as it is where one has no names."""
    own = data.get("feature_names")
    places = order(own, names, owner)
    if places is None:
        return data
    data = copy.copy(data)
    x = data.x if data.x.layout == torch.strided else data.x.to_sparse_coo()
    data.x = x.index_select(1, torch.tensor(places, device=data.x.device))
    data.feature_names = tuple(own[place] for place in places)
    return data


def check_lists_alone(names: Iterable[str], culprit: str) -> None:
    """Raise if other features stand beside a column 'x' of lists, which is all features."""
    others = [name for name in names if name != "x"]
    if others:
        first = ", ".join(map(repr, others[:MOST_NAMED])) + (", ..." if len(others) > MOST_NAMED else "")
        these, them, their = ("stands", "it", "its") if len(others) == 1 else ("stand", "them", "their")
        beside = f"column 'x' of lists is all features, but {first} {these} beside it"
        raise InputError(f"{culprit}: {beside}: leave {them} out, or put {their} values into the lists")


def _listed(names: list[str]) -> str:
    """Features by their names, the first few, and the verb that goes with so many."""
    first = ", ".join(map(repr, names[:MOST_NAMED])) + (", ..." if len(names) > MOST_NAMED else "")
    return f"features {first} are" if len(names) > 1 else f"feature {first} is"
