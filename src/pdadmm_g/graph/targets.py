"""What is learned of each node: a class, probabilities of classes, several labels or numbers; and what rows weigh.

The entry ``target_kind`` of a graph says what its ``y`` is: ``multilabel``, a matrix of 0 and 1 with a column a label,
or ``regression``, a matrix of numbers; without it, classes or their probabilities. In both matrices a row of NaN is a
node without label, and ``label_names`` are what the user calls the columns, or the classes, where they have names.
"""

from __future__ import annotations

import numbers
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config import TARGETS, TargetKind, label_name
from ..errors import InputError
from .columns import numbers_of, thousands_of, words_of
from .graph import LARGEST, Graph, as_tensor, first_bad, is_missing, listed, node_name, object_array

Array = NDArray[Any]
FOR_NUMBERS = "for numbers take GAMLPRegressor (--target regression)"
FOR_CLASSES = "for classes as_graph(..., target='classification') (--target classification)"
#: Different labels of which this share or more are numbers are meant as such, if the others are at most so many words.
MOSTLY, FEW_WORDS = 0.9, 3
#: What people write where they do not know a label.
NO_LABELS = ("unknown", "?", "n/a", "na", "nan", "none", "null", "-", "missing", "unlabelled", "unlabeled")
#: Whole numbers up to here are themselves in double precision.
LARGEST_LABEL = 2**53
#: Sums of probabilities differ from one by so much at the most.
SUM_TOLERANCE = 1e-3


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
    whole, y = not y.is_floating_point(), y.double()
    if target == "multilabel":
        y = y.where(~(y == -1).all(1, keepdim=True), torch.nan) if whole else y
        wrong, rule, remedy = (y != 0) & (y != 1) & ~y.isnan(), "labels must be 0 or 1 in each column", FOR_NUMBERS
    else:
        if whole and bool((y == -1).any()):
            remedy = "give y as fractions, NaN where it is not known"
            raise InputError(f"{culprit}: -1 among whole numbers may stand for no value: {remedy}")
        wrong, rule, remedy = y.abs() > LARGEST, f"numbers must be finite and at most {LARGEST:g}", "rescale them"
    if len(places := wrong.nonzero()):
        row, column = places[0].tolist()
        raise InputError(f"{culprit}: {rule}, but y[{row}, {column}] = {y[row, column].item():g}; {remedy}")
    if (row := first_bad(y.isnan().any(1) & ~y.isnan().all(1))) is not None:
        raise InputError(f"{culprit}: row {row} of 'y' has NaN in some columns: give all of them, or none")
    return y


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


# ---------------------------------------------------------------------------------------------------- labels of a graph


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
        maybe = data.get("maybe_label")
        say = f"as_graph(nodes, edges, labels={maybe!r}) (--labels {maybe}) says so"
        hint = "" if maybe is None else f": if it is {maybe!r}, {say}, or call it 'label'"
        raise InputError(f"{culprit}: labels 'y' are missing; in a table they are the column 'label'{hint}")


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
    if (node := first_bad(data[mask] & ~labelled(data))) is not None:
        raise InputError(f"{culprit}: node {node_name(data, node)} of {mask} has no label ({missing_label(data)})")


def missing_label(data: Graph) -> str:
    """How 'y' says that a node has no label."""
    if data.get("label_names") is not None and not has_columns(data):
        return "it is empty"
    return "a row of NaN" if data.y.is_floating_point() else "y = -1"


def class_name(data: Graph, code: int) -> Any:
    """What the user calls a class."""
    return code if data.get("label_names") is None else data.label_names[code]


