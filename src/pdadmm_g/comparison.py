r"""The estimator beside what one would use instead, on the same nodes: figures, and intervals of the differences.

Intervals are those of a paired bootstrap over the scored nodes. Each figure is written as a mean over nodes,
:math:`\hat\theta = \frac1n \sum_i v_i`, where :math:`v_i` is what node i adds to it: exactly for accuracy and log loss,
and by their influence functions for balanced accuracy and the area under the ROC curve. A draw of the bootstrap is then
a weighted mean of the differences :math:`v_i^{\text{method}} - v_i^{\text{ours}}`, for all methods at once.
"""

from __future__ import annotations

import copy
import itertools
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import Normalizer, QuantileTransformer, StandardScaler
from threadpoolctl import threadpool_limits

from .baselines import Baseline
from .errors import InputError
from .estimator import GAMLPClassifier
from .graph.checks import check_graph
from .graph.examples import one_split
from .graph.graph import MASKS, Graph, first_line
from .graph.propagation import DENSE, summed, to_csc
from .graph.readers import as_graph
from .graph.targets import hard_labels, has_columns, labelled, require_y
from .metrics import metrics
from .utils import check_folder, writing

Array = NDArray[Any]
#: What the table says of each method, the differences to ours aside.
FIGURES = ("accuracy", "balanced_accuracy", "roc_auc_ovr", "log_loss", "calibration_error")
#: The figures that are means over nodes, of which there are intervals.
PAIRED = FIGURES[:4]
#: What figures are called in a picture or the head of a table.
LABELS = {"accuracy": "accuracy", "roc_auc_ovr": "area under the ROC curve"}
#: The interval, and the draws that it comes from.
INTERVAL, DRAWS = (0.05, 0.95), 1000
#: Inverse penalties of logistic regression, and most training rows on which one of them is chosen.
PENALTIES, MOST = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0), 10_000
#: Principal directions of sparse columns: for means over neighbours, and for gradient boosting.
DIRECTIONS, FEW = 256, 100
#: Means of sparse columns stay sparse up to so many entries of the training rows; beyond, they are of directions.
EXACT = 5_000_000
#: Parts in which the known labels of training nodes take turns: those of a part see the labels of the others.
PARTS = 5


@dataclass(frozen=True)
class Split:
    """What a method may know, and the nodes that it is asked about."""

    #: With no labels but those of ``train_mask`` and ``val_mask``.
    data: Graph
    #: The class number of each node.
    y: Array
    training: Array
    validation: Array
    scored: Array
    classes: Array
    columns: Columns
    seed: int

    @property
    def rows(self) -> Array:
        """The nodes that anything is asked of: those that train, validate and are scored, in this order."""
        return np.concatenate([self.training, self.validation, self.scored])

    def spread(self, P: Array, own: Array) -> Array:
        """Probabilities of the classes numbered ``own`` as those of all classes."""
        found = np.zeros((len(P), len(self.classes)))
        found[:, own] = P
        return found / found.sum(1, keepdims=True)


class Columns:
    """The columns of a graph as scikit-learn's methods take them. What is computed once, all methods share."""

    def __init__(self, data: Graph, seed: int) -> None:
        self.data, self.seed = data, seed
        #: Seconds by what was computed.
        self.seconds: dict[str, float] = {}

    def timed(self, names: Sequence[str]) -> float:
        """Compute what of this is not there yet; the seconds that it took, now or earlier."""
        for name in names:
            if name not in self.seconds:
                start = time.perf_counter()
                getattr(self, name)
                self.seconds[name] = time.perf_counter() - start
        return sum(self.seconds[name] for name in names)

    @cached_property
    def own(self) -> Any:
        """Words and the like stay sparse, each row of unit length; other columns get quantiles of a normal curve."""
        if self.data.get("structural"):
            raise InputError("the graph has no columns")
        x = self.data.x
        if x.layout != torch.strided or int(x.count_nonzero()) < DENSE * x.numel():
            return Normalizer().fit_transform(to_csc(x).tocsr().astype(np.float32))
        X = x.numpy().astype(np.float32)
        several = [place for place in range(X.shape[1]) if len(np.unique(X[:1000, place])) > 2]
        if several:
            quantiles = QuantileTransformer(
                n_quantiles=min(1000, len(X)), output_distribution="normal", random_state=self.seed
            )
            X[:, several] = quantiles.fit_transform(X[:, several])
        return StandardScaler().fit_transform(X)

    @cached_property
    def directions(self) -> Array:
        """Principal directions in the place of sparse columns."""
        X = self.own
        if not sp.issparse(X):
            return X
        number = min(DIRECTIONS, *(side - 1 for side in X.shape))
        return TruncatedSVD(number, random_state=self.seed).fit_transform(X).astype(np.float32)

    @cached_property
    def steps(self) -> sp.csr_array:
        """The mean over neighbours, both ways along an edge, the node itself not among them."""
        if self.data.edge_index is None:
            raise InputError("there are no edges")
        edges, weights = self.data.edge_index, self.data.get("edge_weight")
        others = edges[0] != edges[1]
        W = summed(edges[:, others], self.data.num_nodes, weights if weights is None else weights[others])
        W = W.maximum(W.T).tocsr()
        self.degree = np.diff(W.indptr)
        total = np.maximum(np.asarray(W.sum(axis=1)).ravel(), 1e-12)
        return sp.csr_array(sp.diags_array(1 / total) @ W, dtype=np.float32)

    @cached_property
    def near(self) -> Array:
        """Of each node the logarithm of its degree, and means over one and two steps of neighbours."""
        one = self.steps @ self.directions
        return np.hstack([np.log1p(self.degree)[:, None], one, self.steps @ one]).astype(np.float32)


