r"""From data to a problem: rows that train and validate, augmented as was asked for or as suits the data.

Numbers are learned in units in which one network can learn them all, each column with mean 0 and deviation 1,

.. math:: t_c = (y_c - \mu_c) / \sigma_c

with those of the training rows, by weight. In the end the last layer takes them in,
:math:`W \leftarrow \mathrm{diag}(\sigma) W`, :math:`b \leftarrow \sigma b + \mu`, so that whoever uses the network,
wherever, has numbers in the units of the data.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config import Config, ModelConfig, TargetKind
from ..engine.team import Line, Team
from ..errors import InputError
from ..graph.augmentation import Copies, GraphAugment
from ..graph.candidates import augmentation
from ..graph.checks import check_training, require_edges
from ..graph.examples import Examples, Split, folds_of, is_crossed, with_masks
from ..graph.graph import MASKS, Graph, as_mask, node_keys
from ..graph.parts import part_of
from ..graph.propagation import KnownLabels
from ..graph.targets import (
    Weighed,
    class_name,
    hard_labels,
    has_columns,
    require_labels,
    require_training_nodes,
    require_y,
    row_weights,
    strata,
    target_of,
    weighed,
)
from ..model import GAMLP
from ..utils import task
from .checkpoint import CHOSEN
from .choose import Evidence, Ready, Rows, choose, choose_mesh

if TYPE_CHECKING:
    from .finish import TrainedModel

#: Taken where nothing tells what is better.
DEFAULT_WEIGHT_DECAY = 0.1
#: Less than this share of its mean cannot be told from rounding in single precision.
LEAST_DEVIATION = 1e-5


class Units(NamedTuple):
    """What the columns of targets are measured in, in double precision."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, y: Tensor, weights: Tensor | None = None) -> Units:
        """Those of the training rows."""
        w = torch.ones(len(y), 1, dtype=torch.float64) if weights is None else weights.double()[:, None]
        mean = (w * y).sum(0) / w.sum()
        deviation = ((w * (y - mean).square()).sum(0) / w.sum()).sqrt()
        small = (deviation > 0) & (deviation < LEAST_DEVIATION * mean.abs())
        for column in small.nonzero().view(-1).tolist()[:1]:
            how = f"differ by {deviation[column]:.2g} around {mean[column]:.6g}, too little for single precision"
            raise InputError(f"the numbers of column {column} {how}: subtract {mean[column]:.6g} from them")
        return cls(mean, deviation.where(deviation > 0, 1.0))

    def standardized(self, y: Tensor) -> Tensor:
        """Numbers in these units."""
        return (y - self.mean) / self.deviation


@torch.no_grad()
def rescaled(model: GAMLP, scale: Tensor, shift: Tensor) -> GAMLP:
    """A copy of the network with ``scale * outputs + shift`` for outputs."""
    model = copy.deepcopy(model)
    W, b = model.linears[-1].parameters()
    scale, shift = scale.to(W.device), shift.to(W.device)
    W.copy_(scale[:, None] * W.double())
    b.copy_(scale * b.double() + shift)
    return model


