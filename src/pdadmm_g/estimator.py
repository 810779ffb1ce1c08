"""The estimators, as scikit-learn has them: of classes, of numbers, and of the nodes of one graph as samples."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
from torch import Tensor

from .config import ModelConfig, Settings, TargetKind, described, label_name, option
from .engine.team import Team
from .errors import InputError
from .graph.augmentation import GraphAugment
from .graph.checks import check_graph, require_edges
from .graph.columns import Column, feature_names, standardized
from .graph.examples import Split, one_split, unseen_nodes, with_parts
from .graph.graph import (
    MASKS,
    Graph,
    arranged,
    as_mask,
    as_tensor,
    id_order,
    natural,
    node_name,
    node_numbers,
    reordered,
)
from .graph.parts import part_of
from .graph.readers import as_graph, edges_apart, graph_alone, ids_of, is_graph, is_table, labels_of
from .graph.tables import DEGREE, with_columns, with_values
from .graph.targets import (
    asked,
    check_kind,
    checked_columns,
    columns_of,
    has_columns,
    labelled,
    missing_label,
    probabilities_of,
    require_y,
    target_of,
)
from .metrics import OUT_OF_FOLD, Estimate, estimate
from .model import GAMLP, decisions, finite, outputs
from .status import Status
from .training.checkpoint import Checkpointing
from .training.finish import (
    Calibration,
    TrainedModel,
    calibration,
    delivered,
    load_model,
    recalled,
    refit,
    remember,
    save_model,
    take_columns,
)
from .training.fit import called, fit
from .training.prepare import Problem, WarmStart, prepare_graph, prepare_rows, with_weights
from .training.progress import Progress, in_notebook
from .training.records import Callback, OnEpoch, Record
from .utils import Tasks, checked_device, run_tasks, task

if TYPE_CHECKING:
    import pandas as pd

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


class Estimator(Parameters, BaseEstimator):
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
    columns_: tuple[Column, ...] | None
    plan_: tuple[int, ...]
    config_: ModelConfig
    choices_: tuple[str, ...]
    times_: dict[str, float]
    seed_: int | None
    nodes_: Split | None
    estimate_: Estimate | None
    importance_: pd.DataFrame | None = None
    #: The keys of the nodes that trained, and what was said of them out of fold; None where that is not known.
    _out_of_fold: tuple[NDArray[np.int64], NDArray[np.float64]] | None = None

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
            X: A graph with labels, or features with edges beside them, see :func:`~pdadmm_g.graph.readers.as_graph`; or
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
        config, nodes = self._config(), X
        X, y = given_data(X, y, edge_index, edge_weight, config.asked_target, config.columns)
        if isinstance(X, Graph) and is_table(nodes) and hasattr(sample_weight, "reindex"):
            from .graph.tables import aligned

            sample_weight = aligned(X, nodes, sample_weight, "sample_weight").fillna(1)
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
        config = config.but(device=str(checked_device(config.device)))
        given, seed = config, self._seed()
        given_names: tuple[str, ...] | None = None
        known = None if start is None else start.known
        if checkpointing is not None:
            config = checkpointing.decided(config)
        if start is not None:
            config = start.decided(config)
        goes_on = checkpointing is not None and checkpointing.resume is not None
        with self._features_before(), run_tasks() as tasks:
            if isinstance(X, Graph):
                fitted = None if known is None else known.augmentation
                columns = config.columns if known is None or fitted is None else known.columns or ()
                X = with_columns(X, columns) if fitted is not None else with_values(with_columns(X, columns))
                X = arranged(check_graph(X), None if known is None else known.feature_names, "init")
                target = target_of(X)
                if target not in self._targets:
                    other = "GAMLPRegressor" if target == "regression" else "GAMLPClassifier"
                    raise InputError(f"the graph is for {target}: take {other}")
                if start is not None and X.y is not None:
                    start.check_target(target)
                given_names = X.get("feature_names")
                if X.get("columns"):  # of a folder of shards they stand in the order of training
                    given_names = tuple(feature_names(X.columns))
                if start is None and given_names is not None:
                    X = arranged(X, sorted(given_names, key=natural))
                if sample_weight is not None:
                    X = with_weights(X, config, sample_weight, seed=seed)
                X = reordered(X, id_order(X))
            problem = self._problem(X, y, sample_weight, config, seed, known, decided=goes_on, team=team)
            if checkpointing is not None and checkpointing.every is not None and isinstance(X, Graph):
                if goes_on:
                    problem = recalled(checkpointing.folder, problem)
                elif team is None or team.rank == 0:
                    remember(checkpointing.folder, problem, X.x.shape[1])
            can_calibrate = problem.validation is not None or problem.evidence.asked is not None
            calibrates = config.calibrate
            if calibrates is None:
                calibrates = can_calibrate and problem.config.target == "classification"
            if calibrates and not can_calibrate:
                remedy = "give the graph a val_mask, or for a matrix use scikit-learn's CalibratedClassifierCV"
                raise InputError(f"calibrate needs validation nodes: {remedy}")
            if start is not None:
                start.check(problem)
            problem = problem.decided(team)
            reasons = problem.reasons if checkpointing is None else checkpointing.explained(problem.reasons)
            listener = Callback(on_epoch)
            model = None if start is None or len(start.model.linears) == 1 else start.model
            with task("training"):
                result = fit(problem, seed=seed, on_epoch=listener, checkpointing=checkpointing, team=team, start=model)
            problem, result, choices = delivered(problem, result, reasons)
            ended = not result.status.is_failure and result.status is not Status.INTERRUPTED
            s, found, crossed = Calibration(), None, None
            try:
                if calibrates and not result.status.is_failure:
                    s, why = calibration(result.model, problem)
                    choices += (why,)
                    s.apply(result.model)
                found = _estimated(result.model, problem, s)
                crossed = _crossed(problem, s)
                if config.refit and problem.validation is not None and ended:
                    assert isinstance(X, Graph)
                    first = result
                    with task("training on all labels"):
                        problem, result, why = refit(X, problem, result, given, seed=seed, team=team)
                    choices += (why,)
                    if result is not first:
                        s.apply(result.model)
            except KeyboardInterrupt:
                result.status = Status.INTERRUPTED  # with the model that training gave
            called(team)
            self.times_ = tasks.times()
        # Not before: where training fails, an earlier model and all that belongs to it stay together.
        self.outputs_, self.augmentation_, self.config_ = problem.classes, problem.augmentation, problem.config
        self.choices_, self.nodes_, self.estimate_ = choices, problem.nodes, found
        self.importance_, self._out_of_fold = None, crossed
        self.model_ = result.model.cpu().eval()
        if isinstance(X, Graph) and given_names is not None and X.feature_names != given_names:
            assert self.augmentation_ is not None
            take_columns(self.model_, self.augmentation_, [X.feature_names.index(name) for name in given_names])
            self._set_features(len(given_names), given_names)
        self.history_ = result.history
        self.status_ = result.status
        self.message_ = result.message
        self.plan_ = result.plan.counts
        self.seed_ = seed
        listener.raise_error()
        return self

    def _nodes_to_score(
        self, X: Any, y: Any, edge_index: Any = None, edge_weight: Any = None
    ) -> tuple[Graph, Tensor] | None:
        """The graph and the nodes that a model is scored on, all of which have labels; None for rows of a matrix.

        For a graph, which has its labels, ``y`` is a choice of nodes; by default they are its test nodes, or else the
        labelled nodes that neither train nor validate by its masks or by their ids. Where edges are given beside
        features, ``y`` are the labels.
        """
        y, edge_index = edges_apart(X, y, edge_index)
        labels_given = edge_index is not None and y is not None
        if labels_given or y is None or is_graph(X):
            X, y = self._given(X, edge_index, edge_weight, y if labels_given else None), None if labels_given else y
        if not isinstance(X, Graph):
            return None
        data, _ = one_split(check_graph(X), self.split)
        require_y(data)
        if y is not None and _are_labels(y, data):
            remedy = "write score(data) for the test nodes, score(data, data.val_mask) for others"
            raise InputError(f"y are the labels of the graph, which it has already: {remedy}")
        if data.get("ids") is not None and not labels_given:
            data = with_parts(data, self.config_, self.nodes_)
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
                folder is to have: on the nodes that its masks name, or else on those that trained, those that
                validated, and, as test nodes, those with ids whose labels came later.
            edge_index: Its edges, where they are apart, e.g. in a table.
            edge_weight: What each of these weighs.
        """
        check_is_fitted(self)
        if not Path(path).suffix or Path(path).is_dir():
            from .runs.run import save_run  # stands above, see the contract in pyproject.toml

            save_run(self, path, self._given(data, edge_index, edge_weight))
            return
        if data is not None:
            raise InputError(f"{path}: a model file has no place for accuracies: give the name of a folder")
        save_model(path, self._trained())

    def report(self, path: str | Path, data: Any = None, edge_index: Any = None, *, edge_weight: Any = None) -> None:
        """Write the page of ``pdadmm-g report`` on the training of this estimator.

        Args:
            path: The HTML file.
            data: A graph whose accuracies and confusion matrix the page is to show, as for :meth:`save`.
            edge_index: Its edges, where they are apart, e.g. in a table.
            edge_weight: What each of these weighs.
        """
        check_is_fitted(self)
        from .report.page import write_report  # stands above, see the contract in pyproject.toml

        write_report(self, path, self._given(data, edge_index, edge_weight))

    def importance(
        self,
        X: Any,
        edge_index: Any = None,
        *,
        edge_weight: Any = None,
        nodes: ArrayLike | Tensor | None = None,
        repeats: int = 5,
        random_state: int = 0,
    ) -> pd.DataFrame:
        """What each column is worth, a node's own and those of its neighbours, and what the graph is worth.

        The values of a column are exchanged at random between nodes, of the nodes that are scored themselves (``own``)
        or of all others (``neighbours``); what the score loses by it is the column's importance. All features that were
        made of one column of a table go together. Of more than 30 columns, those to which the network listens most.
        ``the graph`` is the difference to a model that was trained again on the same nodes by their own columns alone;
        where the scored nodes trained, that of what is expected of the two out of fold (``estimate_``), if it is known.

        Args:
            X: A graph with labels, given as to :meth:`predict`.
            edge_index: Its edges, where they are apart.
            edge_weight: What each of them weighs.
            nodes: The nodes that are scored, indices or a mask [default: test nodes, else validation nodes, else
                training nodes; at most 500, drawn at random].
            repeats: How often values are exchanged.
            random_state: The seed of these exchanges, and of training without the graph.

        Returns:
            A pandas table with ``column``, ``whose``, ``lost`` (the mean over the repeats) and ``spread`` (their
            standard deviation). ``attrs`` has the ``figure``, its ``score`` with nothing exchanged, and the number of
            ``nodes`` and which they are (``on``); ``out_of_fold`` is what ``the graph`` is compared with, where that is
            another score. :meth:`report` and :meth:`save` of a run folder take it along.
        """
        check_is_fitted(self)
        from .explanation import importance  # stands above, see the contract in pyproject.toml

        data = self._graph_of(X, edge_index, edge_weight)
        self.importance_ = importance(self, data, nodes, repeats, random_state)
        return self.importance_

    def explain(
        self, X: Any, node: Any, edge_index: Any = None, *, edge_weight: Any = None, most: int = 12
    ) -> pd.DataFrame:
        """The columns and neighbours that moved the prediction of one node most.

        A column is replaced by its mean over all nodes, of the node itself (``own``) or of all others (``neighbours``);
        the edges to a ``neighbour`` are taken away. At most 50 neighbours are looked at.

        Args:
            X: A graph, given as to :meth:`predict`.
            node: Its id, or its number where nodes have no ids.
            edge_index: The edges of the graph, where they are apart.
            edge_weight: What each of them weighs.
            most: As many rows at the most.

        Returns:
            A pandas table with ``name``, ``kind``, ``value`` (of the column, or the known label of the neighbour),
            ``without`` (the probability of the predicted label, or the number, without it) and ``moved`` (by how much
            the log-odds of the label, or the number, would be lower). ``attrs`` has the ``node``, its ``label``, and
            what is ``said`` of it: the probability, or the number.
        """
        check_is_fitted(self)
        from .explanation import explain  # stands above, see the contract in pyproject.toml

        return explain(self, self._graph_of(X, edge_index, edge_weight), node, most)

    def _graph_of(self, X: Any, edge_index: Any, edge_weight: Any) -> Graph:
        data = self._given(X, edge_index, edge_weight)
        if not isinstance(data, Graph):
            raise InputError("explanations are of a graph: of rows of a matrix, scikit-learn's permutation_importance")
        return data

    @classmethod
    def load(cls: type[AnyEstimator], path: str | Path) -> AnyEstimator:
        """The estimator of what :meth:`save` wrote, ready to predict; that of a run folder knows its history."""
        if Path(path).is_dir():
            from .runs.run import load_run  # stands above, see the contract in pyproject.toml

            return load_run(cls, path)
        found = load_model(path)
        if found.config.target not in cls._targets:
            other = kind_for(found.config).__name__
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
        self.columns_ = found.columns
        self.status_, self.config_ = found.status, self._config().resolved(found.config.target)
        self.history_, self.seed_, self.nodes_, self.estimate_ = [], None, found.nodes, None
        self.plan_, self.message_, self.choices_, self.times_ = (len(found.model.linears),), "", (), {}
        return self

    def _trained(self) -> TrainedModel:
        """What a model file holds."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        known = (self.config_, self.augmentation_, self.outputs_, self.n_features_in_, names)
        return TrainedModel(self.model_, *known, self.status_, self.nodes_, self.columns_)

    @property
    def n_iter_(self) -> int:
        """The number of epochs."""
        return len(self.history_)

    @property
    def seconds_(self) -> float:
        """Training time, evaluation not counted."""
        return float(sum(record["seconds"] for record in self.history_))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _seed(self) -> int:
        seed = self.random_state
        if not isinstance(seed, (int, np.integer)):  # nor are seeds of more than 32 bits scikit-learn's
            seed = check_random_state(seed).randint(2**31)
        if not 0 <= seed < 2**62:
            raise InputError(f"random_state must be between 0 and 2^62, got {seed}")
        return int(seed)

    def _config(self) -> ModelConfig:
        settings = {item.name: getattr(self, item.name) for item in dataclasses.fields(Settings)}
        return ModelConfig(**settings, target="regression" if self._targets == ("regression",) else "auto").resolved()

    def _fitted_target(self) -> TargetKind:
        check_is_fitted(self)
        return self.config_.target

    def _targets_of_rows(self, X: Any, y: Any, target: TargetKind) -> RowTargets:
        """The checked rows of a matrix and what they should become. Sets ``n_features_in_`` and the like."""
        raise NotImplementedError

    def _problem(
        self,
        X: Graph | ArrayLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | Tensor | None,
        config: ModelConfig,
        seed: int,
        known: TrainedModel | None = None,
        *,
        decided: bool = False,
        team: Team | None = None,
    ) -> Problem:
        """What is to be trained, from what is ``known`` already. Sets ``n_features_in_`` and ``feature_names_in_``."""
        if isinstance(X, Graph):
            fitted, nodes = (None, None) if known is None else (known.augmentation, known.nodes)
            number = X.x.shape[1]
            if known is not None and fitted is not None and known.features != number:
                raise InputError(f"data has {number} features, init was trained with {known.features}")
            problem = prepare_graph(X, config, seed=seed, fitted=fitted, known=nodes, decided=decided, team=team)
            self._set_features(number, X.get("feature_names"))
            self.columns_ = X.get("columns")
            return problem
        self.columns_ = None
        features, labels, target, names = self._targets_of_rows(X, y, config.asked_target)
        rows = as_tensor(features, "X must be numbers")
        problem = prepare_rows(rows, labels, config.resolved(target), sample_weight)
        return problem if names is None else dataclasses.replace(problem, classes=names)

    def _given(self, X: Any, edge_index: Any, edge_weight: Any, y: Any = None) -> Any:
        """A graph where there are edges, or a table for a model of a graph; else what was given."""
        alone = is_table(X) and getattr(self, "augmentation_", None) is not None
        if edge_index is not None or is_graph(X) or alone:
            target, columns = self._fitted_target(), self.columns_ or ()
            return as_graph(X, y, edge_index, edge_weight=edge_weight, target=target, columns=columns)
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
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    def _logits_of(self, X: Any, nodes: Any, edge_index: Any, edge_weight: Any) -> Tensor:
        """What :meth:`predict` is asked for, a table of edges perhaps in the place of ``nodes``."""
        nodes, edge_index = edges_apart(X, nodes, edge_index)
        return self._logits(self._given(X, edge_index, edge_weight), nodes)

    def predict(
        self, X: Any, nodes: ArrayLike | Tensor | None = None, *, edge_index: Any = None, edge_weight: Any = None
    ) -> NDArray[Any]:
        """The most probable label of every row, or of ``nodes`` (indices or a mask, all by default) of a graph.

        Where a row may have several labels, a row of 0 and 1 each: 1 where a label is more probable than not. Of
        numbers the number of every row, or a row of several. The graph is given as to :meth:`fit`. It may be another
        one, with new nodes and edges; it needs neither targets nor masks. A table of edges may stand in the place of
        ``nodes``.
        """
        return self._decided(self._logits_of(X, nodes, edge_index, edge_weight))

    def _decided(self, logits: Tensor) -> NDArray[Any]:
        if self.config_.target == "regression":
            # scikit-learn wants several numbers in double precision, and compares by the precision that it gets.
            return (logits[:, 0] if logits.shape[1] == 1 else logits.double()).numpy()
        found = decisions(logits, self.config_.target).numpy()
        return found if self.config_.target == "multilabel" else self.outputs_[found]

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        edge_index: Any = None,
        edge_weight: Any = None,
    ) -> float:
        r"""Accuracy; of several labels a row, the share of rows with all of them right; of numbers :math:`R^2`.

        For a graph, which has its labels, ``y`` is the mask (or indices) of the nodes to score. By default these are
        its test nodes; where nothing says which these are, the labelled nodes that neither train nor validate by its
        masks or, of nodes with ids, did so in training. Where edges are given beside features, ``y`` are the labels,
        and nodes without one are not scored; without masks, all others are, whoever trained.
        """
        found = self._nodes_to_score(X, y, edge_index, edge_weight)
        target, nodes = self._fitted_target(), None
        if found is not None:
            X, nodes = found
            y = X.y[nodes].numpy()
            if target == "classification":
                y = labels_of(X)[nodes.numpy()]
                check_kind(y, self.outputs_)
        elif target == "multilabel":
            columns = columns_of(y, target, "y")
            assert columns is not None
            y = checked_columns(columns[0], target, len(columns[0]), "y").numpy()
        elif target == "classification" and (soft := probabilities_of(y)) is not None:
            y = soft.argmax(1).numpy()
        figure = r2_score if target == "regression" else accuracy_score
        return float(figure(y, self.predict(X, nodes), sample_weight=sample_weight))

    def predictions(
        self, X: Any, edge_index: Any = None, *, edge_weight: Any = None, probabilities: bool = False
    ) -> dict[str, NDArray[Any]]:
        """Columns of predictions for every node of a graph, as for a pandas table; the first, ``node``, has their ids.

        Of classes ``label`` and ``probability``, with ``probabilities`` also a column ``probability_LABEL`` for each
        class. Of several labels a node a column of 0 and 1 for each, of numbers a column for each, called as it is;
        but one that is called ``node``, or as the probabilities of another, with ``predicted_`` before it.
        """
        data = self._given(X, edge_index, edge_weight)
        part = part_of(data) if isinstance(data, Graph) else None
        own = None if part is None else torch.arange(part.first, part.first + part.count)
        logits, target = self._logits(data), self.config_.target
        if probabilities and target == "regression":
            raise InputError("numbers have no probabilities: leave them out")
        columns = {"node": np.arange(len(logits)) if own is None else ids_of(check_graph(data))[own.numpy()]}
        each = outputs(logits, target).numpy()
        if target == "classification":
            columns |= {"label": self._decided(logits), "probability": each.max(1)}
        else:
            found = self._decided(logits) if target == "multilabel" else each.astype(np.float64)
            names = column_names(self.outputs_, "label" if target == "multilabel" else "value")
            reserved = {"node", *(f"probability_{name}" for name in names)}
            for name, own in zip(names, found.T, strict=True):
                while name in reserved or name in columns:  # the column of ids, or of another label's probability
                    name = f"predicted_{name}"
                columns[name] = own
        if probabilities:
            columns |= {f"probability_{name}": own for name, own in zip(self.outputs_.tolist(), each.T, strict=True)}
        return columns

    @torch.no_grad()
    def _logits(self, X: Graph | ArrayLike, nodes: ArrayLike | Tensor | None = None) -> Tensor:
        """What the network says of rows, or of nodes of a graph, on all processes; by default of the nodes here."""
        check_is_fitted(self)
        if not isinstance(X, Graph) and self.augmentation_ is None:
            if nodes is not None:
                raise InputError("nodes are of a graph: select the rows of a matrix yourself")
            rows = as_tensor(validate_data(self, X, dtype=np.float32, reset=False), "X must be numbers")
            return finite(self._outputs(rows))
        data = self._checked(X)
        order = id_order(data)  # in which all sums are those of training, whatever the order of rows
        index = asked = None if nodes is None else node_numbers(nodes, data.num_nodes)
        if order is not None:
            index = order.argsort() if asked is None else order.argsort()[asked]
        fitted = self.augmentation_ or GraphAugment("none", row_normalize=False, normalize="none")
        data, part = reordered(data, order), part_of(data)
        logits = self._outputs(fitted.features(data, index))
        return finite(logits if index is None else part.together(index, logits), asked)

    def _outputs(self, rows: Tensor) -> Tensor:
        device = checked_device(self.device)
        try:
            logits: Tensor = self.model_.to(device)(rows.to(device)).cpu()
            return logits
        finally:
            self.model_.cpu()

    def _checked(self, X: Graph | ArrayLike) -> Graph:
        """A graph that the model can be asked about."""
        if not isinstance(X, Graph):
            raise InputError("this model was fitted on a graph: pass a graph, or edges with the matrix")
        data = asked(copy.copy(X), self.config_.target)  # whatever labels it has, they are of this kind
        if standardized(self.columns_) and data.get("table") is None and data.get("feature_names") is None:
            raise InputError("this model was fitted on a table, whose columns it knows by name: pass a table of them")
        asks_neighbours = self.augmentation_ is not None and self.augmentation_.asks_neighbours
        if asks_neighbours or any(column.name == DEGREE for column in self.columns_ or ()):
            require_edges(data)
        data = with_columns(data, self.columns_ or ())
        if data.get("part") is not None and standardized(self.columns_) and data.get("columns") != self.columns_:
            raise InputError(
                "data: the columns were learned of another table than those of the model: predict from tables"
            )
        data = arranged(check_graph(data), getattr(self, "feature_names_in_", None))
        if data.x.shape[1] != self.n_features_in_:
            raise InputError(f"data has {data.x.shape[1]} features, the model was trained with {self.n_features_in_}")
        return data


class GAMLPClassifier(ClassifierMixin, Estimator):
    """Deep graph-augmented MLP trained with pdADMM-G (or pdADMM-G-Q), without backpropagation.

    ``fit(graph)`` takes what :func:`~pdadmm_g.graph.datasets.load_dataset` gives, or a ``torch_geometric`` ``Data``
    with ``x``, ``edge_index``, ``y``, and masks if there are any, or a ``networkx`` or DGL graph;
    ``fit(X, y, edge_index)`` features, labels and edges, and ``fit(nodes, edges)`` two pandas tables, see
    :func:`~pdadmm_g.graph.readers.as_graph`. Where nothing says which nodes train, those with a label do; where nothing
    says which validate, these decide out of fold, or some of many are set aside (``validation``).
    ``fit(X, y)`` takes a feature matrix as it is, without a graph: scale it first (``StandardScaler``), as for any MLP.

    Where ``y`` is a matrix of 0 and 1 with a column a label, a node may have several labels, none, or all
    (multi-label): ``predict`` gives such a matrix, ``predict_proba`` the probability of each label by itself. A row of
    NaN is a node without labels.

    Labels may be probabilities: a matrix of fractions with a column for each class, whose rows sum to one. Then the
    classes are 0, 1, 2, ...; rows that validate or are scored count as of their most probable class, and a row of NaN
    is a node without label. With ``class_weight``, a row of probabilities counts as one of each class with that share
    of its weight.

    The parameters are the settings of :class:`~pdadmm_g.config.ModelConfig`, ``verbose`` and ``random_state``.

    Attributes:
        model_: The trained :class:`~pdadmm_g.model.GAMLP`, on the CPU. Its input is the augmented features.
        history_: One dict per epoch, with the keys of ``metrics.jsonl``.
        status_: How training ended, a :class:`~pdadmm_g.status.Status` with ``.advice``.
        message_: Epoch, layer and variable of a failure, e.g. ``"epoch 17, layer 4, variable z"``; else empty.
        classes_: The labels, in the order of the model's outputs; of a matrix of 0 and 1 the names of its columns.
        feature_names_in_: The names of the features; only where a table had some. In tables to predict from, the same
            columns may stand in another order.
        columns_: What the columns of a table were understood as, a :class:`~pdadmm_g.graph.columns.Column` each, by
            which new tables are read; None where there was no table.
        augmentation_: The fitted :class:`~pdadmm_g.graph.augmentation.GraphAugment`; None after ``fit(X, y)``.
        seconds_: Training time, evaluation not counted.
        plan_: The number of layers of each worker.
        config_: The settings that the model was fitted with, every default filled in.
        choices_: What was chosen by the data and why, and what of the network was kept, a sentence each.
        times_: Seconds by task: choosing features, weight decay, training, ...; they add up to those of ``fit``.
        seed_: The seed that the initial weights were drawn with; None where it is not known, after :meth:`load`.
        nodes_: Which nodes trained and which validated, by :func:`~pdadmm_g.graph.graph.node_keys`; None for a matrix.
        estimate_: How good the classes are expected to be, a :class:`~pdadmm_g.metrics.Estimate` with 90% intervals,
            from the validation nodes, or from all labels out of fold, which also chose the model; None without any, or
            for other targets.
    """

    _targets = ("classification", "multilabel")

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, in the order of the model's outputs."""
        return self.outputs_

    score = Estimator.score  # not that of the mixin

    def predict_proba(
        self, X: Any, nodes: ArrayLike | Tensor | None = None, *, edge_index: Any = None, edge_weight: Any = None
    ) -> NDArray[Any]:
        """The probability of each class, in the order of ``classes_``, for what :meth:`predict` gives labels."""
        return outputs(self._logits_of(X, nodes, edge_index, edge_weight), self.config_.target).numpy()

    def _targets_of_rows(self, X: Any, y: Any, target: TargetKind) -> RowTargets:
        columns = columns_of(y, target, "y")
        if columns is not None:
            features = validate_data(self, X, dtype=np.float32)
            check_consistent_length(features, columns[0])
            t = checked_columns(columns[0], "multilabel", len(features), "y")
            if bool(t.isnan().any()):
                raise InputError("y has rows without labels: leave them out, or give the edges of a graph")
            return features, t, "multilabel", columns[1]
        labels = probabilities_of(y)
        if labels is not None:
            features = validate_data(self, X, dtype=np.float32)
            check_consistent_length(features, labels)
            return features, labels, "classification", None
        features, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        return features, y, "classification", None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


