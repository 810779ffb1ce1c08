r"""The estimator beside what one would use instead, on the same nodes: figures, and intervals of the differences.

Intervals are of a paired bootstrap over the scored nodes. Each figure is written as a mean over nodes,
:math:`\hat\theta = \frac1n \sum_i v_i`, where :math:`v_i` is what node i adds to it, by its influence function for the
area under the ROC curve. A draw is then a weighted mean of the differences :math:`v_i - v_i^{\text{ours}}`.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import normalize, scale
from threadpoolctl import threadpool_limits

from .baselines import Baseline
from .errors import InputError
from .estimator import GAMLPClassifier
from .graph.augmentation import is_mostly_zero
from .graph.checks import check_graph
from .graph.examples import one_split
from .graph.graph import MASKS, Graph, as_mask, first_line
from .graph.parts import summed
from .graph.propagation import to_csc
from .graph.readers import as_graph, labels_of
from .graph.targets import hard_labels, has_columns, labelled, require_y
from .metrics import TAIL, contributions, metrics
from .utils import writing

Array = NDArray[Any]
#: What the table says of each method, and the figures among these that are means over nodes, with intervals.
FIGURES = ("accuracy", "balanced_accuracy", "roc_auc_ovr", "log_loss", "calibration_error")
PAIRED = ("accuracy", "roc_auc_ovr", "log_loss")
ENDS = ("difference", "low", "high")
#: The draws that intervals come from.
DRAWS = 1000
#: Inverse penalties of logistic regression, and most training rows on which one of them is chosen.
PENALTIES, MOST = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0), 10_000
#: Principal directions that stand for sparse columns in gradient boosting, and where very many nodes train.
DIRECTIONS, MANY = 100, 2000


class Split(NamedTuple):
    """What a method may know, and the nodes that it is asked about."""

    #: With no labels but those of the nodes that train and validate.
    data: Graph
    #: The class number of each node.
    y: Array
    training: Array
    validation: Array
    scored: Array
    classes: Array
    seed: int

    def spread(self, P: Array, own: Array) -> Array:
        """Probabilities of the classes numbered ``own`` as those of all classes."""
        found = np.zeros((len(P), len(self.classes)))
        found[:, own] = P
        return found / found.sum(1, keepdims=True)

    def asked(self, model: Any, data: Graph) -> Array:
        """What a fitted model of ours says of the scored nodes."""
        return self.spread(model.predict_proba(data, self.scored), np.searchsorted(self.classes, model.classes_))


def normal_scores(X: Array) -> Array:
    """Each column with the quantiles of a normal curve, by rank."""
    return scale(ndtri((rankdata(X, axis=0) - 0.5) / len(X))).astype(np.float32)


class Columns:
    """The columns of a graph as scikit-learn's methods take them."""

    def __init__(self, data: Graph) -> None:
        self.data = data

    @cached_property
    def own(self) -> Any:
        """Sparse ones stay so, each row of unit length; others get the quantiles of a normal curve by their ranks."""
        if self.data.get("structural"):
            raise InputError("the graph has no columns")
        if is_mostly_zero(self.data):
            return normalize(to_csc(self.data.x).tocsr().astype(np.float32))
        return normal_scores(self.data.x.numpy())

    @cached_property
    def directions(self) -> Array:
        """Principal directions of sparse columns; dense ones as they are."""
        if not sp.issparse(self.own):
            return self.own
        return TruncatedSVD(min(DIRECTIONS, *self.own.shape), random_state=0).fit_transform(self.own)

    def rows(self, split: Split, neighbours: bool, trees: bool) -> Any:
        """Columns of the nodes that train, validate and are scored, in this order, perhaps with those of neighbours.

        These are the degree and means over one and two steps both ways along an edge; without columns, the known labels
        within four steps.
        """
        data, rows = self.data, np.concatenate(split[2:5])
        if not neighbours:
            return (self.directions if trees else self.own)[rows]
        if data.edge_index is None:
            raise InputError("there are no edges")
        P = summed(data.edge_index, data.num_nodes, data.get("edge_weight"))
        P.setdiag(0)
        P = normalize(P.maximum(P.T).tocsr().astype(np.float32), "l1")
        degree = normal_scores(np.diff(P.indptr)[:, None])
        if data.get("structural"):
            return np.hstack([degree[rows], known_labels(split, P, rows)])
        own = self.directions if trees else self.own
        if not sp.issparse(own):
            X = np.hstack([own, degree])
            return scale(np.hstack([X, one := P @ X, P @ one])[rows])
        one = P @ (own if len(split.training) <= MANY else self.directions)
        means = (normalize(sp.csr_array(part)) for part in (one[rows], P[rows] @ one))
        return sp.hstack([own[rows], degree[rows], *means], "csr")