@dataclass(frozen=True)
class Problem:
    """What is to be trained: rows with labels, on the device of the configuration that goes with them.

    Where these are numbers, they are standardized.
    """

    training: Examples
    validation: Examples | None
    #: The labels, in the order of the network's outputs; or what the columns of the targets are called.
    classes: NDArray[Any]
    config: ModelConfig
    #: The fitted augmentation of a graph; None for rows of a matrix.
    augmentation: GraphAugment | None = None
    #: Rows to score the network on, where they were asked for.
    test: Examples | None = None
    #: Where random copies come from, for learning from unlabelled nodes.
    copies: Copies | None = None
    #: What was chosen by the data, a sentence each.
    reasons: tuple[str, ...] = ()
    #: Those of numbers that are learned; None for classes and labels.
    units: Units | None = None
    #: Which nodes of a graph train and validate.
    nodes: Split | None = None
    #: Of the settings that are trained with, whose sentences are among the reasons; and the best of what was tried on
    #: the way, see :class:`.Choice`.
    evidence: Evidence = dataclasses.field(default_factory=Evidence)
    ready: Ready | None = None
    #: The keys of all nodes that are asked out of fold, in the order in which they are, see :func:`.node_keys`.
    crossed: NDArray[np.int64] | None = None
    #: The processes that have these rows together, each those of its part of a graph.
    line: Line = dataclasses.field(default_factory=Line)

    @torch.no_grad()
    def logits(self, model: GAMLP) -> tuple[Tensor, Tensor]:
        """What a network says of all rows that validate, on all processes, and what it should say."""
        assert self.validation is not None
        X, y = self.validation.X, self.validation.targets.labels
        counts = self.line.counts(len(y))
        return self.line.concat(model.to(X.device)(X), counts), self.line.concat(y, counts)

    def decided(self, team: Team | None = None) -> Problem:
        """The same with the weight decay, workers and shards filled in where they were left open."""
        config, reasons = self.config, self.reasons
        if config.weight_decay is None:
            config = config.but(weight_decay=DEFAULT_WEIGHT_DECAY)
            reasons += (f"weight decay {DEFAULT_WEIGHT_DECAY}, the default without validation nodes",)
        shape = (sum(self.line.counts(len(self.training.y))), self.training.X.shape[1])
        config, mesh = choose_mesh(config, shape, len(self.classes), team)
        return dataclasses.replace(self, config=config, reasons=reasons + mesh)


def prepare_graph(
    data: Graph,
    config: ModelConfig,
    *,
    seed: int,
    test: bool = False,
    fitted: GraphAugment | None = None,
    known: Split | None = None,
    decided: bool = False,
    team: Team | None = None,
) -> Problem:
    """The problem of a graph that went through :func:`~pdadmm_g.graph.checks.check_graph`.

    What ``config`` leaves to the data is chosen by runs with this ``seed``. With ``test``, its test nodes are augmented
    too. An augmentation that is ``fitted`` already, as ``config`` says, is taken as it is.
    Who is ``known`` to have trained or validated does so again, unless masks say otherwise. Where all is ``decided``,
    nothing is tried. Of a graph in parts all processes of the ``team`` that have one call this together; the rows are
    those of the own nodes.
    """
    config = config.resolved(target_of(data))
    reasons: tuple[str, ...] = ()
    if columns := data.get("columns"):
        from ..graph.columns import described, standardized

        reasons = (described(columns),)
        if standardized(columns):
            config = config.but(row_normalize=False)
    data, (_, y, weights, classes), said = split_rows(data, config, seed=seed, known=known, crosses=True)
    config = config.resolved(classes=0 if has_columns(data) else len(classes))
    check_training(data)
    if config.augment != "none" or config.label_hops:
        require_edges(data)
    data, part = _features_on(data, config.device), part_of(data)
    parts = {mask: data[mask].nonzero().view(-1) for mask in MASKS[: 3 if test else 2] if mask in data}
    parts = {mask: own for mask, own in parts.items() if len(own)}
    units = Units.of(y, weights) if config.target == "regression" else None
    if has_columns(data):
        t, y = (own if units is None else units.standardized(own) for own in (data.y, y))
    else:
        names = data.get("label_names")
        codes = torch.as_tensor(classes if names is None else np.searchsorted(names, classes))
        t = torch.searchsorted(codes, hard_labels(data))
    own = _examples(torch.empty(0), y, weights, config)
    rows = _rows(data, parts, own, t, classes, config, seed, known)
    crossed = node_keys(data)[rows.nodes[torch.cat([asked for _, asked in rows.folds])]] if rows.crossed else None
    rows = rows._replace(folds=()) if decided else rows
    choice = choose(data, rows, config, seed=seed, team=Team() if team is None or part.line.size == 1 else team.heads())
    config, augment, source = choice.config, fitted, None
    nodes = torch.cat(list(parts.values()))
    with task("features"):
        if augment is None:
            augment, source = augmentation(config, choice.basis, rows.known), choice.source
            X = augment.fit_transform(data, nodes, source=source)
        else:
            X = augment.features(data, nodes)
    here, examples = [part.has(each) for each in parts.values()], dict[str, Examples]()
    X_of = X.to(config.device).split([int(mine.sum()) for mine in here])
    for mask, mine, X in zip(parts, here, X_of, strict=True):
        y, weights = (own.y, own.weights) if mask == "train_mask" else (t[parts[mask]], None)
        examples[mask] = _examples(X, y[mine], None if weights is None else weights[mine], config)
    copies = None
    if config.unlabelled:
        source = (source or augment.source(data)).to(config.device)
        copies = augment.copies(source, parts["train_mask"], own.targets, config.drop, config.drop_entries)
    ready = choice.ready
    if ready is not None and units is not None:
        ready = ready._replace(model=rescaled(ready.model, units.deviation, units.mean))
    return Problem(
        examples["train_mask"], examples.get("val_mask"), classes, config, augment, examples.get("test_mask"), copies,
        (*reasons, *said, *_remarks(data), *choice.reasons, *choice.evidence.about), units, Split.of(data),
        choice.evidence, ready, crossed, part.line,
    )  # fmt: skip


