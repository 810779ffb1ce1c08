"""The estimator: fit, predict and score on graphs and on plain feature matrices.

It has all that the commands need; :mod:`.classifier` makes scikit-learn's of it, which takes a second to import.
"""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from .config import ModelConfig, Scoring, described, label_name
from .data.adapters import as_graph, edges_apart, ids_of, is_graph, is_table, labels_of
from .data.augmentation import GraphAugment, whole_graph
from .data.checks import (
    as_mask,
    as_tensor,
    check_graph,
    check_kind,
    hard_labels,
    missing_label,
    node_name,
    node_numbers,
    probabilities_of,
    require_edges,
    require_y,
)
from .data.feature_names import arranged
from .data.graph import Graph
from .data.splits import one_split, unseen_nodes
from .engine.team import Team
from .errors import InputError
from .hardware import checked_device
from .model import GAMLP, GCN, finite
from .status import Status
from .tasks import Tasks, run_tasks, task
from .training.calibration import calibrate, check_calibration
from .training.callback import Listener, OnEpoch
from .training.checkpoint import Checkpointing
from .training.fit import fit, kept
from .training.model_file import TrainedModel, load_model, save_model
from .training.prepare import prepare_graph, prepare_rows
from .training.problem import Problem
from .training.progress import Progress, in_notebook
from .training.records import Record
from .training.refit import refit
from .training.warm_start import WarmStart

Classifier = TypeVar("Classifier", bound="Estimator")
#: Bytes of augmented features that prediction holds at a time.
PREDICT_BYTES = 2**30