class GAMLPRegressor(RegressorMixin, Estimator):
    """The same network for numbers: one or several a row, learned by squared error.

    ``fit`` takes what that of :class:`~pdadmm_g.GAMLPClassifier` does, with numbers for labels: one a row, or a column
    for each of several; NaN (in a table: nothing) is a node without. They are standardized for training, each column by
    its mean and deviation over the training rows, and predictions are in the units of the data. Nodes without a number
    do not teach (``unlabelled``), and ``class_weight`` and ``calibrate`` are for classes.

    Attributes:
        outputs_: What the columns of the numbers are called, in the order of the model's outputs; 0, 1, 2, ... where
            they have no names. All others are those of the classifier, which has ``classes_`` instead.
    """

    _targets = ("regression",)

    score = Estimator.score  # not that of the mixin

    def _targets_of_rows(self, X: Any, y: Any, target: TargetKind) -> RowTargets:
        columns = columns_of(y, target, "y") if hasattr(y, "columns") else None
        features, y = validate_data(self, X, y, dtype=np.float32, multi_output=True, y_numeric=True)
        t = torch.from_numpy(np.array(y, dtype=np.float64))
        return features, checked_columns(t, target, len(features), "y"), target, None if columns is None else columns[1]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class NodeClassifier(ClassifierMixin, BaseEstimator):
    """A classifier whose samples are nodes of one graph, given by their numbers.

    All nodes and edges of the graph are seen in training, as always; labels only those of the nodes of ``fit``,
    whatever labels and masks the graph itself has. So ``GridSearchCV``, ``cross_validate``, ``cross_val_predict``,
    ``learning_curve`` and all else of scikit-learn that deals samples works on nodes, with its own splitters and
    scorers, and what is held out stays unseen.

    The nodes of ``fit`` decide out of fold what is left to the data, unless ``validation`` of the estimator sets some
    of them aside.

    Args:
        estimator: What is trained; its parameters are ``estimator__hidden`` and so on.
        graph: The graph; :func:`~pdadmm_g.graph.readers.as_graph` makes one of tables.

    Attributes:
        estimator_: The fitted estimator.
        classes_: The labels.
    """

    estimator_: GAMLPClassifier
    classes_: NDArray[Any]

    def __init__(self, estimator: GAMLPClassifier, graph: Graph) -> None:
        self.estimator = estimator
        self.graph = graph

    def __sklearn_clone__(self) -> NodeClassifier:
        # Like any clone, but for the graph: every fold of every candidate would have a copy of it.
        return NodeClassifier(clone(self.estimator), self.graph)

    def fit(self, nodes: ArrayLike, y: ArrayLike) -> NodeClassifier:
        """Train on ``nodes``, numbers in any shape with one in a row, with the labels ``y``."""
        check_consistent_length(nodes, y)
        check_classification_targets(y)
        labels = np.asarray(y)
        if labels.size != len(labels):
            raise InputError(
                "NodeClassifier is for one class a node: for several labels, fit the estimator on the graph"
            )
        own = _numbers(nodes)
        data = check_graph(_bare(self.graph))
        self.classes_, places = np.unique(labels.ravel(), return_inverse=True)
        data.train_mask = as_mask(own, data.num_nodes, "nodes")
        data.y = torch.full((data.num_nodes,), -1)
        data.y[torch.from_numpy(own)] = torch.as_tensor(places)
        self.estimator_ = clone(self.estimator).fit(data)
        return self

    def predict(self, nodes: ArrayLike) -> NDArray[Any]:
        """The most probable label of each node."""
        check_is_fitted(self)
        return self.classes_[self.estimator_.predict(_bare(self.graph), _numbers(nodes))]

    def predict_proba(self, nodes: ArrayLike) -> NDArray[Any]:
        """The probability of each class, in the order of ``classes_``."""
        check_is_fitted(self)
        return self.estimator_.predict_proba(_bare(self.graph), _numbers(nodes))