def _rows(
    data: Graph,
    parts: dict[str, Tensor],
    own: Examples,
    t: Tensor,
    classes: NDArray[Any],
    config: ModelConfig,
    seed: int,
    known: Split | None,
) -> Rows:
    """The nodes whose labels ``t`` decide: those that validate, or else all of few, out of fold."""
    training, validating = parts["train_mask"], parts.get("val_mask")
    y, weights, number = own.y.cpu(), None if own.weights is None else own.weights.cpu(), len(training)
    own_known = slice(0 if config.label_hops == 0 else None)  # none where they cannot become features
    shares = y[own_known] if y.is_floating_point() else torch.nn.functional.one_hot(y[own_known], len(classes))
    labels_known = KnownLabels.of(data, training[own_known], shares)
    if validating is not None:
        aside = len(validating)  # of which y and weights are not asked for
        y = torch.cat([y, y.new_zeros(aside, *y.shape[1:])])
        weights = None if weights is None else torch.cat([weights, weights.new_ones(aside)])
        fold, nodes = (torch.arange(number), torch.arange(number, number + aside)), torch.cat([training, validating])
        return Rows(nodes, y, t[nodes], weights, classes, (fold,), crossed=False, known=labels_known)
    crossed, t = is_crossed(config, number, known), t[training]
    folds = folds_of(strata(data)[training] if has_columns(data) else t, seed) if crossed else ()
    return Rows(training, y, t, weights, classes, folds, crossed=crossed, known=labels_known)


def _remarks(data: Graph) -> Iterator[str]:
    """What was made of a graph that is not as most are, a sentence each."""
    if data.get("structural"):
        yield "there are no features: degrees and random projections of the graph take their place"
    if data.get("edge_attr") is not None:
        yield "edge_attr has several columns and is not used: edge_weight is the place for a weight an edge"
    yield from data.get("notes", ())


def _features_on(data: Graph, device: str) -> Graph:
    """The graph with its features on a GPU, where they are augmented much faster, if they fit there several times."""
    if torch.device(device).type != "cuda" or data.get("part") is not None:
        return data
    if 8 * data.x.numel() * data.x.element_size() > torch.cuda.mem_get_info(device)[0]:
        return data
    data = copy.copy(data)
    data.x = data.x.to(device)
    return data


def with_weights(data: Graph, config: ModelConfig, sample_weight: Any, *, seed: int) -> Graph:
    """The graph with the checked weights of rows as ``sample_weight``, of all nodes or of those that train."""
    whole, _ = with_masks(data, config.but(validation=0.0), seed=seed)
    require_training_nodes(whole)
    nodes = whole.train_mask.nonzero().view(-1)
    weights = row_weights(sample_weight, nodes, data.num_nodes)
    data = copy.copy(data)
    data.sample_weight = torch.zeros(data.num_nodes, dtype=weights.dtype).index_copy_(0, nodes, weights)
    return data