class Estimator:
    """Deep graph-augmented MLP trained with pdADMM-G (or pdADMM-G-Q), without backpropagation.

    ``fit(graph)`` takes what :func:`~pdadmm_g.data.datasets.load_dataset` gives, or a ``torch_geometric`` ``Data`` with
    ``x``, ``edge_index``, ``y``, and masks if there are any, or a ``networkx`` or DGL graph; ``fit(X, y, edge_index)``
    features, labels and edges, and ``fit(nodes, edges)`` two pandas tables, see
    :func:`~pdadmm_g.data.adapters.as_graph`. Where nothing says which nodes train, those with a label do; where nothing
    says which validate, some of these are set aside (``validation``).
    ``fit(X, y)`` takes a feature matrix as it is, without a graph: scale it first (``StandardScaler``), as for any MLP.

    Labels may be probabilities: a matrix of fractions with a column for each class, whose rows sum to one. Then the
    classes are 0, 1, 2, ...; rows that validate or are scored count as of their most probable class, and a row of NaN
    is a node without label. With ``class_weight``, a row of probabilities counts as one of each class with that share
    of its weight.

    The parameters are the settings of :class:`~pdadmm_g.config.ModelConfig`, ``verbose`` and ``random_state``.

    Attributes:
        model_: The trained :class:`~pdadmm_g.model.GAMLP`, on the CPU. Its input is the augmented features; that of
            a :class:`~pdadmm_g.model.GCN` (method gcn) also the graph.
        history_: One dict per epoch, with the keys of ``metrics.jsonl``.
        status_: How training ended, a :class:`~pdadmm_g.status.Status` with ``.advice``.
        message_: Epoch, layer and variable of a failure, e.g. ``"epoch 17, layer 4, variable z"``; else empty.
        classes_: The labels, in the order of the model's outputs.
        feature_names_in_: The names of the features; only where a table had some. In tables to predict from, the same
            columns may stand in another order.
        augmentation_: The fitted :class:`~pdadmm_g.data.augmentation.GraphAugment`; None after ``fit(X, y)``.
        seconds_: Training time, evaluation not counted.
        plan_: The number of layers of each worker.
        config_: The settings that the model was fitted with, every default filled in.
        choices_: What was chosen by the data and why, and what of the network was kept, a sentence each.
        times_: Seconds by task: choosing features, weight decay, training, ...; they add up to those of ``fit``.
        seed_: The seed that the initial weights were drawn with; None where it is not known, after :meth:`load`.
    """

    model_: GAMLP
    history_: list[Record]
    status_: Status
    message_: str
    classes_: NDArray[Any]
    augmentation_: GraphAugment | None
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    seconds_: float
    plan_: tuple[int, ...]
    config_: ModelConfig
    choices_: tuple[str, ...]
    times_: dict[str, float]
    seed_: int | None

    def __init__(
        self,
        *,
        method: Literal[
            "pdadmm-g", "gd", "adadelta", "adagrad", "adam", "sgc", "s2gc", "sign", "gcn", "grand"
        ] = "pdadmm-g",
        augment: Literal["auto", "none", "hops", "apart", "average", "power"] = "auto",
        hops: int | None = None,
        teleport: float | None = None,
        row_normalize: bool = True,
        normalize: Literal["auto", "none", "unit", "centered"] = "auto",
        components: int | None = None,
        directed: Literal["auto", "symmetric", "out", "in", "both"] = "auto",
        layers: int = 10,
        hidden: int = 100,
        stages: tuple[int, ...] | None = None,
        growth: Literal["gain", "all"] | None = None,
        activation: Literal["relu", "leaky-relu", "tanh", "sigmoid", "identity"] = "relu",
        risk: Literal["cross-entropy", "squared-error"] = "cross-entropy",
        solver: Literal["linearized", "exact"] = "exact",
        rho: float = 5.0,
        nu: float = 1.0,
        weight_decay: float | None = None,
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        learning_rate: float | None = None,
        penalty: Literal["constant", "stall", "balance"] = "constant",
        quantize: Literal["none", "p", "pq"] = "none",
        bits: int | None = None,
        levels: tuple[float, ...] | Literal["paper"] | None = None,
        epochs: int = 300,
        patience: int | Literal["auto"] | None = "auto",
        scoring: Scoring = "accuracy",
        calibrate: bool = False,
        validation: float = 0.2,
        refit: bool = False,
        split: int | None = None,
        tolerance: float = 1e-6,
        eval_every: int = 1,
        unlabelled: int | None = None,
        rounds: int = 12,
        copies: int = 2,
        drop: float = 0.5,
        drop_entries: float | None = None,
        sharpness: float | None = None,
        trust: float = 10.0,
        workers: int | Literal["auto"] | None = None,
        shards: int | None = None,
        verify: bool = False,
        threads: int = 1,
        plan: tuple[int, ...] | None = None,
        wire: Literal["float32", "bf16", "fp16"] = "float32",
        timeout: float = 60.0,
        device: str = "cpu",
        precision: Literal["fp32", "tf32", "bf16"] = "fp32",
        compile: bool | None = None,
        verbose: bool | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.method = method
        self.augment = augment
        self.hops = hops
        self.teleport = teleport
        self.row_normalize = row_normalize
        self.normalize = normalize
        self.components = components
        self.directed = directed
        self.layers = layers
        self.hidden = hidden
        self.stages = stages
        self.growth = growth
        self.activation = activation
        self.risk = risk
        self.solver = solver
        self.rho = rho
        self.nu = nu
        self.weight_decay = weight_decay
        self.class_weight = class_weight
        self.learning_rate = learning_rate
        self.penalty = penalty
        self.quantize = quantize
        self.bits = bits
        self.levels = levels
        self.epochs = epochs
        self.patience = patience
        self.scoring = scoring
        self.calibrate = calibrate
        self.validation = validation
        self.refit = refit
        self.split = split
        self.tolerance = tolerance
        self.eval_every = eval_every
        self.unlabelled = unlabelled
        self.rounds = rounds
        self.copies = copies
        self.drop = drop
        self.drop_entries = drop_entries
        self.sharpness = sharpness
        self.trust = trust
        self.workers = workers
        self.shards = shards
        self.verify = verify
        self.threads = threads
        self.plan = plan
        self.wire = wire
        self.timeout = timeout
        self.device = device
        self.precision = precision
        self.compile = compile
        self.verbose = verbose
        self.random_state = random_state

    def fit(
        self: Classifier,
        X: Any,
        y: ArrayLike | None = None,
        edge_index: Any = None,
        *,
        edge_weight: Any = None,
        sample_weight: ArrayLike | Tensor | None = None,
        on_epoch: OnEpoch | None = None,
        init: Estimator | GAMLP | str | Path | None = None,
    ) -> Classifier:
        """Train on the training nodes of a graph, or on all rows of a feature matrix.

        Args:
            X: A graph with labels, or features with edges beside them, see :func:`~pdadmm_g.data.adapters.as_graph`; or
                a feature matrix.
            y: The labels of features, or (rows, classes) their probabilities. On a graph -1, None, NaN or "" is a node
                without label.
            edge_index: The edges between the rows of ``X``: (2, edges), a scipy adjacency, or a pandas table.
            edge_weight: What each edge weighs.
            sample_weight: What each row weighs: one with weight 2 counts as two equal rows, one with weight 0 is left
                out. For a graph, a weight for every node, of which those of the training nodes count, or for every
                training node.
            on_epoch: Called with the record of each epoch as it ends, a dict as those of ``history_``; ``stage``,
                ``round`` and ``stage_epoch`` in it say where training is. If it returns True, training ends there, with
                the best model so far and status STOPPED. An exception does the same and is raised once the model is
                kept.
            init: What training starts from instead of random weights: a fitted estimator, what :meth:`save` wrote of
                one, or a network. Growth goes on from its depth. Of an estimator the augmentation is taken over as it
                is, and so is what this one leaves to the data.

        An interrupt (Ctrl-C) ends training with the best model so far and status INTERRUPTED; before the first epoch,
        while settings are chosen by the data, there is none, and it is raised.
        """
        y, edge_index = edges_apart(y, edge_index)
        if edge_index is not None or is_graph(X) or (is_table(X) and y is None):
            X, y = as_graph(X, y, edge_index, edge_weight=edge_weight), None
        elif edge_weight is not None:
            raise InputError("edge_weight is given without edges: pass edge_index too")
        start, verbose = warm_start(init), in_notebook() if self.verbose is None else self.verbose
        if not verbose:
            return self._fit(X, y, sample_weight, on_epoch=on_epoch, start=start)
        with Progress(self._config()) as progress, Tasks(progress.task):

            def shown(record: Record) -> object:
                progress.update(record)
                return None if on_epoch is None else on_epoch(record)

            return self._fit(X, y, sample_weight, on_epoch=shown, start=start)

    def _fit(
        self: Classifier,
        X: Graph | ArrayLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | Tensor | None = None,
        *,
        on_epoch: OnEpoch | None = None,
        checkpointing: Checkpointing | None = None,
        team: Team | None = None,
        start: WarmStart | None = None,
    ) -> Classifier:
        """``fit``, also with checkpoints and as the first member of a team of processes."""
        config = self._config()
        config = dataclasses.replace(config, device=str(checked_device(config.device)))
        if config.refit and team is not None:
            raise InputError("refit is for one process or workers of its own (--workers), not for torchrun")
        given, seed = config, self._seed()
        if checkpointing is not None:
            config = checkpointing.decided(config)
        if start is not None:
            config = start.decided(config)
        with run_tasks() as tasks:
            if isinstance(X, Graph):
                X = arranged(check_graph(X), None if start is None else start.feature_names, "init")
            problem = self._problem(X, y, sample_weight, config, seed, start)
            check_calibration(problem)
            if start is not None:
                start.check(problem)
            problem = problem.decided(seed, team)
            reasons = problem.reasons if checkpointing is None else checkpointing.explained(problem.reasons)
            listener = Listener(on_epoch)
            model = None if start is None else start.model
            with task("training"):
                result = fit(problem, seed=seed, on_epoch=listener, checkpointing=checkpointing, team=team, start=model)
            choices = (*reasons, kept(result, problem.config))
            ended = not result.status.is_failure and result.status is not Status.INTERRUPTED
            try:
                if config.refit and problem.validation is not None and ended:
                    assert isinstance(X, Graph)
                    with task("training on all labels"):
                        problem, result, why = refit(X, problem, result, given, seed=seed, sample_weight=sample_weight)
                    choices += (why,)
                elif config.calibrate:
                    choices += (calibrate(result.model, problem),)
            except KeyboardInterrupt:
                result.status = Status.INTERRUPTED  # with the model that training gave
            self.times_ = tasks.times()
        # Not before: where training fails, an earlier model and all that belongs to it stay together.
        self.classes_, self.augmentation_, self.config_ = problem.classes, problem.augmentation, problem.config
        self.choices_ = choices
        self.model_ = result.model.cpu().eval()
        self.history_ = result.history
        self.status_ = result.status
        self.message_ = result.message
        self.seconds_ = result.seconds
        self.plan_ = result.plan.counts
        self.n_iter_, self.seed_ = len(result.history), seed
        listener.raise_error()
        return self

    def predict(
        self,
        X: Any,
        nodes: ArrayLike | Tensor | None = None,
        *,
        edge_index: Any = None,
        edge_weight: Any = None,
    ) -> NDArray[Any]:
        """The most probable label of every row, or of ``nodes`` (indices or a mask, all by default) of a graph.

        The graph is given as to :meth:`fit`. It may be another one, with new nodes and edges; it needs neither labels
        nor masks. A table of edges may stand in the place of ``nodes``.
        """
        nodes, edge_index = edges_apart(nodes, edge_index)
        best = self._logits(self._given(X, edge_index, edge_weight), nodes).argmax(1).numpy()
        return self.classes_[best]

    def predict_proba(
        self,
        X: Any,
        nodes: ArrayLike | Tensor | None = None,
        *,
        edge_index: Any = None,
        edge_weight: Any = None,
    ) -> NDArray[Any]:
        """The probability of each class, in the order of ``classes_``, for what :meth:`predict` gives labels."""
        nodes, edge_index = edges_apart(nodes, edge_index)
        return torch.softmax(self._logits(self._given(X, edge_index, edge_weight), nodes), dim=1).numpy()

    def predictions(
        self, X: Any, edge_index: Any = None, *, edge_weight: Any = None, probabilities: bool = False
    ) -> dict[str, NDArray[Any]]:
        """Columns ``node``, by its id, ``label`` and ``probability`` of every node of a graph, as for a pandas table.

        With ``probabilities``, also a column ``probability_LABEL`` for each class.
        """
        data = self._given(X, edge_index, edge_weight)
        each = self.predict_proba(data)
        ids = ids_of(check_graph(data)) if isinstance(data, Graph) else np.arange(len(each))
        columns = {"node": ids, "label": self.classes_[each.argmax(1)], "probability": each.max(1)}
        if probabilities:
            columns |= {f"probability_{name}": each[:, place] for place, name in enumerate(self.classes_.tolist())}
        return columns

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        edge_index: Any = None,
        edge_weight: Any = None,
    ) -> float:
        """Accuracy. For a graph, which has its labels, ``y`` is the mask (or indices) of the nodes to score.

        By default these are its test nodes; where nothing says which these are, the labelled nodes that neither train
        nor validate by its masks. Where edges are given beside features, ``y`` are the labels, and nodes without one
        are not scored; without masks, all others are, whoever trained.
        """
        from sklearn.metrics import accuracy_score

        y, edge_index = edges_apart(y, edge_index)
        labels_given = edge_index is not None and y is not None
        if labels_given:
            X, y = as_graph(X, y, edge_index, edge_weight=edge_weight), None
        elif y is None or is_graph(X):
            X = self._given(X, edge_index, edge_weight)
        if not isinstance(X, Graph):
            soft = probabilities_of(y)
            true = y if soft is None else soft.argmax(1).numpy()
            return float(accuracy_score(true, self.predict(X), sample_weight=sample_weight))
        data, _ = one_split(check_graph(X), self.split)
        require_y(data)
        if y is not None and _are_labels(y, data):
            remedy = "write score(data) for the test nodes, score(data, data.val_mask) for others"
            raise InputError(f"y are the labels of the graph, which it has already: {remedy}")
        mask = unseen_nodes(data, labels_given=labels_given) if y is None else as_mask(y, data.num_nodes, "mask")
        nodes = mask.nonzero().view(-1)
        if not len(nodes):
            raise InputError("mask is empty: no node to score")
        labels = hard_labels(data)[nodes]
        if bool((labels < 0).any()):
            first = node_name(data, int(nodes[labels < 0][0]))
            raise InputError(f"data: node {first} has no label ({missing_label(data)}) to score against")
        true = labels_of(data)[nodes.numpy()]
        check_kind(true, self.classes_)
        return float(accuracy_score(true, self.predict(data, nodes), sample_weight=sample_weight))

    def save(self, path: str | Path, data: Graph | None = None) -> None:
        """Write the fitted model, from which :meth:`load` restores the estimator.

        Args:
            path: With a suffix, one safetensors file of the model alone. Without, or where it is a folder, a run folder
                as ``pdadmm-g train`` writes it, with the history of training, for ``pdadmm-g evaluate``, ``predict``,
                ``export`` and ``report``. What was saved there before is replaced.
            data: A graph whose accuracies and confusion matrix the summary of a run folder is to have.
        """
        self._check_fitted()
        if not Path(path).suffix or Path(path).is_dir():
            from .runs.fitted import save_run  # stands above, see the contract in pyproject.toml

            save_run(self, path, data)
            return
        if data is not None:
            raise InputError(f"{path}: a model file has no place for accuracies: give the name of a folder")
        names = getattr(self, "feature_names_in_", None)
        trained = (self.model_, self.config_, self.augmentation_, self.classes_, self.n_features_in_, names)
        save_model(path, TrainedModel(*trained, self.status_))

    def report(self, path: str | Path, data: Graph | None = None) -> None:
        """Write the page of ``pdadmm-g report`` on the training of this estimator.

        Args:
            path: The HTML file.
            data: A graph whose accuracies and confusion matrix the page is to show.
        """
        self._check_fitted()
        from .report.fitted import write_report  # stands above, see the contract in pyproject.toml

        write_report(self, path, data)

    @classmethod
    def load(cls: type[Classifier], path: str | Path) -> Classifier:
        """The estimator of what :meth:`save` wrote, ready to predict; that of a run folder knows its history."""
        if Path(path).is_dir():
            from .runs.fitted import load_run  # stands above, see the contract in pyproject.toml

            return load_run(cls, path)
        found = load_model(path)
        self = cls(**dataclasses.asdict(found.config))
        if isinstance(self.class_weight, dict):
            labels = {label_name(label): label for label in found.classes.tolist()}
            self.class_weight = {labels.get(name, name): weight for name, weight in self.class_weight.items()}
        self.model_, self.augmentation_, self.classes_ = found.model, found.augmentation, found.classes
        self._set_features(found.features, found.feature_names)
        self.status_, self.config_ = found.status, self._config()
        self.history_, self.seconds_, self.seed_, self.n_iter_ = [], 0.0, None, 0
        self.plan_, self.message_, self.choices_, self.times_ = (len(found.model.linears),), "", (), {}
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _check_fitted(self) -> None:
        if not hasattr(self, "model_"):
            from sklearn.utils.validation import check_is_fitted

            check_is_fitted(self, "model_")

    def _seed(self) -> int:
        seed = self.random_state
        if not isinstance(seed, (int, np.integer)):
            from sklearn.utils import check_random_state

            seed = check_random_state(seed).randint(2**31)
        if not 0 <= seed < 2**62:
            raise InputError(f"random_state must be between 0 and 2^62, got {seed}")
        return int(seed)

    def _config(self) -> ModelConfig:
        settings = {item.name: getattr(self, item.name) for item in dataclasses.fields(ModelConfig)}
        return ModelConfig.from_settings(settings).resolved()

    def _problem(
        self,
        X: Graph | ArrayLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | Tensor | None,
        config: ModelConfig,
        seed: int,
        start: WarmStart | None,
    ) -> Problem:
        """What is to be trained. Sets ``n_features_in_`` and ``feature_names_in_``."""
        if isinstance(X, Graph):
            fitted = None if start is None else start.fitted_to(X.x.shape[1])
            problem = prepare_graph(X, config, seed=seed, sample_weight=sample_weight, fitted=fitted)
            self._set_features(X.x.shape[1], X.get("feature_names"))
            return problem
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import check_consistent_length, validate_data

        labels: Any = probabilities_of(y)
        if labels is None:
            features, labels = validate_data(self, X, y, dtype=np.float32)
            check_classification_targets(labels)
        else:
            features = validate_data(self, X, dtype=np.float32)
            check_consistent_length(features, labels)
        return prepare_rows(as_tensor(features, "X must be numbers"), labels, config, sample_weight)

    def _given(self, X: Any, edge_index: Any, edge_weight: Any) -> Any:
        """A graph where there are edges, or a table for a model of a graph; else what was given."""
        alone = is_table(X) and getattr(self, "augmentation_", None) is not None
        if edge_index is not None or is_graph(X) or alone:
            return as_graph(X, None, edge_index, edge_weight=edge_weight)
        return X

    def _set_features(self, number: int, names: Sequence[str] | NDArray[Any] | None) -> None:
        """As scikit-learn's ``validate_data`` does of a matrix: there are names, or there is no such attribute."""
        self.n_features_in_ = number
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    @torch.no_grad()
    def _logits(self, X: Graph | ArrayLike, nodes: ArrayLike | Tensor | None = None) -> Tensor:
        self._check_fitted()
        device = checked_device(self.device)
        if not isinstance(X, Graph) and self.augmentation_ is None:
            if nodes is not None:
                raise InputError("nodes are of a graph: select the rows of a matrix yourself")
            from sklearn.utils.validation import validate_data

            rows = as_tensor(validate_data(self, X, dtype=np.float32, reset=False), "X must be numbers")
            return finite(self._outputs(device, rows))
        data = self._checked(X)
        index = None if nodes is None else node_numbers(nodes, data.num_nodes)
        if isinstance(self.model_, GCN):
            assert self.augmentation_ is not None
            logits = self._outputs(device, *whole_graph(data, self.augmentation_, device))
            return finite(logits if index is None else logits[index], index)
        fitted = self.augmentation_ or GraphAugment("none", row_normalize=False, normalize="none")
        chunks = fitted.chunks(data, index, PREDICT_BYTES)
        return finite(torch.cat([self._outputs(device, rows) for rows in chunks]), index)

    def _outputs(self, device: torch.device, *inputs: Tensor) -> Tensor:
        """What the network makes of its input, on this device."""
        try:
            logits: Tensor = self.model_.to(device)(*(x.to(device) for x in inputs)).cpu()
            return logits
        finally:
            self.model_.cpu()

    def _checked(self, X: Graph | ArrayLike) -> Graph:
        """A graph that the model can be asked about."""
        if not isinstance(X, Graph):
            raise InputError("this model was fitted on a graph: pass a graph, or edges with the matrix")
        data = arranged(check_graph(X), getattr(self, "feature_names_in_", None))
        if data.x.shape[1] != self.n_features_in_:
            raise InputError(f"data has {data.x.shape[1]} features, the model was trained with {self.n_features_in_}")
        if self.config_.needs_graph:
            require_edges(data, f"method {self.config_.method} needs it")
        elif self.augmentation_ is not None and self.augmentation_.mode != "none":
            require_edges(data)
        return data