def _numbers(nodes: ArrayLike) -> NDArray[Any]:
    """The numbers of nodes as a vector; scikit-learn likes its samples in a column."""
    numbers = np.asarray(nodes)
    if numbers.dtype.kind not in "iu" or numbers.size != len(numbers):
        raise InputError("nodes must be whole numbers, one a sample: the numbers of nodes of the graph")
    return numbers.reshape(-1).astype(np.int64)


def _bare(graph: Graph) -> Graph:
    """The graph without labels, their names and kind, and masks."""
    data = graph_alone(graph, "graph")  # a copy
    for name in ("y", "label_names", "target_kind", *MASKS):
        if name in data:
            del data[name]
    return data


@torch.no_grad()
def _estimated(model: GAMLP, problem: Problem, calibration: Calibration) -> Estimate | None:
    """How good classes are expected to be, by nodes that did not train."""
    on = "validation"
    asked = problem.evidence.asked
    if problem.config.target != "classification" or (problem.validation is None and asked is None):
        return None
    if asked is not None:
        P, y = calibration.outputs(asked[0]), asked[1]
        on = on if problem.nodes is not None and len(problem.nodes.val) else OUT_OF_FOLD
    else:
        logits, y = problem.logits(model)
        P, y = outputs(logits.double(), "classification").cpu(), y.cpu()
    return estimate(y.numpy(), P.numpy(), on, problem.evidence.optimism) if bool(P.isfinite().all()) else None


