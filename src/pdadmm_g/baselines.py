"""Methods to compare with, by backpropagation: the same network by usual optimizers, and what one would use instead.

``gd``, ``adadelta``, ``adagrad``, ``adam`` train the network that pdADMM-G would train, through the same stages;
``sgc`` (Wu et al., 2019) and ``s2gc`` (Zhu & Koniusz, 2021) are linear models on a power of the graph and on the
average of powers, ``sign`` (Frasca et al., 2020) two layers with dropout, ``gcn`` (Kipf & Welling, 2017) two graph
convolutions, and ``grand`` (Feng et al., 2020) two layers on random copies of the features, which should agree.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from .config import ModelConfig
from .errors import InputError
from .estimator import GAMLPClassifier, given_data, parameters
from .graph.augmentation import GraphAugment, feature_rows, is_mostly_zero
from .graph.candidates import DEFAULT_TELEPORT
from .graph.checks import check_graph, require_edges
from .graph.examples import Examples
from .graph.graph import MASKS, Graph, id_order, node_numbers, reordered
from .graph.propagation import DENSE, adjacency, quiet, to_csc
from .model import GAMLP, finite
from .status import Status
from .training.prepare import Problem, split_rows
from .training.records import Record
from .utils import checked_device, compute_threads


@dataclass(frozen=True, kw_only=True)
class Method:
    """What a method is, and what is usual for it where a setting is not given."""

    #: Its name in ``torch.optim``.
    optimizer: str = "Adam"
    learning_rate: float = 0.001
    #: Layers of its network; None for one that grows to ``layers``.
    depth: int | None = None
    #: Share of the inputs of each layer that a training step leaves out.
    dropout: float = 0.0
    #: Of :class:`~pdadmm_g.config.ModelConfig`.
    settings: dict[str, Any] = field(default_factory=dict)


METHODS = {
    "gd": Method(optimizer="SGD", learning_rate=0.1),
    "adadelta": Method(optimizer="Adadelta"),
    "adagrad": Method(optimizer="Adagrad"),
    "adam": Method(),
    "sgc": Method(learning_rate=0.01, depth=1, settings={"augment": "power"}),
    "s2gc": Method(learning_rate=0.01, depth=1, settings={"augment": "average"}),
    "sign": Method(learning_rate=0.01, depth=2, dropout=0.5),
    # 0.0005 for each of the 140 training nodes of Cora, as published.
    "gcn": Method(
        learning_rate=0.01, depth=2, dropout=0.5,
        settings={"augment": "none", "normalize": "none", "weight_decay": 0.07},
    ),
    # The weight decay likewise. Rows of unit length are not of the published code, which takes them as they are.
    "grand": Method(
        learning_rate=0.01, depth=2, dropout=0.5,
        settings={"augment": "average", "hops": 8, "normalize": "unit", "weight_decay": 0.07},
    ),
}  # fmt: skip
#: Those that look at neighbours while they train.
GRAPH_METHODS = ("gcn", "grand")
#: GRAND: each step sees so many copies, and the same copies serve so many steps.
COPIES, STEPS = 4, 5
#: GRAND: the probability with which a copy leaves out the features of a node.
DROP = 0.5
#: GRAND: below one, the copies are drawn towards the class that they already lean to.
TEMPERATURE = 0.5
#: GRAND: nodes beside those that train, chosen anew with the copies; all of a large graph would take too long.
MOST_OTHERS = 2000
#: GRAND: smaller entries of the averaged powers of the graph are left out, as Feng et al. (2022) do: after a few hops
#: every node would have a part in every other, and each copy would take a minute on a graph of 20,000 nodes.
LEAST = 1e-3


@dataclass(eq=False, repr=False)
class Baseline(ClassifierMixin, BaseEstimator):
    """A classifier to compare with, of nodes of a graph or of rows of a matrix, trained on all of them in every step.

    ``fit`` takes what that of :class:`~pdadmm_g.GAMLPClassifier` takes. With validation nodes the epoch with the best
    accuracy there is kept, and training ends ``patience`` epochs after it; without (or with no patience) the last one.

    Args:
        name: The method, a key of :data:`METHODS`.
        augment: The features, as are the other settings of :class:`~pdadmm_g.config.ModelConfig`; where not given, what
            is usual for the method, or else what suits a linear model best.
        weight_decay: Half of it times the squared weights, of GCN those of the first layer, is added to the risk,
            which is a sum over the training nodes [default: 0.07 for gcn and grand, else 0].
        learning_rate: Of the optimizer [default: 0.1 for gd, 0.001 for adadelta, adagrad and adam, else 0.01].
        random_state: The seed of everything that is random.

    Attributes:
        model_: The trained network, which takes augmented features; that of GCN also averages over neighbours.
        classes_: The labels, in the order of its outputs.
        history_: One dict an epoch: ``objective``, ``val_accuracy``, ``val_loss``, ...
        status_: How training ended, a :class:`~pdadmm_g.status.Status`.
        config_: The settings that shaped the features and the network, every default filled in.
        augmentation_: What makes the features of a graph; None after ``fit(X, y)``.
        predictor_: A :class:`~pdadmm_g.GAMLPClassifier` of the trained network, which is asked for predictions.
        seconds_: Seconds of training, evaluation not counted.
    """

    name: str = "sgc"
    _: KW_ONLY
    augment: Literal["auto", "none", "hops", "apart", "average", "power"] = "auto"
    hops: int | None = None
    row_normalize: bool = True
    normalize: Literal["auto", "none", "unit", "centered"] = "auto"
    layers: int = 10
    hidden: int = 100
    stages: tuple[int, ...] | None = None
    weight_decay: float | None = None
    learning_rate: float | None = None
    epochs: int = 300
    patience: int | None = 100
    eval_every: int = 1
    validation: float = 0.2
    split: int | None = None
    threads: int = 1
    device: str = "cpu"
    random_state: int | np.random.RandomState | None = None

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        edge_index: Any = None,
        *,
        edge_weight: Any = None,
        start: GAMLP | None = None,
    ) -> Baseline:
        """Train on the training nodes of a graph, or on all rows of a matrix; from random weights or a network."""
        config, method = self.config(), METHODS[self.name]
        kind = OfGraph if self.name in GRAPH_METHODS else GAMLPClassifier
        self.predictor_ = asked = kind(**parameters(config), random_state=self.random_state)
        seed = asked._seed()
        X, y = given_data(X, y, edge_index, edge_weight, "classification")
        if isinstance(X, Graph):
            X = check_graph(X)
            X, *_ = split_rows(reordered(X, id_order(X)), config, seed=seed)
        if kind is OfGraph:
            if not isinstance(X, Graph):
                raise InputError(f"{self.name} needs a graph: pass one, or edges beside the matrix")
            require_edges(X, f"{self.name} needs it")
        problem = asked._problem(X, y, None, config, seed)
        config, augment = problem.config, problem.augmentation
        logits: Callable[..., Tensor] = forward
        parts = problem.training, problem.validation if isinstance(X, Graph) else None
        if self.name == "gcn":
            assert augment is not None
            features, A = whole_graph(X, augment)
            logits = partial(over_graph, features.to(config.device), A.to(config.device))
            nodes = [X[mask].nonzero().view(-1).to(config.device) for mask in MASKS[:2] if mask in X]
            parts = (parts[0]._replace(X=nodes[0]), parts[1] and parts[1]._replace(X=nodes[1]))
        y, drawn = parts[0].y, copies_of(X, problem, seed) if self.name == "grand" else None

        def loss(model: GAMLP) -> Tensor:
            if drawn is not None:
                return agreement_loss(model, next(drawn), y, method.dropout)
            return cross_entropy(logits(model, parts[0].X, dropout=method.dropout), y)

        self.config_, self.classes_, self.augmentation_ = config, problem.classes, augment
        self.history_: list[Record] = []
        self.seconds_ = 0.0
        torch.manual_seed(seed)
        depths = (config.stages or ()) if method.depth is None else (method.depth,)
        if start is None:
            model = GAMLP([problem.training.X.shape[1], *[config.width] * (depths[0] - 1), len(problem.classes)])
            for linear in model.linears if self.name == "gcn" else ():
                nn.init.xavier_uniform_(linear.get_parameter("weight"))
                nn.init.zeros_(linear.get_parameter("bias"))
        else:
            model, depths = copy.deepcopy(start), depths[-1:]
        with compute_threads(config.threads):
            for stage, depth in enumerate(depths, start=1):
                model = grown(model, depth).to(config.device)
                self.status_ = self._descend(model, stage, parts, logits, loss)
                if self.status_.is_failure:
                    break
        self.model_, self.n_iter_ = model.cpu().eval(), len(self.history_)
        asked.model_, asked.config_, asked.outputs_, asked.augmentation_ = self.model_, config, problem.classes, augment
        return self

    def config(self) -> ModelConfig:
        """The settings, with what is usual for the method where they are not given."""
        if self.name not in METHODS:
            raise InputError(f"name must be one of {', '.join(METHODS)}, got {self.name!r}")
        if self.learning_rate is not None and self.learning_rate <= 0:
            raise InputError(f"learning_rate must be positive, got {self.learning_rate}")
        usual = {"teleport": DEFAULT_TELEPORT, "label_hops": 0, "weight_decay": 0.0} | METHODS[self.name].settings
        given = {name: value for name, value in vars(self).items() if name in ModelConfig.__dataclass_fields__}
        settings = given | {name: value for name, value in usual.items() if given.get(name) in (None, "auto")}
        if self.name == "grand":
            # All powers from the zeroth on count alike: the features themselves are one of hops + 1.
            settings |= {"augment": "average", "teleport": 1 / (settings["hops"] + 1)}
        settings |= {"target": "classification", "directed": "symmetric", "unlabelled": 0}
        return ModelConfig(**settings | {"device": str(checked_device(self.device))}).resolved()

    def _descend(
        self,
        model: GAMLP,
        stage: int,
        parts: tuple[Examples, Examples | None],
        logits: Callable[..., Tensor],
        loss: Callable[[GAMLP], Tensor],
    ) -> Status:
        """Train a network in place. It ends with its best weights on validation, or the last with a finite loss."""
        config, method = self.config_, METHODS[self.name]
        assert config.weight_decay is not None
        decayed = list((model.linears[0] if self.name == "gcn" else model).parameters())
        others = [parameter for parameter in model.parameters() if parameter not in set(decayed)]
        # The loss is the mean over the rows, and so is the weight decay.
        decay = config.weight_decay / parts[0].targets.rows().number
        optimizer: torch.optim.Optimizer = getattr(torch.optim, method.optimizer)(
            [{"params": decayed, "weight_decay": decay}, {"params": others}],
            lr=self.learning_rate or method.learning_rate,
        )
        selects = self.patience is not None and parts[1] is not None
        best, best_epoch, kept = (-math.inf, -math.inf), 0, copy.deepcopy(model.state_dict())
        for epoch in range(1, config.epochs + 1):
            begin = time.perf_counter()
            optimizer.zero_grad()
            risk = loss(model)
            risk.backward()
            optimizer.step()
            self.seconds_ += time.perf_counter() - begin
            record: Record = {"stage": stage, "stage_epoch": epoch, "epoch": len(self.history_) + 1}
            record["objective"] = float(risk.detach())
            evaluated = epoch % config.eval_every == 0 or epoch == config.epochs
            if evaluated:
                for part, examples in zip(("train", "val"), parts, strict=True):
                    if examples is not None:
                        with torch.no_grad():
                            given = logits(model, examples.X)
                        record[f"{part}_loss"] = float(cross_entropy(given, examples.y))
                        record[f"{part}_accuracy"] = examples.targets.accuracy(given)
            self.history_.append(record)
            status = Status.MAX_EPOCHS
            if not all(math.isfinite(record.get(name, 0.0)) for name in ("objective", "train_loss")):
                status = Status.NON_FINITE
                break
            if evaluated:
                own = (record["val_accuracy"], -record["val_loss"]) if selects else (epoch, 0)
                if own > best:
                    best, best_epoch, kept = own, epoch, copy.deepcopy(model.state_dict())
                elif epoch - best_epoch >= (self.patience or 0):
                    status = Status.EARLY_STOPPED
                    break
        model.load_state_dict(kept)
        return status

    def predict(self, X: Any, nodes: ArrayLike | Tensor | None = None, **graph: Any) -> NDArray[Any]:
        """The most probable label of every row, or of ``nodes`` (all by default) of a graph."""
        check_is_fitted(self)
        return self.predictor_.predict(X, nodes, **graph)

    def predict_proba(self, X: Any, nodes: ArrayLike | Tensor | None = None, **graph: Any) -> NDArray[Any]:
        """The probability of each class, in the order of ``classes_``, for what :meth:`predict` gives labels."""
        check_is_fitted(self)
        return self.predictor_.predict_proba(X, nodes, **graph)

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None, **graph: Any) -> float:
        """Accuracy, see :meth:`pdadmm_g.GAMLPClassifier.score`: for a graph, ``y`` are the nodes to score."""
        check_is_fitted(self)
        return self.predictor_.score(X, y, sample_weight, **graph)


class OfGraph(GAMLPClassifier):
    """Of a method that looks at neighbours: a graph without edges is refused, and GCN averages over them."""

    def _checked(self, X: Graph | ArrayLike) -> Graph:
        data = super()._checked(X)
        require_edges(data)
        return data

    @torch.no_grad()
    def _logits(self, X: Graph | ArrayLike, nodes: ArrayLike | Tensor | None = None) -> Tensor:
        assert self.augmentation_ is not None
        if self.augmentation_.mode != "none":
            return super()._logits(X, nodes)
        data = self._checked(X)
        index = torch.arange(data.num_nodes) if nodes is None else node_numbers(nodes, data.num_nodes)
        return finite(over_graph(*whole_graph(data, self.augmentation_), self.model_, index), index)


def copies_of(data: Graph, problem: Problem, seed: int) -> Iterator[Tensor]:
    r"""Random copies :math:`X^{(s)}` (copies, nodes, features) for a step, the rows that train first, then other nodes.

    In a copy the features of a node are left out with probability :data:`DROP` before they are propagated. Copies are
    drawn anew every few steps.
    """
    augment, generator = problem.augmentation, torch.Generator().manual_seed(seed)
    assert augment is not None
    H: Any = feature_rows(data.x, augment.dtype, row_normalize=augment.row_normalize, sparse=is_mostly_zero(data))
    H = H.numpy() if H.layout == torch.strided else to_csc(H).tocsr()
    whole = averaged_powers(data, augment)
    nodes, others = (mask.nonzero().view(-1) for mask in (data.train_mask, ~data.train_mask))
    while True:
        chosen = torch.randperm(len(others), generator=generator)[:MOST_OTHERS]
        operator, copies = whole[torch.cat([nodes, others[chosen]]).numpy()], []
        for _ in range(COPIES):
            kept = (torch.rand(len(data.x), generator=generator) >= DROP).numpy()
            thinned = operator.copy()
            thinned.data *= kept[operator.indices] / np.float32(1 - DROP)
            X = thinned @ H
            X = torch.from_numpy(X if isinstance(X, np.ndarray) else X.toarray())
            copies.append(augment._normalized(X))
        drawn = torch.stack(copies).to(problem.training.X.device)
        for _ in range(STEPS):
            yield drawn


def agreement_loss(model: GAMLP, copies: Tensor, y: Tensor, dropout: float) -> Tensor:
    r"""The loss by which a network learns that it should say the same of all copies.

    With the probabilities :math:`P^{(s)}` that it gives to the nodes of each of S copies,

    .. math:: \frac1S \sum_s R(X^{(s)}) + \frac1{S n} \sum_s \sum_i \|\bar P_i - P_i^{(s)}\|^2, \quad
              \bar P_{ic} \propto \Bigl(\frac1S \sum_s P_{ic}^{(s)}\Bigr)^{1/T},

    R being the mean risk of the rows that train, and the second sum over all n nodes; no gradient goes through their
    mean.
    """
    logits = forward(model, copies, dropout=dropout)
    risks = [cross_entropy(one[: len(y)], y) for one in logits]
    return torch.stack(risks).mean() + disagreement(logits)


def averaged_powers(data: Graph, augment: GraphAugment) -> scipy.sparse.csr_array:
    """The operator of an average of hops as one sparse matrix (nodes, nodes), without its smallest entries."""
    adjacency = augment.adjacency(data)
    assert isinstance(adjacency, Tensor)
    A = to_csc(adjacency).tocsr()
    power = scipy.sparse.eye_array(data.num_nodes, dtype=A.dtype, format="csr")
    total = augment.teleport * power
    for _ in range(augment.hops):
        power = power @ A
        power.data[power.data < LEAST] = 0
        power.eliminate_zeros()
        total = total + (1 - augment.teleport) / augment.hops * power
    return total


def disagreement(logits: Tensor) -> Tensor:
    """How far copies (copies, nodes, classes) are from what they agree on, sharpened, in the mean over both."""
    P = torch.softmax(logits, dim=2)
    agreed = P.detach().mean(0) ** (1 / TEMPERATURE)
    agreed = agreed / agreed.sum(1, keepdim=True)
    return (agreed - P).square().sum(2).mean()


def whole_graph(data: Graph, augment: GraphAugment) -> tuple[Tensor, Tensor]:
    """The features of all nodes, sparse where most are zero, and the renormalised adjacency."""
    A = adjacency(data, augment.dtype)
    assert isinstance(A, Tensor)
    X = augment.features(data)
    if int(X.count_nonzero()) < DENSE * X.numel():
        with quiet():
            X = X.to_sparse_csr()
    return X, A


def over_graph(features: Tensor, A: Tensor, model: GAMLP, nodes: Tensor, dropout: float = 0.0) -> Tensor:
    """The logits of nodes by their numbers."""
    return forward(model, features, A, dropout)[nodes]


def forward(model: GAMLP, x: Tensor, A: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    r"""The logits, in training with a share of the inputs of each layer left out.

    With the sparse :math:`\tilde A` those of all nodes, each layer being :math:`\tilde A p_l W_l^T + b_l`.
    """
    for index, linear in enumerate(model.linears):
        p = dropped(model.f(x) if index else x, dropout)
        x = linear(p) if A is None else A @ (p @ linear.get_parameter("weight").T) + linear.get_parameter("bias")
    return x


def dropped(x: Tensor, dropout: float) -> Tensor:
    """A dense or sparse matrix with this share of its entries left out, the others made larger."""
    if not dropout:
        return x
    if x.layout == torch.sparse_csr:
        values = nn.functional.dropout(x.values(), dropout)
        return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), values, x.shape, check_invariants=False)
    return nn.functional.dropout(x, dropout)


def grown(model: GAMLP, depth: int) -> GAMLP:
    """The same function with identity layers before the last one."""
    *layers, last = copy.deepcopy(model).linears
    for _ in range(depth - len(model.linears)):
        layers.append(nn.Linear(model.widths[-2], model.widths[-2]))
        nn.init.eye_(layers[-1].get_parameter("weight"))
        nn.init.zeros_(layers[-1].get_parameter("bias"))
    pairs = [(linear.get_parameter("weight"), linear.get_parameter("bias")) for linear in (*layers, last)]
    return GAMLP.from_parameters(pairs, model.activation)
