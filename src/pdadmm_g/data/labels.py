"""Labels as people have them, whole numbers, text or columns, as the tensors that all the rest takes."""

from __future__ import annotations

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
from .checks import LARGEST_LABEL, as_tensor
from .graph import Graph
from .targets import FOR_NUMBERS, columns_of

Array = NDArray[Any]


def set_targets(data: Graph, y: Any, culprit: str, target: TargetKind) -> None:
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
    missing = np.array([is_missing(value) or _is_minus_one(value) for value in values], dtype=bool)
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


def is_missing(value: Any) -> bool:
    """None, NaN, pandas' NA and NaT, and the empty text."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return True
    return bool(isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")


def _largest(label: Any) -> int:
    """Whole numbers that came as fractions are themselves up to some size only."""
    return LARGEST_LABEL if isinstance(label, float) else sys.maxsize


def _is_minus_one(value: Any) -> bool:
    return _is_whole(value) and int(value) == -1


def _is_whole(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return isinstance(value, numbers.Integral) or float(value).is_integer()