def check_labels(y: Tensor, num_nodes: int, culprit: str, column: str | None = None) -> Tensor:
    """Labels, of a ``column`` of a table, as integers, or as rows of probabilities, or an :class:`InputError`."""
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if is_soft(y) and len(y) == num_nodes:
        return check_probabilities(y, f"{culprit}: labels 'y'", missing=True)
    if y.shape != (num_nodes,):
        raise InputError(f"{culprit}: labels 'y' have shape {tuple(y.shape)}, expected ({num_nodes},)")
    if y.is_complex() or y.dtype == torch.bool:
        raise InputError(f"{culprit}: labels must be integers, not {y.dtype}")
    y = y if y.is_floating_point() else y.long()
    what = "labels 'y' have" if column is None else f"column {column!r} has"
    if (row := first_bad(y != y.round())) is not None and y[row].isfinite():
        remedy = f"to predict numbers take --target regression (GAMLPRegressor), {FOR_CLASSES}"
        raise InputError(f"{culprit}: {what} fractions (row {row}: {y[row].item()}): {remedy}")
    if (row := first_bad(~(y >= -1) | (y > LARGEST_LABEL) & y.is_floating_point())) is not None:
        rule = f"labels must be integers from 0 to {LARGEST_LABEL} (-1 for unlabelled nodes)"
        raise InputError(f"{culprit}: {rule}, but y[{row}] = {y[row].item()}")
    return y.long()


def is_soft(y: Tensor) -> bool:
    """Do these labels look like probabilities: a matrix of fractions with a column for each of several classes?"""
    return y.ndim == 2 and y.shape[1] >= 2 and y.is_floating_point()


def probabilities_of(y: Any) -> Tensor | None:
    """Labels of a feature matrix that are probabilities, a column a class; None if they are anything else."""
    try:
        given = as_tensor(y, "y must be numbers")
    except InputError:
        return None
    return check_probabilities(given, "y") if is_soft(given) else None


def check_probabilities(y: Tensor, culprit: str, *, missing: bool = False) -> Tensor:
    """Rows of probabilities, made to sum to one exactly. With ``missing``, a row of NaN is a node without label."""
    y = y.double()
    total, absent = y.sum(1), y.isnan().all(1) & missing
    right = (y >= 0).all(1) & ((total - 1).abs() <= SUM_TOLERANCE)
    if (row := first_bad(~right & ~absent)) is not None:
        values = listed([f"{value:g}" for value in y[row].tolist()], 6)
        raise InputError(f"{culprit}: the probabilities of row {row} must sum to one and not be negative, got {values}")
    return y / total[:, None]


# ------------------------------------------------------------------------------------------- labels as people have them


def set_targets(data: Graph, y: Any, culprit: str, target: TargetKind) -> None:
    """Give the graph its labels, of the kind that was asked for, and what they are called."""
    columns = columns_of(y, target, culprit)
    if columns is not None:
        data.y, names = columns
        data.label_names = data.get("label_names") if names is None else names
        return
    is_float = getattr(y, "dtype", None) in (np.float64, np.float32) and y.ndim == 1
    if target == "classification" and is_float and bool((y[~np.isnan(y)] % 1 != 0).any()):
        y = np.array([None if value != value else label_name(value) for value in y])
    data.y, names = encoded_labels(y, culprit)
    if names is None:
        return
    data.label_names = names
    if target == "auto":
        _refuse_words_among_numbers(names, culprit)
    notes, alike = list[str](), defaultdict[str, list[str]](list)
    for code, name in enumerate(map(str, names.tolist())):
        alike[name.casefold()].append(name)
        if name.strip().lower() in NO_LABELS:
            which = f"label {name!r} (nodes: {int((data.y == code).sum())})"
            notes.append(f"{which} is taken for a class like any other: leave it empty if it says that none is known")
    for same in alike.values():
        if len(same) > 1:
            what = f"labels {' and '.join(map(repr, same))} differ by capitals alone and are {len(same)} classes"
            notes.append(f"{what}: write them alike if they mean the same")
    data.notes = (*data.get("notes", ()), *notes) or None


def _refuse_words_among_numbers(names: Array, culprit: str) -> None:
    """Raise where different labels are nearly all numbers with fractions, and the others a few words as unknown."""
    labels = pd.Series(names, dtype=object)
    numbers = numbers_of(labels, booleans=False, thousands=thousands_of(labels))
    odd = np.isnan(numbers)
    if 0 < odd.sum() <= FEW_WORDS and odd.mean() <= 1 - MOSTLY and (numbers[~odd] % 1 != 0).mean() > 0.5:
        remedy = "leave these empty, and predict numbers with --target regression (GAMLPRegressor)"
        raise InputError(
            f"{culprit} are numbers but for {listed(map(repr, names[odd].tolist()))}: {remedy}; {FOR_CLASSES}"
        )


