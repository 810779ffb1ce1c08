"""What all estimators share: parameters, training on graphs and on plain feature matrices, outputs, files.

They have all that the commands need without scikit-learn, which takes a second to import: what needs it imports it.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from .config import ModelConfig, Settings, TargetKind, label_name, option
from .data.adapters import as_graph, edges_apart, is_graph
from .data.augmentation import GraphAugment, whole_graph
from .data.checks import (
    as_mask,
    as_tensor,
    check_graph,
    labelled,
    missing_label,
    node_name,
    node_numbers,
    require_edges,
    require_y,
)
from .data.column_file import PREDICT_BYTES
from .data.columns import is_table
from .data.feature_names import arranged
from .data.graph import Graph
from .data.splits import one_split, unseen_nodes
from .data.targets import asked, has_columns, target_of
from .engine.team import Team
from .errors import InputError
from .model import GAMLP, GCN, finite
from .status import Status
from .training.calibration import calibrate, check_calibration
from .training.checkpoint import Checkpointing
from .training.fit import fit, kept
from .training.model_file import TrainedModel, load_model, save_model
from .training.prepare import prepare_graph, prepare_rows
from .training.problem import Problem
from .training.progress import Progress, in_notebook
from .training.records import Callback, OnEpoch, Record
from .training.refit import refit
from .training.warm_start import WarmStart
from .utils import Tasks, checked_device, run_tasks, task

AnyEstimator = TypeVar("AnyEstimator", bound="Estimator")
#: Rows, what they should become, the kind of that, and what its columns are called.
RowTargets = tuple[Any, NDArray[Any] | Tensor, TargetKind, NDArray[Any] | None]


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class Parameters(Settings):
    """The parameters of an estimator: the settings of the model, and what only Python has."""

    verbose: bool | None = option(None, "show what is being done, on standard error [default: in a notebook]")
    random_state: int | np.random.RandomState | None = option(  # noqa: RUF009 (a field)
        None, "seed of the initial weights, or a source of seeds [default: another one each time]"
    )


class Estimator(Parameters, ABC):
    """What classifiers and regressors share: parameters, training, the network's outputs, files."""

    #: The kinds of target that it learns.
    _targets: ClassVar[tuple[str, ...]]

    model_: GAMLP
    history_: list[Record]
    status_: Status
    message_: str
    outputs_: NDArray[Any]
    augmentation_: GraphAugment | None
    n_features_in_: int
    feature_names_in_: NDArray[Any]
    seconds_: float
    plan_: tuple[int, ...]
    config_: ModelConfig
    choices_: tuple[str, ...]
    times_: dict[str, float]
    seed_: int | None

    def fit(
        self: AnyEstimator,
        X: Any,
        y: ArrayLike | None = None,
        edge_index: Any = None,
        *,
        edge_weight: Any = None,
        sample_weight: ArrayLike | Tensor | None = None,
        on_epoch: OnEpoch | None = None,
        init: Estimator | GAMLP | str | Path | None = None,
    ) -> AnyEstimator:
        """Train on the training nodes of a graph, or on all rows of a feature matrix.

        Args:
            X: A graph with labels, or features with edges beside them, see :func:`~pdadmm_g.data.adapters.as_graph`; or
                a feature matrix.
            y: The labels of features, or (rows, classes) their probabilities; or a column for each of several labels
                (0 and 1) or numbers. On a graph -1, None, NaN or "" is a node without label, and a row of NaN where
                there are columns.
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
            target = self._config().asked_target
            X, y = as_graph(X, y, edge_index, edge_weight=edge_weight, target=target), None
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
        self: AnyEstimator,
        X: Graph | ArrayLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | Tensor | None = None,
        *,
        on_epoch: OnEpoch | None = None,
        checkpointing: Checkpointing | None = None,
        team: Team | None = None,
        start: WarmStart | None = None,
    ) -> AnyEstimator:
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
        with self._features_before(), run_tasks() as tasks:
            if isinstance(X, Graph):
                X = self._graph_to_learn(X, start)
            problem = self._problem(X, y, sample_weight, config, seed, start)
            check_calibration(problem)
            if start is not None:
                start.check(problem)
            problem = problem.decided(seed, team)
            reasons = problem.reasons if checkpointing is None else checkpointing.explained(problem.reasons)
            listener = Callback(on_epoch)
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
        self.outputs_, self.augmentation_, self.config_ = problem.classes, problem.augmentation, problem.config
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

    def _nodes_to_score(
        self, X: Any, y: Any, edge_index: Any = None, edge_weight: Any = None
    ) -> tuple[Graph, Tensor] | None:
        """The graph and the nodes that a model is scored on, all of which have labels; None for rows of a matrix.

        For a graph, which has its labels, ``y`` is a choice of nodes; by default they are its test nodes, or else the
        labelled nodes that neither train nor validate by its masks. Where edges are given beside features, ``y`` are
        the labels.
        """
        y, edge_index = edges_apart(y, edge_index)
        labels_given = edge_index is not None and y is not None
        if labels_given:
            X, y = as_graph(X, y, edge_index, edge_weight=edge_weight, target=self._fitted_target()), None
        elif y is None or is_graph(X):
            X = self._given(X, edge_index, edge_weight)
        if not isinstance(X, Graph):
            return None
        data, _ = one_split(check_graph(X), self.split)
        require_y(data)
        if y is not None and _are_labels(y, data):
            remedy = "write score(data) for the test nodes, score(data, data.val_mask) for others"
            raise InputError(f"y are the labels of the graph, which it has already: {remedy}")
        mask = unseen_nodes(data, labels_given=labels_given) if y is None else as_mask(y, data.num_nodes, "mask")
        nodes = mask.nonzero().view(-1)
        if not len(nodes):
            raise InputError("mask is empty: no node to score")
        without = nodes[~labelled(data)[nodes]]
        if len(without):
            first = node_name(data, int(without[0]))
            raise InputError(f"data: node {first} has no label ({missing_label(data)}) to score against")
        return data, nodes

    def save(self, path: str | Path, data: Any = None, edge_index: Any = None, *, edge_weight: Any = None) -> None:
        """Write the fitted model, from which :meth:`load` restores the estimator.

        Args:
            path: With a suffix, one safetensors file of the model alone. Without, or where it is a folder, a run folder
                as ``pdadmm-g train`` writes it, with the history of training, for ``pdadmm-g evaluate``, ``predict``,
                ``export`` and ``report``. What was saved there before is replaced.
            data: A graph, given as to :meth:`predict`, whose accuracies and confusion matrix the summary of a run
                folder is to have: on the nodes that its masks name, or on those that were drawn of it in training.
            edge_index: Its edges, where they are apart, e.g. in a table.
            edge_weight: What each of these weighs.
        """
        self._check_fitted()
        if not Path(path).suffix or Path(path).is_dir():
            from .runs.fitted import save_run  # stands above, see the contract in pyproject.toml

            save_run(self, path, self._given(data, edge_index, edge_weight))
            return
        if data is not None:
            raise InputError(f"{path}: a model file has no place for accuracies: give the name of a folder")
        names = getattr(self, "feature_names_in_", None)
        trained = (self.model_, self.config_, self.augmentation_, self.outputs_, self.n_features_in_, names)
        save_model(path, TrainedModel(*trained, self.status_))

    def report(self, path: str | Path, data: Any = None, edge_index: Any = None, *, edge_weight: Any = None) -> None:
        """Write the page of ``pdadmm-g report`` on the training of this estimator.

        Args:
            path: The HTML file.
            data: A graph whose accuracies and confusion matrix the page is to show, as for :meth:`save`.
            edge_index: Its edges, where they are apart, e.g. in a table.
            edge_weight: What each of these weighs.
        """
        self._check_fitted()
        from .report.fitted import write_report  # stands above, see the contract in pyproject.toml

        write_report(self, path, self._given(data, edge_index, edge_weight))

    @classmethod
    def load(cls: type[AnyEstimator], path: str | Path) -> AnyEstimator:
        """The estimator of what :meth:`save` wrote, ready to predict; that of a run folder knows its history."""
        if Path(path).is_dir():
            from .runs.fitted import load_run  # stands above, see the contract in pyproject.toml

            return load_run(cls, path)
        found = load_model(path)
        if found.config.target not in cls._targets:
            other = "GAMLPRegressor" if found.config.target == "regression" else "GAMLPClassifier"
            raise InputError(f"{path}: is a model for {found.config.target}: load it with {other}")
        return cls.of(found)

    @classmethod
    def of(cls: type[AnyEstimator], found: TrainedModel) -> AnyEstimator:
        """The estimator of what a model file holds."""
        self = cls(**parameters(found.config))
        if isinstance(self.class_weight, dict):
            labels = {label_name(label): label for label in found.classes.tolist()}
            self.class_weight = {labels.get(name, name): weight for name, weight in self.class_weight.items()}
        self.model_, self.augmentation_, self.outputs_ = found.model, found.augmentation, found.classes
        self._set_features(found.features, found.feature_names)
        self.status_, self.config_ = found.status, self._config().resolved(found.config.target)
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
        names = [item.name for item in dataclasses.fields(ModelConfig) if item.name != "target"]
        settings = {name: getattr(self, name) for name in names}
        if len(self._targets) == 1:
            settings["target"] = self._targets[0]
        return ModelConfig(**settings).resolved()

    def _fitted_target(self) -> TargetKind:
        self._check_fitted()
        return self.config_.target

    def _graph_to_learn(self, X: Graph, start: WarmStart | None) -> Graph:
        """The checked graph, whose targets are of a kind that this estimator, and what it starts from, is for."""
        data = arranged(check_graph(X), None if start is None else start.feature_names, "init")
        target = target_of(data)
        if target not in self._targets:
            other = "GAMLPRegressor" if target == "regression" else "GAMLPClassifier"
            raise InputError(f"the graph is for {target}: take {other}")
        if start is not None and data.y is not None:
            start.check_target(target)
        return data

    @abstractmethod
    def _targets_of_rows(self, X: Any, y: Any, target: TargetKind) -> RowTargets:
        """The checked rows of a matrix and what they should become. Sets ``n_features_in_`` and the like."""

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
        features, labels, target, names = self._targets_of_rows(X, y, config.asked_target)
        config = config.resolved(target)
        problem = prepare_rows(as_tensor(features, "X must be numbers"), labels, config, sample_weight)
        return problem if names is None else dataclasses.replace(problem, classes=names)

    def _given(self, X: Any, edge_index: Any, edge_weight: Any) -> Any:
        """A graph where there are edges, or a table for a model of a graph; else what was given."""
        alone = is_table(X) and getattr(self, "augmentation_", None) is not None
        if edge_index is not None or is_graph(X) or alone:
            return as_graph(X, None, edge_index, edge_weight=edge_weight, target=self._fitted_target())
        return X

    def _set_features(self, number: int, names: Sequence[str] | NDArray[Any] | None) -> None:
        """As scikit-learn's ``validate_data`` does of a matrix: there are names, or there is no such attribute."""
        self.n_features_in_ = number
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    @contextmanager
    def _features_before(self) -> Iterator[None]:
        """What is known of the features is that of an earlier model again, if within this anything fails."""
        names = ("n_features_in_", "feature_names_in_")
        before = {name: getattr(self, name) for name in names if hasattr(self, name)}
        try:
            yield
        except BaseException:
            for name in names:
                vars(self).pop(name, None)
            vars(self).update(before)
            raise

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
        # Not a comprehension, which would hold a chunk until the next one is there.
        return finite(torch.cat(list(map(functools.partial(self._outputs, device), chunks))), index)

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
        data = asked(copy.copy(X), self.config_.target)  # whatever labels it has, they are of this kind
        data = arranged(check_graph(data), getattr(self, "feature_names_in_", None))
        if data.x.shape[1] != self.n_features_in_:
            raise InputError(f"data has {data.x.shape[1]} features, the model was trained with {self.n_features_in_}")
        if self.config_.needs_graph:
            require_edges(data, f"method {self.config_.method} needs it")
        elif self.augmentation_ is not None and self.augmentation_.mode != "none":
            require_edges(data)
        return data