def _with_parameters(docstring: str) -> str:
    """The docstring of the estimator with a list of its parameters, from what the settings say of themselves."""
    texts = {item.name: described(item) for item in dataclasses.fields(ModelConfig)}
    texts["verbose"] = "show what is being done, on standard error [default: in a notebook]"
    texts["random_state"] = "seed of the initial weights, or a source of seeds [default: another one each time]"
    lines = [
        textwrap.fill(f"{name}: {text}", 120, initial_indent=" " * 4, subsequent_indent=" " * 8)
        for name, text in texts.items()
    ]
    # Since Python 3.13 it comes without the indentation of the source; before, with it.
    return inspect.cleandoc(docstring).replace("Attributes:\n", "\n".join(["Args:", *lines, "", "Attributes:\n"]), 1)


# For help() and notebooks; the site has the same texts in a table.
Estimator.__doc__ = _with_parameters(Estimator.__doc__ or "")


def _are_labels(y: Any, data: Graph) -> bool:
    """Are they not a choice of nodes, but a label for every node of the graph?"""
    given = as_tensor(y, "mask must be booleans or a list of node indices").cpu()
    return given.dtype != torch.bool and given.shape == data.y.shape and bool((given == data.y).all())


def warm_start(init: Estimator | GAMLP | str | Path | None) -> WarmStart | None:
    """What ``fit(init=...)`` starts from."""
    if isinstance(init, (str, Path)):
        init = Estimator.load(Path(init) / "model.safetensors" if Path(init).is_dir() else init)
    if init is None or isinstance(init, GAMLP):
        return None if init is None else WarmStart(init)
    if not isinstance(init, Estimator):
        raise InputError(f"init must be an estimator, a network or the path of one, got {type(init).__name__}")
    init._check_fitted()
    names = getattr(init, "feature_names_in_", None)
    return WarmStart(init.model_, init.config_, init.augmentation_, init.classes_, init.n_features_in_, names)