def known_labels(split: Split, P: sp.csr_array, rows: Array) -> Array:
    """Shares of the classes among training labels one to four steps away, a training node's own not among them."""
    number = len(split.training)
    folds = KFold(5, shuffle=True, random_state=split.seed).split(split.training)
    found = np.zeros((len(rows), 4, len(split.classes)), dtype=np.float32)
    for known, own in (*folds, (np.arange(number), np.arange(number, len(rows)))):
        H = np.zeros((len(split.y), len(split.classes)), dtype=np.float32)
        H[rows[known], split.y[rows[known]]] = 1
        for step in range(4):
            H = P @ H
            found[own, step] = normalize(H[rows[own]], "l1")
    return found.reshape(len(rows), -1)


# -------------------------------------------------------------------------------------------------------------- methods


def largest_class(split: Split, columns: Columns) -> Array:
    """The shares of the classes among the training nodes."""
    shares = np.bincount(split.y[split.training], minlength=len(split.classes)) / len(split.training)
    return np.tile(shares, (len(split.scored), 1))


def logistic(split: Split, columns: Columns, *, neighbours: bool) -> Array:
    """Logistic regression; its penalty is chosen on the validation nodes, or by cross-validation."""
    X, y = columns.rows(split, neighbours, trees=False).astype(np.float64), split.y[np.concatenate(split[2:5])]
    number, aside = len(split.training), len(split.validation)
    if number < min(X.shape[1], MANY):
        # The weights are a combination of the training rows: in their coordinates the same problem is much smaller.
        X = X @ np.linalg.qr(X[:number].T.toarray() if sp.issparse(X) else X[:number].T)[0]
    some = np.arange(number)[:: -(-number // MOST)]
    folds = [(some, number + np.arange(aside))]
    if not aside:
        inner = StratifiedKFold(3, shuffle=True, random_state=split.seed).split(some, y[some])
        folds = [(some[fit], some[held]) for fit, held in inner]

    def fitted(penalty: float, rows: Any, asked: Any) -> Array:
        model = LogisticRegression(C=penalty).fit(X[rows], y[rows])
        return split.spread(model.predict_proba(X[asked]), model.classes_)

    best, chosen = np.inf, PENALTIES[0]
    for penalty in PENALTIES:
        loss = sum(log_loss(fitted(penalty, *fold), y[fold[1]]) for fold in folds)
        if loss >= best:
            break
        best, chosen = loss, penalty
    return fitted(chosen, slice(number), slice(number + aside, None))


def log_loss(P: Array, y: Array) -> float:
    """With a bound on what a class costs that the model does not know."""
    return float(-np.log(P[range(len(y)), y].clip(1e-6)).mean())


def boosting(split: Split, columns: Columns, *, neighbours: bool) -> Array:
    """Gradient boosting, which ends where the validation nodes are predicted best, if there are any."""
    X, number, aside = columns.rows(split, neighbours, trees=True), len(split.training), len(split.validation)
    early: Any = False if aside else "auto"
    model = HistGradientBoostingClassifier(early_stopping=early, random_state=split.seed)
    model.fit(X[:number], split.y[split.training])
    if not aside:
        return split.spread(model.predict_proba(X[number:]), model.classes_)
    stages = (split.spread(P, model.classes_) for P in model.staged_predict_proba(X[number:]))
    return min(stages, key=lambda P: log_loss(P[:aside], split.y[split.validation]))[aside:]


def baseline(split: Split, columns: Columns, *, name: str) -> Array:
    """A method of :mod:`~pdadmm_g.baselines`, on the columns that logistic regression has where they are dense."""
    data = copy.copy(split.data)
    is_sparse = not data.get("structural") and is_mostly_zero(data)
    if not data.get("structural") and not is_sparse:
        data.x = torch.from_numpy(columns.own)
    return split.asked(Baseline(name, row_normalize=is_sparse, random_state=split.seed).fit(data), data)


def ours(split: Split, columns: Columns, *, estimator: GAMLPClassifier) -> Array:
    """The estimator with its settings."""
    seed = split.seed if estimator.random_state is None else estimator.random_state
    return split.asked(clone(estimator).set_params(random_state=seed).fit(split.data), split.data)


#: What methods are called and what they do.
METHODS: dict[str, tuple[str, Callable[[Split, Columns], Array]]] = {
    "largest": ("largest class", largest_class),
    "lr": ("logistic regression", partial(logistic, neighbours=False)),
    "hgb": ("gradient boosting", partial(boosting, neighbours=False)),
    "lr-graph": ("logistic + neighbours", partial(logistic, neighbours=True)),
    "hgb-graph": ("boosting + neighbours", partial(boosting, neighbours=True)),
    **{name: (name.upper(), partial(baseline, name=name)) for name in ("sgc", "sign", "gcn")},
    "ours": ("pdadmm-g", partial(ours, estimator=GAMLPClassifier())),
}

#: Those that take their time, in the order in which they are run after all others: ours is what a budget is for.
SLOW = ("ours", "sign", "gcn")


def compare(
    X: Any,
    y: Any = None,
    edge_index: Any = None,
    *,
    edge_weight: Any = None,
    estimator: GAMLPClassifier | None = None,
    methods: Sequence[str] | None = None,
    folds: int = 3,
    budget: float | None = None,
    random_state: int = 0,
    say: Callable[[str], object] = lambda line: None,
) -> pd.DataFrame:
    """The estimator beside simpler and better known methods on the same nodes, as a table with a row a method.

    Where the graph says which nodes are for testing, its training nodes train and its validation nodes choose, for each
    method that has something to choose. Without test nodes all labelled nodes are scored, each by a model that was
    trained on the other folds.

    Args:
        X: A graph, or what :func:`~pdadmm_g.as_graph` makes one of, with ``y``, ``edge_index`` and ``edge_weight``.
        y: Labels, or a table of edges.
        edge_index: The edges.
        edge_weight: What each of them weighs.
        estimator: Ours, with its settings [default: ``GAMLPClassifier()``].
        methods: Some of ``largest``, ``lr``, ``hgb``, ``lr-graph``, ``hgb-graph``, ``sgc``, ``sign``, ``gcn``,
            ``ours`` [default: all].
        folds: Parts of the labelled nodes where no nodes are for testing.
        budget: Seconds after which no method but ours begins.
        random_state: The seed of the folds and of all methods, ours where its own is not given.
        say: Called with a line of progress now and then, for example ``print``.

    Returns:
        A table by method with ``accuracy``, ``balanced_accuracy``, ``roc_auc_ovr``, ``log_loss`` and
        ``calibration_error`` (see :func:`pdadmm_g.metrics.metrics`), ``seconds`` of one training with its predictions,
        and of accuracy, area and log loss the difference to ours with a 90% interval: ``accuracy_difference``,
        ``accuracy_low``, ``accuracy_high``. ``note`` says why a method has no figures. ``attrs["about"]`` tells what
        was scored, ``attrs["figure"]`` the figure that counts most: the area under the ROC curve of two classes, else
        accuracy. ``pdadmm_g.comparison.draw(table, "compare.png")`` draws the differences.
    """
    methods = [*METHODS] if methods is None else list(methods)
    for unknown in {*methods} - {*METHODS}:
        raise InputError(f"methods must be some of {', '.join(METHODS)}, got {unknown!r}")
    estimator = GAMLPClassifier() if estimator is None else estimator
    if not isinstance(estimator, GAMLPClassifier) or (isinstance(X, Graph) and has_columns(X)):
        raise InputError("compare is for classes, one label a node")
    data = check_graph(as_graph(X, y, edge_index, edge_weight=edge_weight, target="classification"))
    splits, about = splits_of(data, estimator.split, folds, random_state)
    known = METHODS | {"ours": ("pdadmm-g", partial(ours, estimator=estimator))}
    truth = splits[0].y[np.concatenate([split.scored for split in splits])]
    start = time.perf_counter()
    rows: dict[str, dict[str, Any]] = {}
    found: dict[str, Array] = {}
    for name in sorted(methods, key=lambda name: SLOW.index(name) if name in SLOW else -1):
        title, predict = known[name]
        row = rows[name] = {"title": title, "note": ""}
        say(f"{title} ...")
        began = time.perf_counter()
        if budget is not None and began - start > budget and name != "ours":  # with which all are compared
            row["note"] = f"skipped: the budget of {budget:g} seconds was used up"
        else:
            try:
                # As many threads for all; on small problems more of them may take a hundred times as long.
                with threadpool_limits(estimator.threads), warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of linear models that have not quite converged, rare classes
                    columns = Columns(data)
                    found[name] = np.concatenate([predict(split, columns) for split in splits])
                row["seconds"] = (time.perf_counter() - began) / len(splits)
                row |= metrics(truth, found[name])
            except Exception as error:  # a method that fails must not take the others with it
                row["note"] = f"failed: {first_line(error)}"
        say(f"{title}: " + (row["note"] or f"accuracy {row['accuracy']:.3f}, {row['seconds']:.1f} s"))
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["title", *FIGURES, "seconds", "note"])
    table = table.reindex([name for name in METHODS if name in rows]).rename_axis("method")
    table = table.astype(dict.fromkeys(FIGURES, float))  # None where a figure is not defined
    if "ours" in found:
        table = table.join(differences(truth, found, random_state))
    table.attrs |= {"about": about, "figure": "roc_auc_ovr" if len(splits[0].classes) == 2 else "accuracy"}
    return table


def splits_of(data: Graph, split: int | None, folds: int, seed: int) -> tuple[list[Split], str]:
    """By the masks where there are test nodes, else in folds of the labelled nodes; and a line that says which."""
    data, _ = one_split(data, split)
    require_y(data)
    data.y, known, names = hard_labels(data), labelled(data).numpy(), labels_of(data)
    classes = np.unique(names[known])
    y = np.where(known, np.searchsorted(classes, names), -1)
    train, val, test = (data[mask].numpy() & known if mask in data else np.zeros_like(known) for mask in MASKS)
    if test.any():
        train = train if "train_mask" in data else known & ~val & ~test
        parts = [[mask.nonzero()[0] for mask in (train, val & np.isin(y, y[train]), test)]]
        about = f"{test.sum():,} test nodes"
    else:
        nodes = known.nonzero()[0]
        if not 2 <= folds <= np.bincount(y[nodes], minlength=1).max():
            raise InputError(f"folds must be at least 2 and at most the nodes of the largest class, got {folds}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes with fewer nodes than folds
            halves = StratifiedKFold(folds, shuffle=True, random_state=seed).split(nodes, y[nodes])
            parts = [[nodes[fit], nodes[:0], nodes[held]] for fit, held in halves]
        about = f"{len(nodes):,} labelled nodes in {folds} folds"
    found = []
    for training, validation, scored in parts:
        told = copy.copy(data)
        told.train_mask, told.val_mask = (as_mask(part, len(y), "mask") for part in (training, validation))
        told.y, told.test_mask = data.y.where(told.train_mask | told.val_mask, -1), None
        if not len(validation):
            del told.val_mask  # each method sets some aside as it is used to
        found.append(Split(told, y, training, validation, scored, classes, seed))
    return found, about


# ------------------------------------------------------------------------------------------------------------ intervals


def differences(y: Array, found: dict[str, Array], seed: int) -> pd.DataFrame:
    """By method, the difference of each figure to ours, with its interval."""
    each = [
        contributions(figure, y, P) - contributions(figure, y, found["ours"])
        for P in found.values()
        for figure in PAIRED
    ]
    values, random, number = np.stack(each, axis=1), np.random.default_rng(seed), len(y)
    draws = [np.bincount(random.integers(number, size=number), minlength=number) @ values for _ in range(DRAWS)]
    ends = np.vstack([values.mean(0), np.quantile(draws, (TAIL, 1 - TAIL), axis=0) / number])
    names = [f"{figure}_{end}" for figure in PAIRED for end in ENDS]
    return pd.DataFrame(ends.T.reshape(len(found), -1), [*found], names)


def draw(table: pd.DataFrame, path: str | Path) -> None:
    """The differences to ours with their intervals, a line a method but the largest class, as a PNG file."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("figures need matplotlib: pip install matplotlib") from None
    name = table.attrs["figure"]
    names = [f"{name}_{end}" for end in ENDS]
    if names[0] not in table:
        raise InputError("figure: there is nothing to draw, since ours has no figures")
    rows = table.drop(["largest", "ours"], errors="ignore").dropna(subset=names)[::-1]
    middle, low, high = (rows[each] for each in names)
    canvas = Figure(figsize=(8, 1.4 + 0.42 * len(rows)), layout="constrained")
    axes = canvas.add_subplot()
    axes.axvline(0, color="#888888", linewidth=1)
    axes.errorbar(middle, range(len(rows)), xerr=[middle - low, high - middle], fmt="o", color="#1f5fa8", capsize=3)
    axes.set_yticks(
        range(len(rows)), [f"{title}  {own:.3f}" for title, own in zip(rows["title"], rows[name], strict=True)]
    )
    what = "accuracy" if name == "accuracy" else "area under the ROC curve"
    axes.set_xlabel(f"{what} minus that of pdadmm-g ({table.loc['ours', name]:.3f}), with 90% intervals")
    axes.set_title(f"{table.attrs['about']}; left of the line: behind pdadmm-g", fontsize="medium", loc="left")
    with writing(Path(path)):
        canvas.savefig(path, dpi=150, format="png")
