r"""How good predictions are: the figures of scikit-learn, and the calibration error.

Labels are class numbers, the columns of the probabilities; those that the model does not know are -1, and always wrong.
Of several labels a row, a matrix of 0 and 1, each column has its own probability; numbers are predicted themselves.
A figure that is not defined on the rows at hand (a ranking of one class, say) is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Bins of equal width in which confidence is compared with accuracy.
BINS = 15
#: The figures that are expected on new rows; draws that tell how optimistic they are.
EXPECTED, DRAWS = ("accuracy", "balanced_accuracy", "roc_auc_ovr"), 200
#: What rows are called of which each was asked of a model that the others trained; as many count as one.
OUT_OF_FOLD, CROSSED = "out of fold", 1.5
#: What an interval leaves out on either side.
TAIL = 0.05

Array = NDArray[Any]
#: As scikit-learn has them: ``scorer(estimator, X, y)``, the higher the better.
Scorer = Callable[[Any, Any, Any], float]


def metrics(y: ArrayLike, predicted: ArrayLike, target: str = "classification") -> dict[str, float | None]:
    r"""All figures of predictions.

    Of classes:

    ``accuracy``, ``balanced_accuracy`` (the mean recall of the classes that occur), ``f1_macro``, ``f1_micro``,
    ``roc_auc_ovr`` and ``average_precision`` (each class against the others, the mean over the classes that occur; of
    two classes, ``average_precision`` is that of the second), ``log_loss``, and ``calibration_error``, the expected
    one: with the rows in 15 bins of equal width by the probability of the predicted class,

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} \left| \mathrm{accuracy}_b - \mathrm{confidence}_b \right|.

    Of several labels a row: ``accuracy`` of the whole sets of labels, ``f1_micro``, ``f1_macro``, ``roc_auc_ovr`` and
    ``average_precision``, the mean over the labels that some rows have and others have not, and ``log_loss``, the mean
    over rows and labels. Of numbers: ``r2``, ``mean_absolute_error`` and ``root_mean_squared_error``, the mean over the
    columns.
    """
    return {name: score(name, y, predicted, target) for name in METRICS[target]}


def by_output(y: ArrayLike, predicted: ArrayLike, target: str) -> list[dict[str, float | None]]:
    """Figures of each of several labels, or numbers, by itself, a row for each column.

    Of a label ``share``, how many rows have it, ``precision``, ``recall``, ``f1`` and ``average_precision``; of a
    number the figures of :func:`metrics`.
    """
    from sklearn.metrics import precision_recall_fscore_support

    y, P = np.asarray(y), np.asarray(predicted, dtype=np.float64)
    found = []
    for own, given in zip(y.T[:, :, None], P.T[:, :, None], strict=True):
        if target == "regression":
            found.append(metrics(own, given, target))
            continue
        rates = precision_recall_fscore_support(own > 0.5, given > 0.5, average="binary", zero_division=math.nan)
        known = [None if math.isnan(rate) else float(rate) for rate in rates[:3]]
        ranked = score("average_precision", own, given, target)
        names = ("share", "precision", "recall", "f1", "average_precision")
        found.append(dict(zip(names, (float(own.mean()), *known, ranked), strict=True)))
    return found


def reliability(y: ArrayLike, probabilities: ArrayLike) -> list[dict[str, float]]:
    """The bins of the calibration error that have rows: their mean confidence, accuracy and number of rows."""
    y, P = np.asarray(y), np.asarray(probabilities, dtype=np.float64)
    confidence, right = P.max(1), P.argmax(1) == y
    # Confidence 1 belongs to the last bin; a bin has its upper edge, as is usual.
    place = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    bins = [place == bin for bin in np.unique(place)]
    return [
        {"confidence": float(confidence[own].mean()), "accuracy": float(right[own].mean()), "rows": int(own.sum())}
        for own in bins
    ]


def score(scoring: str | Scorer, y: ArrayLike, predicted: ArrayLike, target: str = "classification") -> float | None:
    """What ``scoring`` makes of predictions, the higher the better: a name that the setting takes, or a scorer.

    A scorer gets an estimator with ``predict`` and, but for numbers, ``predict_proba``, and as labels the class
    numbers, or the matrix of targets. None where it is not defined.
    """
    y, P = np.asarray(y), np.asarray(predicted, dtype=np.float64)
    if callable(scoring):
        value = float(scoring(_judged(P.shape[1], target), P, y))
        return value if math.isfinite(value) else None
    if not len(y) or not np.isfinite(P).all():
        return None
    name = scoring.removeprefix("neg_")
    found = _figure(name, y, P, target)
    return None if found is None else float(found if name == scoring else -found)


class Estimate(msgspec.Struct, frozen=True):
    """How good a classifier is expected to be on nodes that it has not seen."""

    #: The nodes that say so, e.g. "validation".
    on: str
    nodes: int
    #: The share of the largest class among them: the accuracy of whoever always names it.
    largest_class: float
    #: The value of each figure with the ends of its 90% interval.
    figures: dict[str, tuple[float, float, float]]


def estimate(
    y: ArrayLike, probabilities: ArrayLike, on: str = "validation", optimism: Mapping[str, float] | None = None
) -> Estimate:
    r"""Accuracy, balanced accuracy and area under the ROC curve with their 90% intervals.

    A figure is written as a mean of what each row adds to it (:func:`contributions`), whose variance says from how many
    independent rows with the same mean it would be as certain,
    :math:`n_e = n \hat\theta (1 - \hat\theta) / \mathrm{var}`. The interval is that of Clopper and Pearson for so
    many rows. For accuracy these are all rows; all others count no more than
    :math:`C^2 / \sum_c n_c^{-1}` rows of C classes with :math:`n_c` rows each. Where the rows have also chosen among
    several models, the ``optimism`` of that is taken off, see :func:`optimism_of`. Rows that are asked out of fold have
    trained the models of the other folds: they count as fewer.
    """
    from scipy.special import betaincinv

    counts, figures = np.unique(np.asarray(y), return_counts=True)[1], {}
    number = int(counts.sum())
    for name in EXPECTED:
        each = contributions(name, y, probabilities)
        value, variance = min(max(float(each.mean()) - (optimism or {}).get(name, 0.0), 0.0), 1.0), each.var()
        if math.isnan(value):
            continue
        rows = number if name == "accuracy" else len(counts) ** 2 / (1 / counts).sum()
        rows = min(rows, number * value * (1 - value) / variance) if variance > 0 else rows
        rows /= CROSSED if on == OUT_OF_FOLD else 1.0
        right, wrong = value * rows, (1 - value) * rows
        low = float(betaincinv(right, wrong + 1, TAIL)) if right else 0.0
        high = float(betaincinv(right + 1, wrong, 1 - TAIL)) if wrong else 1.0
        figures[name] = (value, low, high)
    return Estimate(on, number, float(counts.max() / number), figures)


def optimism_of(y: ArrayLike, models: Sequence[ArrayLike], scoring: str | Scorer, members: int = 1) -> dict[str, float]:
    """By how much the best of several models by the score of some rows looks better on these rows than it is.

    On average over draws with replacement, the best on what is drawn is scored on the other rows (Tsamardinos et al.,
    2018); or the best few, whose mean is as optimistic as they are on average.
    """
    own = np.array([[contributions(name, y, P) for P in models] for name in EXPECTED])
    by, number = own[EXPECTED.index(_nearest(scoring))], own.shape[2]
    random, others = np.random.default_rng(0), []
    chosen = by.sum(1).argsort(kind="stable")[-members:]
    for _ in range(DRAWS):
        drawn = np.bincount(random.integers(number, size=number), minlength=number)
        best = (by @ drawn).argsort(kind="stable")[-members:]
        if not drawn.all():
            others.append(own[:, best][..., drawn == 0].mean((1, 2)))
    lost = own[:, chosen].mean((1, 2)) - np.mean(others or [math.nan], axis=0)
    return {name: max(float(each), 0.0) for name, each in zip(EXPECTED, lost, strict=True) if not math.isnan(each)}


def _nearest(scoring: str | Scorer) -> str:
    """The figure by which a score is judged whose rows add nothing that is known to it."""
    return scoring if isinstance(scoring, str) and scoring in EXPECTED else "accuracy"


def standard_error(y: ArrayLike, P: ArrayLike, scoring: str | Scorer) -> float:
    """Of the score of some rows, given class indices and probabilities; that of accuracy for scores of other kinds."""
    each = contributions(_nearest(scoring), y, P)
    return float(each.std() / len(each) ** 0.5)


def contributions(figure: str, y: ArrayLike, P: ArrayLike) -> Array:
    """What each row adds to a figure, which is the mean of these: by its influence function where it is no mean."""
    y, P = np.asarray(y), np.asarray(P, dtype=np.float64)
    right, number = (P.argmax(1) == y).astype(float), len(y)
    if figure == "accuracy":
        return right
    if figure == "log_loss":
        return -np.log(P[range(number), y].clip(np.finfo(P.dtype).eps))
    if figure == "balanced_accuracy":
        _, place, counts = np.unique(y, return_inverse=True, return_counts=True)
        recall = np.bincount(place, right) / counts
        return recall.mean() + (right - recall[place]) * number / (len(counts) * counts[place])
    found = []
    for own, confidence in _each_class(y, P):
        # How much of the other side each row is on the right side of: its placement.
        placed, ranks = np.empty(number), _ranks(confidence)
        placed[own] = (ranks[own] - _ranks(confidence[own])) / (~own).sum()
        placed[~own] = 1 - (ranks[~own] - _ranks(confidence[~own])) / own.sum()
        area = placed[own].mean()
        found.append(area + (placed - area) * number / np.where(own, own.sum(), (~own).sum()))
    return np.mean(found, axis=0) if found else np.full(number, np.nan)


def scoring_name(scoring: str | Scorer) -> str:
    """What a scoring is called in a sentence."""
    return scoring if isinstance(scoring, str) else getattr(scoring, "__name__", "score")


def shown(score: float) -> str:
    """A score in a sentence; minus infinity stands for one that is not defined on the rows at hand."""
    return f"{score:.3f}" if score > -math.inf else "undefined"


def _judged(outputs: int, target: str) -> Any:
    """An estimator for scorers, whose input is the predictions themselves."""
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

    class Judged(RegressorMixin if target == "regression" else ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        classes_ = np.arange(outputs)

        def predict(self, X: Array) -> Array:
            if target == "regression":
                return X
            return X.argmax(1) if target == "classification" else (X > 0.5).astype(int)

        def predict_proba(self, X: Array) -> Array:
            return X

        def __sklearn_is_fitted__(self) -> bool:
            return True

    return Judged()


def _ranks(values: Array) -> Array:
    """From the smallest, 1; the mean for equal ones."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[place]