def encoded_labels(y: Any, culprit: str) -> tuple[Tensor, Array | None]:
    """Labels as numbers, -1 where there is none, or as probabilities; and what the numbers stand for.

    Whole numbers stand for themselves (None). None, NaN, "" and -1 are no label.
    """
    if isinstance(y, Tensor):
        return y, None
    try:
        array = np.asarray(y)
    except ValueError:  # lists of several lengths
        array = object_array(list(y))
    if array.dtype.kind in "US" and isinstance(y, list | tuple):  # beside text everything becomes text
        array = object_array(y)
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.dtype.kind in "iuf" and array.ndim <= 2:
        given = as_tensor(array, f"{culprit} must be numbers")
        return (given.where(~given.isnan(), -1) if given.ndim == 1 else given), None
    if array.ndim != 1:
        raise InputError(f"{culprit} must be one for each node, got shape {array.shape}")
    places, values = factorized(array.astype(object), f"{culprit} must be text or whole numbers")
    values = object_array([value.strip() if isinstance(value, str) else value for value in values])
    known = np.array([not is_missing(value) and value != -1 for value in values], dtype=bool)
    kinds = {_kind_of_label(value): value for value in values[known]}
    if None in kinds or len(kinds) > 1:
        both = " and ".join(f"{value!r:.60}" for value in [*kinds.values()][:2])
        raise InputError(f"{culprit} must be all text or all whole numbers, got {both}; {FOR_NUMBERS}")
    codes, names = np.full(len(values) + 1, -1), None
    if int in kinds:
        try:
            codes[:-1][known] = [int(value) for value in values[known]]
        except OverflowError:
            raise InputError(f"{culprit} must be at most {sys.maxsize}, got {max(values[known], key=abs)}") from None
    elif kinds:
        if any("\0" in str(value) for value in values[known]):
            raise InputError(f"{culprit}: one has a null byte, which is no text: take it out")
        names, codes[:-1][known] = np.unique(np.array([*values[known]]), return_inverse=True)
    return torch.from_numpy(codes[places]), names


def factorized(values: Array, rule: str) -> tuple[Array, Array]:
    """The place of each value among the different ones, -1 for a missing one; and these."""
    try:
        places, different = pd.factorize(values)
    except TypeError:
        odd = next(value for value in values.tolist() if getattr(value, "__hash__", None) is None)
        raise InputError(f"{rule}, got {odd!r:.60}") from None
    return places, np.asarray(different)


def _kind_of_label(value: Any) -> type | None:
    if isinstance(value, str | bool):
        return type(value)
    return int if isinstance(value, numbers.Real) and value % 1 == 0 else None


def columns_of(y: Any, target: str, culprit: str) -> tuple[Tensor, Array | None] | None:
    """Targets in columns as a tensor, and the names of these if they have any; None where ``y`` is of classes.

    ``y`` is an array, tensor, scipy matrix or pandas table, or lists of these, of numbers or words for yes and no.
    """
    if target == "classification":
        return None
    names = None
    if isinstance(y, pd.DataFrame):
        given = [*y.columns]
        names = np.array(given) if given and all(isinstance(name, str) for name in given) else None
    elif hasattr(y, "toarray"):  # of scipy
        y = y.toarray()
    if isinstance(y, Tensor):
        tensor = as_tensor(y, culprit).cpu()
    else:
        try:
            array = np.asarray(y)
        except ValueError:  # lists of several lengths
            return None
        if target == "auto" and (array.ndim != 2 or array.shape[1] < 2):
            return None
        if array.dtype.kind not in "biuf":
            array = _numbers(array, target, culprit)
        # Whole numbers stay such, so that -1 can be told from a value.
        tensor = torch.from_numpy(array.astype(np.int64 if array.dtype.kind in "biu" else np.float64))
    return (_as_columns(tensor), names) if target != "auto" or is_indicator(tensor) else None


def _as_columns(y: Tensor) -> Tensor:
    return y[:, None] if y.ndim == 1 else y