def _crossed(problem: Problem, calibration: Calibration) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    """The keys of all nodes whose classes were asked out of fold, and their probabilities."""
    asked = problem.evidence.asked
    if problem.config.target != "classification" or asked is None or problem.crossed is None:
        return None
    P = calibration.outputs(asked[0].double()).numpy()
    return (problem.crossed, P) if len(P) == len(problem.crossed) and np.isfinite(P).all() else None


def given_data(
    X: Any, y: Any, edge_index: Any, edge_weight: Any, target: TargetKind, columns: Mapping[str, str] | None = None
) -> tuple[Any, Any]:
    """What is to be trained on: a graph alone, where the arguments make one, or a matrix and its targets."""
    y, edge_index = edges_apart(X, y, edge_index)
    if edge_index is not None or is_graph(X) or (is_table(X) and y is None):
        return as_graph(X, y, edge_index, edge_weight=edge_weight, target=target, columns=columns), None
    if edge_weight is not None:
        raise InputError("edge_weight is given without edges: pass edge_index too")
    return X, y


def parameters(config: ModelConfig) -> dict[str, Any]:
    """The settings as an estimator takes them: the kind of target is said by its class, or by the risk."""
    settings = {item.name: getattr(config, item.name) for item in dataclasses.fields(Settings)}
    return settings | ({"risk": "logistic"} if config.target == "multilabel" else {})


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
    elif isinstance(init, Estimator):
        found = init._trained()
    else:
        raise InputError(f"init must be an estimator, a network or the path of one, got {type(init).__name__}")
    return WarmStart(found.model, found._replace(config=found.config.resolved()))