def _area(own: Array, confidence: Array) -> float:
    """That under the ROC curve: how often one that is ``own`` has the higher confidence of two; half for equal ones."""
    number = own.sum()
    return float((_ranks(confidence)[own].sum() - number * (number + 1) / 2) / (number * (len(own) - number)))


def _each_class(y: Array, P: Array) -> list[tuple[Array, Array]]:
    """Who is of it, and how sure the model is of that; of two classes the second, and none that all or nobody are of.

    Of several labels each is such a class.
    """
    asked = np.arange(1 if P.shape[1] == 2 and y.ndim == 1 else 0, P.shape[1])
    own = y[:, None] == asked if y.ndim == 1 else y > 0.5
    return [(each, P[:, place]) for place, each in zip(asked, own.T, strict=True) if each.any() and not each.all()]


#: The figures of each kind of target.
METRICS = {
    "classification": (
        "accuracy", "balanced_accuracy", "f1_macro", "f1_micro", "roc_auc_ovr", "average_precision", "log_loss",
        "calibration_error",
    ),
    "multilabel": ("accuracy", "f1_macro", "f1_micro", "roc_auc_ovr", "average_precision", "log_loss"),
    "regression": ("r2", "mean_absolute_error", "root_mean_squared_error"),
}  # fmt: skip