def own_columns(split: Split, dense: bool) -> Any:
    """The columns of the nodes alone."""
    columns = split.columns
    return columns.directions[split.rows, :FEW] if dense and sp.issparse(columns.own) else columns.own[split.rows]


def with_neighbours(split: Split, dense: bool) -> Any:
    """The same with degree and means over neighbours; without columns, with the known labels of neighbours."""
    columns = split.columns
    if split.data.get("structural"):
        return np.hstack([np.log1p(columns.degree)[split.rows, None], arriving_labels(split)])
    X, near = own_columns(split, dense), columns.near[split.rows]
    if not sp.issparse(columns.own):
        return np.hstack([X, near])
    if dense:
        kept = 1 + np.arange(FEW)
        return np.hstack([X, near[:, np.concatenate([[0], kept, columns.directions.shape[1] + kept])]])
    if len(split.training) * X.shape[1] <= EXACT:
        P = columns.steps
        one = P[split.rows] @ columns.own
        two = (P[split.rows] @ P) @ columns.own
        return sp.hstack([X, near[:, :1], Normalizer().fit_transform(one), Normalizer().fit_transform(two)], "csr")
    return sp.hstack([X, sp.csr_array(near)], "csr")


def arriving_labels(split: Split) -> Array:
    """Shares of the classes among known labels one to four steps away, a training node's own not among them."""

    def shares(known: Array, asked: Array) -> Array:
        H = np.zeros((split.data.num_nodes, len(split.classes)), dtype=np.float32)
        H[known, split.y[known]] = 1
        found = []
        for _ in range(4):
            H = P @ H
            total = H.sum(1, keepdims=True)
            found.append(np.divide(H, total, out=np.zeros_like(H), where=total > 0)[asked])
        return np.hstack(found)

    P, training = split.columns.steps, split.training
    part = np.random.default_rng(split.seed).permutation(len(training)) % PARTS
    found = np.zeros((len(split.rows), 4 * len(split.classes)), dtype=np.float32)
    for turn in range(PARTS):
        found[: len(training)][part == turn] = shares(training[part != turn], training[part == turn])
    found[len(training) :] = shares(training, split.rows[len(training) :])
    return found


# -------------------------------------------------------------------------------------------------------------- methods


def largest_class(split: Split) -> Array:
    """The shares of the classes among the training nodes."""
    shares = np.bincount(split.y[split.training], minlength=len(split.classes)) / len(split.training)
    return np.tile(shares, (len(split.scored), 1))