def parameters(config: ModelConfig) -> dict[str, Any]:
    """The settings as an estimator takes them: the kind of target is said by its class, or by the risk."""
    settings = {item.name: getattr(config, item.name) for item in dataclasses.fields(ModelConfig)}
    if settings.pop("target") == "multilabel":
        settings["risk"] = "logistic"
    return settings


def _are_labels(y: Any, data: Graph) -> bool:
    """Are they not a choice of nodes, but a label for every node of the graph?"""
    given = as_tensor(y, "mask must be booleans or a list of node indices").cpu()
    if has_columns(data):
        return given.is_floating_point() or given.ndim == 2
    return given.dtype != torch.bool and given.shape == data.y.shape and bool((given == data.y).all())


def warm_start(init: Estimator | GAMLP | str | Path | None) -> WarmStart | None:
    """What ``fit(init=...)`` starts from."""
    if init is None or isinstance(init, GAMLP):
        return None if init is None else WarmStart(init)
    if isinstance(init, (str, Path)):
        found = load_model(Path(init) / "model.safetensors" if Path(init).is_dir() else init)
        known = (found.augmentation, found.classes, found.features, found.feature_names)
        return WarmStart(found.model, found.config.resolved(), *known)
    if not isinstance(init, Estimator):
        raise InputError(f"init must be an estimator, a network or the path of one, got {type(init).__name__}")
    init._check_fitted()
    names = getattr(init, "feature_names_in_", None)
    return WarmStart(init.model_, init.config_, init.augmentation_, init.outputs_, init.n_features_in_, names)