def _figure(name: str, y: Array, P: Array, target: str) -> Any:
    """One of these, or None."""
    if name == "r2":
        # In the precision of the targets, which r2_score widens: records of training have these bits.
        missed, spread = np.square(y - P).sum(0), np.square(y - y.mean(0)).sum(0)
        each = np.where(spread > 0, 1 - missed / np.where(spread > 0, spread, 1), missed == 0)
        return each.mean() if len(y) > 1 else None
    if name in ("roc_auc_ovr", "average_precision"):
        figure: Callable[[Array, Array], float] = _area
        if name == "average_precision":
            from sklearn.metrics import average_precision_score

            figure = average_precision_score
        found = [figure(*pair) for pair in _each_class(y, P)]
        return np.mean(found) if found else None
    if name == "calibration_error":
        return sum(b["rows"] * abs(b["accuracy"] - b["confidence"]) for b in reliability(y, P)) / len(y)
    best = P > 0.5 if target == "multilabel" else P.argmax(1)
    if target == "classification" and name in ("accuracy", "f1_micro"):  # the same where each row has one class
        return (best == y).mean()
    if name == "accuracy":
        return (best == (y > 0.5)).all(1).mean()
    from sklearn import metrics as sk  # which takes a second, and most runs choose by one of those above

    if target == "regression":
        return getattr(sk, name)(y, P)
    if target == "multilabel":
        if name == "log_loss":
            return sk.log_loss(y.ravel() > 0.5, P.ravel(), labels=[False, True])
        columns = [(y.ravel(), best.ravel())] if name == "f1_micro" else zip(y.T, best.T, strict=True)
        return np.mean([sk.f1_score(own > 0.5, given, zero_division=0) for own, given in columns])
    if name == "balanced_accuracy":
        return sk.recall_score(y, best, labels=np.unique(y), average="macro", zero_division=0)
    if name == "f1_macro":
        return sk.f1_score(y, best, average="macro", zero_division=0)
    if P.shape[1] == 1:
        return 0.0
    return sk.log_loss(y, P, labels=np.arange(P.shape[1])) if (y >= 0).all() else None  # else it would be infinite
