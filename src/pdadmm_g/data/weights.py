"""What training rows weigh: weights of rows and of classes, multiplied. Rows that weigh nothing are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config import label_name
from ..errors import InputError
from .checks import LARGEST, as_tensor


def row_weights(given: Any, rows: Tensor, total: int) -> Tensor:
    """The weights of ``rows``, which are some of ``total``, from a weight for each of them or for all there are."""
    rule = "sample_weight must be numbers"
    try:
        given = given if isinstance(given, Tensor) else np.asarray(given)
    except (TypeError, ValueError):
        raise InputError(f"{rule}, one a row") from None
    weights = as_tensor(given, rule).cpu()
    if weights.is_complex():
        raise InputError(f"{rule}, not {weights.dtype}")
    if weights.shape not in ((total,), (len(rows),)):
        expected = f"({total},)" if len(rows) == total else f"({total},) or, training nodes alone, ({len(rows)},)"
        raise InputError(f"sample_weight has shape {tuple(weights.shape)}, expected {expected}")
    weights = (weights if len(weights) == len(rows) else weights[rows]).double()
    for bad, must in (
        (~weights.isfinite(), "be finite"),
        (weights < 0, "not be negative"),
        (weights > LARGEST, f"be at most {LARGEST:g}"),
    ):
        if bool(bad.any()):
            place = int(bad.nonzero()[0])
            raise InputError(f"sample_weight must {must}, but that of row {int(rows[place])} is {weights[place]:g}")
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
    if class_weight is not None:
        factors = class_factors(y, classes, class_weight, weights)
        if y.is_floating_point():
            shares = y * factors
            factor = shares.sum(1)
            y = (shares / factor[:, None]).where(factor[:, None] > 0, y)
        else:
            factor = factors[y]
        weights = weights * factor
    weights = weights.float()
    kept = weights > 0
    if not bool(kept.any()):
        raise InputError("class_weight leaves every training row a weight of zero: give some class a larger one")
    y, weights = y[kept], weights[kept]
    if not y.is_floating_point():
        present, y = y.unique(return_inverse=True)
        classes = classes[present.numpy()]
    return Weighed(
        None if bool(kept.all()) else kept, _plain(y), None if bool((weights == 1).all()) else weights, classes
    )


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
    unknown = sorted(class_weight.keys() - set(names))
    if unknown:
        known = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise InputError(f"class_weight names class {unknown[0]}, which no training row has; there are {known}")
    return torch.tensor([class_weight.get(name, 1.0) for name in names], dtype=torch.float64)