def split_rows(
    data: Graph, config: ModelConfig, *, seed: int, known: Split | None = None, crosses: bool = False
) -> tuple[Graph, Weighed, tuple[str, ...]]:
    """The graph with the nodes that train and validate, see :func:`.with_masks`, and what the former should become."""
    require_y(data)
    given, weights = data.get("sample_weight"), None
    data, reasons = with_masks(data, config, seed=seed, known=known, crosses=crosses)
    require_training_nodes(data)
    nodes = data.train_mask.nonzero().view(-1)
    if given is not None:
        nodes = nodes[given[nodes] > 0]
        weights, data = given[nodes], _trained_on(data, nodes)
    require_labels(data, "train_mask")
    y, names, columns = data.y[nodes], data.get("label_names"), has_columns(data)
    if columns or y.is_floating_point():
        found = torch.arange(y.shape[1])
    else:
        found, y = y.unique(return_inverse=True)
    classes = found.numpy() if names is None else names[found.numpy()]
    rows = _weighed(y, classes, config, weights, columns=columns)
    data = data if rows.kept is None else _trained_on(data, nodes[rows.kept])
    if columns:
        return data, rows, reasons
    data, unknown = _without_unknown(data)
    return data, rows, (*reasons, *unknown)


def _weighed(
    y: Tensor, classes: NDArray[Any], config: ModelConfig, weights: Tensor | None, *, columns: bool
) -> Weighed:
    """Rows by what they weigh, see :func:`.weighed`; of columns of labels or numbers no class does."""
    if not columns:
        return weighed(y, classes, config.class_weight, weights)
    if weights is None:
        return Weighed(None, y, None, classes)
    kept = weights > 0
    y, weights = y[kept], weights[kept].float()
    return Weighed(None if bool(kept.all()) else kept, y, None if bool((weights == 1).all()) else weights, classes)


def _without_unknown(data: Graph) -> tuple[Graph, tuple[str, ...]]:
    """The graph without validation nodes of classes that no training node has, and a sentence on these."""
    hard, given = hard_labels(data), data.y[data.train_mask]
    masks = [mask for mask in MASKS[1:] if mask in data]
    known = (given > 0).any(0).nonzero() if given.is_floating_point() else given
    strangers = (hard >= 0) & ~torch.isin(hard, known)
    absent = [label for mask in masks for label in hard[data[mask] & strangers].unique().tolist()]
    if not absent:
        return data, ()
    names = ", ".join(str(class_name(data, label)) for label in sorted({*absent}))
    data = copy.copy(data)
    if "val_mask" in data:
        data.val_mask = data.val_mask & ~strangers
    return data, (f"no training node is of class {names}: it is never predicted, and counts as wrong in tests",)


def _trained_on(data: Graph, nodes: Tensor) -> Graph:
    """The same graph with these training nodes."""
    data = copy.copy(data)
    data.train_mask = as_mask(nodes, data.num_nodes, "train_mask")
    return data


def prepare_rows(
    features: Tensor, labels: NDArray[Any] | Tensor, config: ModelConfig, sample_weight: Any = None
) -> Problem:
    """The problem of a matrix, which is taken as it is, with a label a row, or in a tensor the probabilities of all.

    Where the target of ``config`` is another than classes, the tensor has a column for each label or number.
    """
    config = config.resolved("classification")
    columns, number = config.target != "classification", len(features)
    weights = None if sample_weight is None else row_weights(sample_weight, torch.arange(number), number)
    if isinstance(labels, Tensor):
        classes, y = np.arange(labels.shape[1]), labels
    else:
        classes, encoded = np.unique(labels, return_inverse=True)
        y = torch.as_tensor(encoded)
    kept, y, weights, classes = _weighed(y, classes, config, weights, columns=columns)
    units = Units.of(y, weights) if config.target == "regression" else None
    y = y if units is None else units.standardized(y)
    features = features if kept is None else features[kept]
    examples = _examples(features.to(config.device), y, weights, config)
    config = config.resolved(classes=0 if columns else len(classes))
    unlabelled = None if config.unlabelled is None else 0
    config = config.but(augment="none", hops=1, normalize="none", unlabelled=unlabelled)
    return Problem(examples, None, classes, config, units=units)


