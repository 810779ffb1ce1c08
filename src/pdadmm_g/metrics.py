r"""How good predictions are: the figures that people judge a classifier by, or a model of several labels or numbers.

They are as scikit-learn defines them, and computed here, since importing it takes longer than many a run.

Labels are class numbers, the columns of the probabilities; those that the model does not know are -1, and always wrong.
Of several labels a row, a matrix of 0 and 1, each column has its own probability; numbers are predicted themselves.
A figure that is not defined on the rows at hand (a ranking of one class, say) is None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Bins of equal width in which confidence is compared with accuracy.
BINS = 15

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
    y, P = np.asarray(y), np.asarray(predicted, dtype=np.float64)
    sound = len(y) and np.isfinite(P).all()
    return {name: figure(y, P) if sound else None for name, figure in METRICS[target].items()}


def by_output(y: ArrayLike, predicted: ArrayLike, target: str) -> list[dict[str, float | None]]:
    """Figures of each of several labels, or numbers, by itself, a row for each column.

    Of a label ``share``, how many rows have it, ``precision``, ``recall``, ``f1`` and ``average_precision``; of a
    number the figures of :func:`metrics`.
    """
    y, P = np.asarray(y), np.asarray(predicted, dtype=np.float64)
    if target == "regression":
        return [metrics(y[:, [place]], P[:, [place]], target) for place in range(y.shape[1])]
    found = []
    for own, given in zip((y > 0.5).T, P.T, strict=True):
        hits, named, there = int((own & (given > 0.5)).sum()), int((given > 0.5).sum()), int(own.sum())
        found.append(
            {
                "share": there / len(own),
                "precision": hits / named if named else None,
                "recall": hits / there if there else None,
                "f1": 2 * hits / (named + there) if named + there else None,
                "average_precision": METRICS[target]["average_precision"](own[:, None], given[:, None]),
            }
        )
    return found


def reliability(y: ArrayLike, probabilities: ArrayLike) -> list[dict[str, float]]:
    """The bins of the calibration error that have rows: their mean confidence, accuracy and number of rows."""
    y, P = np.asarray(y), np.asarray(probabilities, dtype=np.float64)
    if not len(y):
        return []
    confidence, right = P.max(1), P.argmax(1) == y
    # Confidence 1 belongs to the last bin; a bin has its upper edge, as is usual.
    place = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    return [
        {"confidence": float(confidence[own].mean()), "accuracy": float(right[own].mean()), "rows": int(own.sum())}
        for bin in range(BINS)
        if (own := place == bin).any()
    ]


def score(scoring: str | Scorer, y: ArrayLike, predicted: ArrayLike, target: str = "classification") -> float | None:
    """What ``scoring`` makes of predictions, the higher the better: a name that the setting takes, or a scorer.

    A scorer gets an estimator with ``predict`` and, but for numbers, ``predict_proba``, and as labels the class
    numbers, or the matrix of targets. None where it is not defined.
    """
    y, P = np.asarray(y), np.asarray(predicted, dtype=np.float64)
    if callable(scoring):
        value = float(scoring(_judged(P.shape[1], target), P, y))
        return value if np.isfinite(value) else None
    name = scoring.removeprefix("neg_")
    found = METRICS[target][name](y, P) if len(y) and np.isfinite(P).all() else None
    return -found if found is not None and name != scoring else found


def scoring_name(scoring: str | Scorer) -> str:
    """What a scoring is called in a sentence."""
    return scoring if isinstance(scoring, str) else getattr(scoring, "__name__", "score")


def shown(score: float) -> str:
    """A score in a sentence; minus infinity stands for one that is not defined on the rows at hand."""
    return f"{score:.3f}" if score > -np.inf else "undefined"


def _judged(outputs: int, target: str) -> Any:
    """An estimator for scorers, whose input is the predictions themselves."""
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

    if target == "regression":

        class JudgedNumbers(RegressorMixin, BaseEstimator):
            def predict(self, X: Array) -> Array:
                return X

            def __sklearn_is_fitted__(self) -> bool:
                return True

        return JudgedNumbers()

    class Judged(ClassifierMixin, BaseEstimator):
        classes_ = np.arange(outputs)

        def predict(self, X: Array) -> Array:
            return X.argmax(1) if target == "classification" else (X > 0.5).astype(int)

        def predict_proba(self, X: Array) -> Array:
            return X

        def __sklearn_is_fitted__(self) -> bool:
            return True

    return Judged()


def _accuracy(y: Array, P: Array) -> float:
    return float((P.argmax(1) == y).mean())


def _balanced_accuracy(y: Array, P: Array) -> float:
    right = P.argmax(1) == y
    return float(np.mean([right[y == each].mean() for each in np.unique(y)]))


def _f1_macro(y: Array, P: Array) -> float:
    found = P.argmax(1)
    own = [(y == each, found == each) for each in np.union1d(y, found)]
    return float(np.mean([2 * (true & taken).sum() / (true.sum() + taken.sum()) for true, taken in own]))


def _roc_auc(y: Array, P: Array) -> float | None:
    return _one_against_others(_ranked_right, y, P, range(P.shape[1]))


def _ranked_right(own: Array, confidence: Array) -> float:
    """The share of pairs, one row of the class and one that is not, in which the former has more; ties are halves."""
    _, place, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    number = own.sum()
    return float((ranks[own].sum() - number * (number + 1) / 2) / (number * (len(own) - number)))


def _average_precision(y: Array, P: Array) -> float | None:
    return _one_against_others(_mean_precision, y, P, [1] if P.shape[1] == 2 else range(P.shape[1]))


def _mean_precision(own: Array, confidence: Array) -> float:
    """The precision of all rows with at least some confidence, averaged over the rows of the class among them."""
    order = np.argsort(-confidence, kind="stable")
    last = np.append(np.flatnonzero(np.diff(confidence[order])), len(order) - 1)  # of each confidence
    hits = np.cumsum(own[order])[last]
    return float((np.diff(hits, prepend=0) * hits / (last + 1)).sum() / own.sum())


def _one_against_others(figure: Callable[[Array, Array], float], y: Array, P: Array, classes: Any) -> float | None:
    """The mean over those classes that some rows are of and others are not."""
    own = [y == each for each in classes]
    found = [figure(is_own, P[:, each]) for each, is_own in zip(classes, own, strict=True) if 0 < is_own.sum() < len(y)]
    return float(np.mean(found)) if found else None


def _log_loss(y: Array, P: Array) -> float | None:
    if (y < 0).any():  # it would be infinite
        return None
    if P.shape[1] == 1:
        return 0.0
    smallest = np.finfo(P.dtype).eps
    own = (P / P.sum(1, keepdims=True))[np.arange(len(y)), y]
    return float(-np.log(np.clip(own, smallest, 1 - smallest)).mean())


def _calibration_error(y: Array, P: Array) -> float:
    return float(sum(b["rows"] * abs(b["accuracy"] - b["confidence"]) for b in reliability(y, P)) / len(y))


# ----------------------------------------------------------------------------------------------- several labels a row


def _subset_accuracy(y: Array, P: Array) -> float:
    return float(((P > 0.5) == (y > 0.5)).all(1).mean())


def _f1_micro_of_sets(y: Array, P: Array) -> float:
    both, either = (int(f((P > 0.5).astype(int), (y > 0.5).astype(int)).sum()) for f in (np.minimum, np.add))
    return 2 * both / either if either else 0.0


def _f1_macro_of_sets(y: Array, P: Array) -> float:
    both, either = (f((P > 0.5).astype(int), (y > 0.5).astype(int)).sum(0) for f in (np.minimum, np.add))
    return float((2 * both / np.maximum(either, 1)).mean())


def _by_label(figure: Callable[[Array, Array], float]) -> Callable[[Array, Array], float | None]:
    """The mean over those labels that some rows have and others have not."""

    def mean(y: Array, P: Array) -> float | None:
        found = [figure(own, given) for own, given in zip((y > 0.5).T, P.T, strict=True) if 0 < own.sum() < len(own)]
        return float(np.mean(found)) if found else None

    return mean


def _log_loss_of_sets(y: Array, P: Array) -> float:
    tiny = np.finfo(np.float64).eps
    P = P.clip(tiny, 1 - tiny)
    return float(-(y * np.log(P) + (1 - y) * np.log1p(-P)).mean())


# ------------------------------------------------------------------------------------------------------------ numbers


def _r2(y: Array, P: Array) -> float | None:
    """The mean over the columns; of one whose numbers are all the same 1 where they are met, else 0."""
    if len(y) < 2:
        return None
    missed, spread = np.square(y - P).sum(0), np.square(y - y.mean(0)).sum(0)
    found = 1 - missed / np.where(spread > 0, spread, 1)
    return float(np.where(spread > 0, found, missed == 0).mean())


def _mean_absolute_error(y: Array, P: Array) -> float:
    return float(np.abs(P - y).mean())


def _root_mean_squared_error(y: Array, P: Array) -> float:
    return float(np.sqrt(np.square(P - y).mean(0)).mean())


#: For each kind of target, each figure from targets and predictions.
METRICS: dict[str, dict[str, Callable[[Array, Array], float | None]]] = {
    "classification": {
        "accuracy": _accuracy,
        "balanced_accuracy": _balanced_accuracy,
        "f1_macro": _f1_macro,
        "f1_micro": _accuracy,  # where each row has one class
        "roc_auc_ovr": _roc_auc,
        "average_precision": _average_precision,
        "log_loss": _log_loss,
        "calibration_error": _calibration_error,
    },
    "multilabel": {
        "accuracy": _subset_accuracy,
        "f1_macro": _f1_macro_of_sets,
        "f1_micro": _f1_micro_of_sets,
        "roc_auc_ovr": _by_label(_ranked_right),
        "average_precision": _by_label(_mean_precision),
        "log_loss": _log_loss_of_sets,
    },
    "regression": {
        "r2": _r2,
        "mean_absolute_error": _mean_absolute_error,
        "root_mean_squared_error": _root_mean_squared_error,
    },
}