def logistic(split: Split, columns: Callable[[Split, bool], Any]) -> Array:
    """Logistic regression; its penalty is chosen on the validation nodes, or by cross-validation."""
    X, y, number = columns(split, False), split.y[split.rows], len(split.training)
    X = X.astype(np.float64) if sp.issparse(X) else StandardScaler().fit_transform(X.astype(np.float64))
    some = np.arange(number)[:: -(-number // MOST)]
    if len(split.validation):
        folds = [(some, number + np.arange(len(split.validation)))]
    else:
        inner = StratifiedKFold(3, shuffle=True, random_state=split.seed).split(some, y[some])
        folds = [(some[fit], some[held]) for fit, held in inner]

    def fitted(penalty: float, rows: Array, asked: Array) -> Array:
        model = LogisticRegression(C=penalty, max_iter=300).fit(X[rows], y[rows])
        return split.spread(model.predict_proba(X[asked]), model.classes_)

    def loss(penalty: float) -> float:
        missed = [-np.log(fitted(penalty, *fold)[range(len(fold[1])), y[fold[1]]].clip(1e-6)) for fold in folds]
        return float(np.concatenate(missed).mean())

    return fitted(
        min(PENALTIES, key=loss), np.arange(number), number + len(split.validation) + np.arange(len(split.scored))
    )


def boosting(split: Split, columns: Callable[[Split, bool], Any]) -> Array:
    """Gradient boosting, which ends where the validation nodes are predicted best, if there are any."""
    X, y, number, aside = columns(split, True), split.y[split.rows], len(split.training), len(split.validation)
    early: Any = False if aside else "auto"
    model = HistGradientBoostingClassifier(early_stopping=early, random_state=split.seed).fit(X[:number], y[:number])
    stage, own = model.n_iter_ - 1, y[number : number + aside]
    if aside:
        stages = (split.spread(P, model.classes_) for P in model.staged_predict_proba(X[number : number + aside]))
        stage = int(np.argmin([-np.log(P[range(aside), own].clip(1e-6)).mean() for P in stages]))
    P = next(itertools.islice(model.staged_predict_proba(X[number + aside :]), stage, None))
    return split.spread(P, model.classes_)


def baseline(split: Split, name: str) -> Array:
    """A method of :mod:`~pdadmm_g.baselines`, on the columns that logistic regression has where they are dense."""
    if split.data.edge_index is None:
        raise InputError("there are no edges")
    data, plain = copy.copy(split.data), bool(split.data.get("structural")) or sp.issparse(split.columns.own)
    data.x = split.data.x if plain else torch.from_numpy(split.columns.own)
    return asked(split, Baseline(name, row_normalize=plain, random_state=split.seed).fit(data), data)


def asked(split: Split, model: Any, data: Graph) -> Array:
    """What a fitted model of ours says of the scored nodes."""
    return split.spread(model.predict_proba(data, split.scored), np.searchsorted(split.classes, model.classes_))


@dataclass(frozen=True)
class Method:
    """What a method is called, what it does, and what of :class:`Columns` it needs before its clock starts."""

    title: str
    predict: Callable[[Split], Array]
    needs: tuple[str, ...] = ()


OURS = "ours"
METHODS = {
    "largest": Method("largest class", largest_class),
    "lr": Method("logistic regression", lambda split: logistic(split, own_columns), ("own",)),
    "hgb": Method("gradient boosting", lambda split: boosting(split, own_columns), ("own", "directions")),
    "lr-graph": Method(
        "logistic + neighbours", lambda split: logistic(split, with_neighbours),
        ("own", "directions", "steps", "near"),
    ),
    "hgb-graph": Method(
        "boosting + neighbours", lambda split: boosting(split, with_neighbours),
        ("own", "directions", "steps", "near"),
    ),
    "sgc": Method("SGC", lambda split: baseline(split, "sgc"), ("own",)),
    "sign": Method("SIGN", lambda split: baseline(split, "sign"), ("own",)),
    "gcn": Method("GCN", lambda split: baseline(split, "gcn"), ("own",)),
}  # fmt: skip


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
    figure: str | Path | None = None,
    say: Callable[[str], object] | None = None,
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
        budget: Seconds after which no other method begins.
        random_state: The seed of the folds and of all methods, ours where its own is not given.
        figure: A PNG file to draw the differences into; needs matplotlib.
        say: Called with a line of progress now and then, for example ``print``.

    Returns:
        A table by method with ``accuracy``, ``balanced_accuracy``, ``roc_auc_ovr``, ``log_loss`` and
        ``calibration_error`` (see :func:`pdadmm_g.metrics.metrics`), ``seconds`` of one training with its predictions,
        and, for all but the last of the figures, the difference to ours with a 90 % interval: ``accuracy_difference``,
        ``accuracy_low``, ``accuracy_high``. ``note`` says why a method has no figures. ``attrs["about"]`` tells what
        was scored, ``attrs["figure"]`` the figure that counts most: the area under the ROC curve of two classes, else
        accuracy.
    """
    say = say or (lambda line: None)
    every = [*METHODS, OURS]
    chosen = every if methods is None else list(methods)
    for unknown in (name for name in chosen if name not in every):
        raise InputError(f"methods must be some of {', '.join(every)}, got {unknown!r}")
    ours = GAMLPClassifier() if estimator is None else estimator
    data = check_graph(as_graph(X, y, edge_index, edge_weight=edge_weight, target="classification"))
    splits, about = splits_of(data, ours.split, folds, random_state)
    if figure is not None:
        check_folder(Path(figure))
    known = METHODS | {OURS: Method("pdadmm-g", lambda split: trained(split, ours))}
    scored = np.concatenate([split.scored for split in splits])
    start = time.perf_counter()
    rows: dict[str, dict[str, Any]] = {}
    found: dict[str, Array] = {}
    for name in sorted(chosen, key=lambda name: (name != OURS, every.index(name))):  # ours first: all refer to it
        row = rows[name] = {"title": known[name].title, "note": ""}
        if budget is not None and time.perf_counter() - start > budget:
            row["note"] = f"skipped: the budget of {budget:g} seconds was used up"
        else:
            say(f"{known[name].title} ...")
            try:
                # As many threads for all; on small problems many take a hundred times as long as one.
                with threadpool_limits(ours.threads):
                    found[name], row["seconds"] = run(known[name], splits)
                row |= metrics(splits[0].y[scored], found[name])
            except Exception as error:  # one method that cannot must not take the others with it
                row["note"] = f"failed: {first_line(error)}"
        say(f"{known[name].title}: " + (row["note"] or f"accuracy {row['accuracy']:.3f}, {row['seconds']:.1f} s"))
    columns = ["title", *FIGURES, "seconds"]
    table = pd.DataFrame.from_dict(rows, orient="index").reindex(index=[name for name in every if name in rows])
    if OURS in found:
        table = table.join(differences(splits[0].y[scored], found, random_state))
        columns += [f"{each}_{end}" for each in PAIRED for end in ("difference", "low", "high")]
    table = table.reindex(columns=[*columns, "note"]).rename_axis("method")
    table.attrs |= {"about": about, "figure": "roc_auc_ovr" if len(splits[0].classes) == 2 else "accuracy"}
    if figure is not None:
        draw(table, figure)
    return table


def splits_of(data: Graph, split: int | None, folds: int, seed: int) -> tuple[list[Split], str]:
    """By the masks where there are test nodes, else in folds of the labelled nodes; and a line that says which."""
    data, _ = one_split(data, split)
    require_y(data)
    if has_columns(data):
        raise InputError("compare is for classes: one label a node")
    labels, known = hard_labels(data).numpy(), labelled(data).numpy()
    present = np.unique(labels[known])
    y = np.where(known, np.searchsorted(present, labels), -1)
    classes = present if data.get("label_names") is None else data.label_names[present]
    train, val, test = (data[mask].numpy() & known if mask in data else np.zeros_like(known) for mask in MASKS)
    if test.any():
        train = train if "train_mask" in data else known & ~val & ~test
        parts, about = [(train, val, test)], f"{test.sum():,} test nodes"
    else:
        nodes, val = known.nonzero()[0], np.zeros_like(known)
        if not 2 <= folds <= np.bincount(y[nodes]).max():
            raise InputError(f"folds must be between 2 and the nodes of the largest class, got {folds}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes that are in few folds
            held = [own for _, own in StratifiedKFold(folds, shuffle=True, random_state=seed).split(nodes, y[nodes])]
        parts = [(known & ~own, val, own) for own in (np.isin(np.arange(len(y)), nodes[fold]) for fold in held)]
        about = f"{len(nodes):,} labelled nodes, each by a model of the other {folds - 1} of {folds} folds"
    columns, found = Columns(data, seed), []
    for train, val, test in parts:
        val = val & np.isin(y, y[train])  # a class that nothing is known of cannot be validated
        told = copy.copy(data)
        told.train_mask, told.test_mask = torch.from_numpy(train), None
        told.val_mask = torch.from_numpy(val) if val.any() else None
        hidden = torch.from_numpy(~(train | val))
        told.y = data.y.masked_fill(hidden, -1) if data.y.ndim == 1 else data.y.masked_fill(hidden[:, None], torch.nan)
        nodes, aside, own = (mask.nonzero()[0] for mask in (train, val, test))
        found.append(Split(told, y, nodes, aside, own, classes, columns, seed))
    return found, about


def trained(split: Split, estimator: GAMLPClassifier) -> Array:
    """Ours."""
    model = clone(estimator)
    if model.random_state is None:
        model.random_state = split.seed
    return asked(split, model.fit(split.data), split.data)


def run(method: Method, splits: Sequence[Split]) -> tuple[Array, float]:
    """The probabilities of all scored nodes, and the seconds that one training took with what goes before it."""
    needs = [name for name in method.needs if not (splits[0].data.get("structural") and name != "steps")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a linear model that has not converged is good enough
        seconds = splits[0].columns.timed(needs)
        start = time.perf_counter()
        found = [method.predict(split) for split in splits]
    return np.concatenate(found), seconds + (time.perf_counter() - start) / len(splits)


# ------------------------------------------------------------------------------------------------------------ intervals


def shares_of(figure: str, y: Array, P: Array) -> Array:
    """What each row adds to a figure, which is the mean of these."""
    right = (P.argmax(1) == y).astype(float)
    if figure == "accuracy":
        return right
    if figure == "log_loss":
        return -np.log(P[range(len(y)), y].clip(np.finfo(P.dtype).eps))
    number = np.bincount(y, minlength=P.shape[1])
    if figure == "balanced_accuracy":
        recall = np.bincount(y, right, minlength=len(number)) / number.clip(1)
        present = number > 0
        return recall[present].mean() + (right - recall[y]) * len(y) / (present.sum() * number[y])
    found = []
    for own, confidence, size in zip((y[:, None] == np.arange(len(number))).T, P.T, number, strict=True):
        if 0 < size < len(y):
            # The share of the other kind that each row is on the right side of: Hanley and McNeil's placements.
            placed = np.empty(len(y))
            ranks = rankdata(confidence)
            placed[own] = (ranks[own] - rankdata(confidence[own])) / (len(y) - size)
            placed[~own] = 1 - (ranks[~own] - rankdata(confidence[~own])) / size
            area = placed[own].mean()
            found.append(area + (placed - area) * len(y) / np.where(own, size, len(y) - size))
    return np.mean(found, axis=0) if found else np.full(len(y), np.nan)


def differences(y: Array, found: dict[str, Array], seed: int) -> pd.DataFrame:
    """By method, the difference of each figure to ours, with its interval."""
    values = np.stack([[shares_of(figure, y, P) for figure in PAIRED] for P in found.values()])
    values = (values - values[[*found].index(OURS)]).reshape(-1, len(y)).T
    random = np.random.default_rng(seed)
    draws = [np.bincount(random.integers(len(y), size=len(y)), minlength=len(y)) @ values for _ in range(DRAWS)]
    ends = np.quantile(np.array(draws) / len(y), INTERVAL, axis=0)
    sides = np.stack([values.mean(0), *ends]).reshape(3, len(found), len(PAIRED)).transpose(1, 2, 0)
    names = [f"{figure}_{end}" for figure in PAIRED for end in ("difference", "low", "high")]
    return pd.DataFrame(sides.reshape(len(found), -1), [*found], names)


def draw(table: pd.DataFrame, path: str | Path) -> None:
    """The differences to ours with their intervals, a line a method, as a PNG file."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("figures need matplotlib: pip install matplotlib") from None
    name = table.attrs["figure"]
    rows = table[table.get(f"{name}_low", table[name] * np.nan).notna() & (table.index != OURS)][::-1]
    if rows.empty:
        raise InputError("there is no difference to ours to draw: ours and another method must have ended")
    middle, places = rows[f"{name}_difference"], np.arange(len(rows))
    arms = np.stack([middle - rows[f"{name}_low"], rows[f"{name}_high"] - middle]).clip(min=0)
    figure = Figure(figsize=(8, 1.4 + 0.42 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    axes.axvline(0, color="#888888", linewidth=1)
    axes.errorbar(middle, places, xerr=arms, fmt="o", color="#1f5fa8", capsize=3)
    axes.set_yticks(places, [f"{title}  {value:.3f}" for title, value in zip(rows["title"], rows[name], strict=True)])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(f"{LABELS[name]} minus that of pdadmm-g ({table.loc[OURS, name]:.3f}), with 90% intervals")
    axes.set_title(f"Left of the line: behind pdadmm-g. {table.attrs['about']}", fontsize="medium", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    with writing(Path(path)):
        figure.savefig(path, dpi=150)