def _examples(X: Tensor, y: Tensor, weights: Tensor | None, config: ModelConfig) -> Examples:
    """Rows that train, all on one device and their numbers of one type."""
    kind = X.dtype if X.is_floating_point() else torch.float32
    y = y.to(config.device, kind if y.is_floating_point() else torch.int64)
    return Examples(X, y, None if weights is None else weights.to(config.device, kind))


# Training that starts from a network that is there already

#: Settings that make the features, which must stay what the network was trained on.
FEATURES = ("augment", "hops", "teleport", "row_normalize", "normalize", "components", "directed", "label_hops")


@dataclass(frozen=True)
class WarmStart:
    """A network to start from, and what is known of how it was trained; nothing of a network alone."""

    model: GAMLP
    known: TrainedModel | None = None

    def staged(self, config: Config) -> Config:
        """The resolved ``config`` with the stages that are left: growth goes on from the depth of the network."""
        depths, own = config.stages, len(self.model.linears)
        assert depths is not None
        if own == 1:  # a linear model: a network is trained on its features
            return config
        if not min(2, depths[-1]) <= own <= depths[-1]:
            raise InputError(f"init has {own} layers, the network is to have {depths[-1]}: set layers to more")
        return config.but(stages=tuple(depth for depth in depths if depth >= own))

    def decided(self, config: ModelConfig) -> ModelConfig:
        """The resolved ``config`` with what it leaves open as it was when the network was trained."""
        config, known = self.staged(config), self.known
        if known is None:
            return config
        if config.asked_target != "auto":
            self.check_target(config.asked_target)
        before, names = known.config, [name for name in CHOSEN if name != "target"]
        if known.augmentation is not None:
            # With learning from unlabelled nodes, edges count both ways alike whether anybody said so or not.
            before = before.but(directed=known.augmentation.directed)
        taken = {name: getattr(before, name) for name in names if getattr(config, name) in (None, "auto")}
        if known.columns:
            from ..graph.columns import standardized

            if standardized(known.columns):
                taken["row_normalize"] = before.row_normalize
        config = dataclasses.replace(config, **taken)  # which must go with what is given
        for name in FEATURES if known.augmentation is not None else ():
            given, trained = getattr(config, name), getattr(before, name)
            if given != trained:
                raise InputError(f"init was trained with {name} = {trained}, not {given}: leave it out, or set it so")
        return config

    def check_target(self, target: TargetKind) -> None:
        """Raise if the network learned another kind of target."""
        if self.known is not None and self.known.config.target != target:
            raise InputError(f"init was trained for {self.known.config.target}, the data are for {target}")

    def check(self, problem: Problem) -> None:
        """Raise unless the network fits the problem."""
        config, widths, known = problem.config, self.model.widths, self.known
        self.check_target(config.target)
        if known is not None and (known.augmentation is None) != (problem.augmentation is None):
            kinds = ("a matrix", "a graph") if known.augmentation is None else ("a graph", "a matrix")
            raise InputError(f"init was fitted on {kinds[0]}, this is {kinds[1]}")
        for has, name, needed in (
            *((width, "neurons per hidden layer: set hidden so, not to", config.width) for width in widths[1:-1]),
            (widths[0], "features, the data have", problem.training.X.shape[1]),
            (widths[-1], "classes, the data have", len(problem.classes)),
            (self.model.activation, "activation: set it so, not to", config.activation),
        ):
            if has != needed:
                raise InputError(f"init has {has} {name} {needed}")
        if known is not None and not np.array_equal(known.classes, problem.classes):
            first, given = (classes[:5].tolist() for classes in (known.classes, problem.classes))
            raise InputError(f"init knows the classes {first}, the data have {given}: the labels must be the same ones")
