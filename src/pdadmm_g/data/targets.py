"""What is learned of each node, where that is more than one class: several labels, or numbers.

The entry ``target_kind`` of a graph says what its ``y`` is: ``multilabel``, a matrix of 0 and 1 with a column a label,
or ``regression``, a matrix of numbers; without it, classes or their probabilities. In both matrices a row of NaN is a
node without label, and ``label_names`` are what the user calls the columns, where they have names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config import TARGETS, TargetKind
from ..errors import InputError
from .graph import Graph

Array = NDArray[Any]
YES, NO = ("true", "1", "1.0", "yes"), ("false", "0", "0.0", "no")
FOR_NUMBERS = "for numbers take GAMLPRegressor (--target regression)"
#: Larger numbers would overflow in single precision.
LARGEST_NUMBER = 1e15


def target_of(data: Graph) -> TargetKind:
    """The kind of target that a checked graph has."""
    kind: TargetKind = data.get("target_kind")
    return kind if kind in TARGETS else "classification"


def has_columns(data: Graph) -> bool:
    """Is the target of each node a row of labels or numbers, and not a class?"""
    return target_of(data) != "classification"


def asked(data: Graph, target: TargetKind) -> Graph:
    """The same graph with targets of the kind that was asked for; ``auto`` leaves it to what is there."""
    if target != "auto":
        is_text = data.get("label_names") is not None and data.y is not None and data.y.ndim == 1
        if target != "classification" and is_text:
            what = f"the labels are text, such as {data.label_names[0]!s:.40}"
            raise InputError(f"{what}: they are classes, not {TARGETS[target].what}")
        data.target_kind = target
    return data


def is_indicator(y: Tensor) -> bool:
    """Can it be nothing but a matrix of 0 and 1 for several labels a node?

    Whole numbers with several columns are; fractions also where they are all 0 or 1 and not one of each row is 1, which
    would be the probabilities of classes.
    """
    if y.ndim != 2 or y.shape[1] < 2 or y.is_complex():
        return False
    if not y.is_floating_point():
        return True
    known = y[~y.isnan().all(1)]
    return bool(((known == 0) | (known == 1)).all()) and bool((known.sum(1) != 1).any())


def checked_columns(y: Tensor, target: str, num_nodes: int, culprit: str) -> Tensor:
    """Targets as (nodes, outputs) in double precision, a row of NaN for a node without, or an :class:`InputError`."""
    y = _as_columns(y)
    if y.ndim != 2 or len(y) != num_nodes or not y.shape[1]:
        raise InputError(f"{culprit}: targets 'y' have shape {tuple(y.shape)}, expected ({num_nodes}, columns)")
    if y.is_complex():
        raise InputError(f"{culprit}: targets 'y' must be real numbers")
    whole = not y.is_floating_point()
    y = y.double()
    if target == "multilabel":
        y = y.where(~(y == -1).all(1, keepdim=True), torch.nan) if whole else y
        wrong = (y != 0) & (y != 1) & ~y.isnan()
        _refuse(wrong, y, f"{culprit}: labels must be 0 or 1 in each column", FOR_NUMBERS)
    else:
        if whole and bool((y == -1).any()):
            remedy = "give y as fractions, NaN where it is not known"
            raise InputError(f"{culprit}: -1 among whole numbers may stand for no value: {remedy}")
        _refuse(y.abs() > LARGEST_NUMBER, y, f"{culprit}: numbers must be finite and at most {LARGEST_NUMBER:g}")
    some = (y.isnan().any(1) & ~y.isnan().all(1)).nonzero()
    if len(some):
        raise InputError(f"{culprit}: row {int(some[0])} of 'y' has NaN in some columns: give all of them, or none")
    return y


def _refuse(wrong: Tensor, y: Tensor, rule: str, remedy: str = "rescale them") -> None:
    places = wrong.nonzero()
    if len(places):
        row, column = places[0].tolist()
        raise InputError(f"{rule}, but y[{row}, {column}] = {y[row, column].item():g}; {remedy}")


def strata(data: Graph) -> Tensor:
    """A number for each node, of which every part of the nodes should have all; -1 for a node without label.

    Of nodes with several labels the rarest one that it has, and one number more for those that have none; of numbers
    all are alike.
    """
    y = data.y
    missing = y.isnan().any(1)
    if target_of(data) == "regression":
        return torch.where(missing, -1, 0)
    often = y.nan_to_num(0).sum(0)
    rarest = torch.where(y == 1, often, torch.inf).argmin(1)
    return torch.where(y.nan_to_num(0).any(1), rarest, y.shape[1]).where(~missing, -1)


# ------------------------------------------------------------------------------------------------- what people have


def columns_of(y: Any, target: str, culprit: str) -> tuple[Tensor, Array | None] | None:
    """Targets in columns as a tensor, and the names of these if they have any; None where ``y`` is of classes.

    ``y`` is an array, tensor, scipy matrix or pandas table, or lists of these, of numbers or words for yes and no.
    """
    names = None
    if hasattr(y, "columns") and hasattr(y, "iloc"):
        given = [*y.columns]
        names = np.array(given) if given and all(isinstance(name, str) for name in given) else None
        y = y.to_numpy()
    if hasattr(y, "toarray"):  # of scipy
        y = y.toarray()
    if isinstance(y, Tensor):
        y = y.detach()
        dense = y if y.layout == torch.strided else y.to_dense()
        several = target != "auto" or (dense.ndim == 2 and dense.shape[1] > 1 and is_indicator(dense.cpu()))
        return (_as_columns(dense.cpu()), names) if several and target != "classification" else None
    if target == "classification":
        return None
    try:
        array = np.asarray(y)
    except ValueError:
        return None
    if target == "auto" and (array.ndim != 2 or array.shape[1] < 2):
        return None
    if array.dtype.kind not in "biuf":
        array = _numbers(array, target, culprit)
    tensor = torch.from_numpy(np.array(array, dtype=_kind(array)))
    return (_as_columns(tensor), names) if target != "auto" or is_indicator(tensor) else None


def _as_columns(y: Tensor) -> Tensor:
    return y[:, None] if y.ndim == 1 else y


def _kind(array: Array) -> Any:
    """A type that torch has: whole numbers stay such, so that -1 can be told from a value."""
    return np.int64 if array.dtype.kind in "biu" else np.float64


def _numbers(array: Array, target: str, culprit: str) -> Array:
    """Text and objects as numbers, NaN for what is missing."""
    words = dict.fromkeys(YES, 1.0) | dict.fromkeys(NO, 0.0)

    def number(value: Any) -> float:
        if value is None or type(value).__name__ in ("NAType", "NaTType"):
            return np.nan
        text = str(value).strip().lower()
        if target != "regression" and text in words:
            return words[text]
        try:
            return float(text) if text else np.nan
        except ValueError:
            rule = "must be numbers" if target == "regression" else "must be 0 or 1 in each column"
            raise InputError(f"{culprit} {rule}, got {str(value)[:60]!r}") from None

    values = np.array([number(value) for value in array.ravel()], dtype=np.float64)
    return values.reshape(array.shape)