def _numbers(array: Array, target: str, culprit: str) -> Array:
    """Text and objects in columns as numbers, NaN for what is missing."""
    given = array.reshape(len(array), -1)
    found = np.empty(given.shape)
    for place, column in enumerate(given.T):
        words = words_of(pd.Series(column, dtype=object))
        found[:, place] = numbers_of(words, booleans=target != "regression", thousands=thousands_of(words))
        odd = words[words.notna() & np.isnan(found[:, place])]
        if len(odd):
            what = "numbers" if target == "regression" else "0 or 1 in each column"
            raise InputError(f"{culprit} must be {what}, got {odd.iloc[0]!r:.60}: leave it empty where none is known")
    return found.reshape(array.shape)


# -------------------------------------------------------------------------------------------------------------- weights


def row_weights(given: Any, rows: Tensor, total: int) -> Tensor:
    """The weights of ``rows``, which are some of ``total``, from a weight for each of them or for all there are."""
    weights = as_tensor(given, "sample_weight must be numbers").cpu()
    if weights.is_complex():
        raise InputError(f"sample_weight must be numbers, not {weights.dtype}")
    if weights.shape not in ((total,), (len(rows),)):
        expected = f"({total},) or, training nodes alone, ({len(rows)},)"
        raise InputError(f"sample_weight has shape {tuple(weights.shape)}, expected {expected}")
    weights = (weights if len(weights) == len(rows) else weights[rows]).double()
    if (place := first_bad(~(weights >= 0) | (weights > LARGEST))) is not None:
        rule = f"sample_weight must be 0 or more, finite and at most {LARGEST:g}"
        raise InputError(f"{rule}, but that of row {int(rows[place])} is {weights[place]:g}")
    if not bool(weights.any()):
        raise InputError("sample_weight is zero for every training row: give some row a positive weight")
    return weights


class Weighed(NamedTuple):
    """Rows that weigh something, with what they should become."""

    #: Which of the rows these are, a mask; None if all.
    kept: Tensor | None
    #: Indices of classes, or probabilities.
    y: Tensor
    #: None if each row weighs one.
    weights: Tensor | None
    classes: NDArray[Any]


def weighed(
    y: Tensor,
    classes: NDArray[Any],
    class_weight: Mapping[str, float] | Literal["balanced"] | None,
    weights: Tensor | None,
) -> Weighed:
    """The rows with targets ``y``, indices of the ``classes`` or probabilities, by the weights of rows and classes.

    A row with probabilities counts as one of each class with that share of its weight.
    """
    if weights is None and class_weight is None:
        return Weighed(None, _plain(y), None, classes)
    weights = torch.ones(len(y), dtype=torch.float64) if weights is None else weights
    soft = y.is_floating_point()
    if class_weight is not None:
        factors = class_factors(y, classes, class_weight, weights)
        factor = (y * factors).sum(1) if soft else factors[y]
        y = (y * factors / factor[:, None]).where(factor[:, None] > 0, y) if soft else y
        weights = weights * factor
    weights = weights.float()
    kept = weights > 0
    if not bool(kept.any()):
        raise InputError("class_weight leaves every training row a weight of zero: give some class a larger one")
    y, weights = y[kept], weights[kept]
    if not soft:
        present, y = y.unique(return_inverse=True)
        classes = classes[present.numpy()]
    same = bool((weights == 1).all())
    return Weighed(None if bool(kept.all()) else kept, _plain(y), None if same else weights, classes)


def _plain(y: Tensor) -> Tensor:
    """Probabilities that are all zero or one, as the classes that they name: exactly the same, and faster."""
    return y.argmax(1) if y.is_floating_point() and bool((y.amax(1) == 1).all()) else y


def class_factors(
    y: Tensor, classes: NDArray[Any], class_weight: Mapping[str, float] | Literal["balanced"], weights: Tensor
) -> Tensor:
    """What each class weighs. Balanced: the mean weight of a class, by that of its own."""
    if class_weight == "balanced":
        own = weights @ y if y.is_floating_point() else torch.bincount(y, weights, minlength=len(classes))
        present = own > 0
        return (own.sum() / (present.sum() * own)).where(present, 1.0)
    names = [label_name(label) for label in classes.tolist()]
    for unknown in sorted(class_weight.keys() - {*names}):
        raise InputError(f"class_weight names class {unknown}, which no training row has; there are {listed(names)}")
    return torch.tensor([class_weight.get(name, 1.0) for name in names], dtype=torch.float64)