def column_names(names: NDArray[Any], kind: str) -> list[str]:
    """What the columns of predictions are called: as those of the targets, numbered where they have no names."""
    if names.dtype.kind in "US":
        return [str(name) for name in names]
    return [kind] if kind == "value" and len(names) == 1 else [f"{kind}_{number}" for number in names]


def kind_for(config: ModelConfig) -> type[GAMLPClassifier] | type[GAMLPRegressor]:
    """The class of estimators for the kind of target."""
    return GAMLPRegressor if config.target == "regression" else GAMLPClassifier


def estimator_for(config: ModelConfig, seed: int) -> GAMLPClassifier | GAMLPRegressor:
    """The estimator that learns the kind of target that was asked for."""
    return kind_for(config)(**parameters(config), random_state=seed)


def load_estimator(path: str | Path) -> GAMLPClassifier | GAMLPRegressor:
    """The estimator of a model file, whichever it is of."""
    found = load_model(path)
    return kind_for(found.config).of(found)


def with_parameters(docstring: str) -> str:
    """The docstring of the estimator with a list of its parameters, from what the settings say of themselves."""
    texts = {item.name: described(item) for item in dataclasses.fields(Parameters)}
    lines = [
        textwrap.fill(f"{name}: {text}", 120, initial_indent=" " * 4, subsequent_indent=" " * 8)
        for name, text in texts.items()
    ]
    # Since Python 3.13 it comes without the indentation of the source; before, with it.
    return inspect.cleandoc(docstring).replace("Attributes:\n", "\n".join(["Args:", *lines, "", "Attributes:\n"]), 1)


# For help() and notebooks; the site has the same texts in a table.
for _kind in (GAMLPClassifier, GAMLPRegressor):
    _kind.__doc__ = with_parameters(_kind.__doc__ or "")
