"""The estimators by what they learn, classes and labels or numbers: predict and score; and which of them a model is of.

:mod:`.classifier` and :mod:`.regressor` make scikit-learn's of them.
"""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from .config import ModelConfig, TargetKind, described
from .data.adapters import edges_apart, ids_of, labels_of
from .data.checks import check_graph, check_kind, probabilities_of
from .data.graph import Graph
from .data.targets import checked_columns, columns_of
from .errors import InputError
from .estimator import Estimator, RowTargets, parameters
from .model import outputs
from .training.model_file import load_model


class Classifier(Estimator):
    """Deep graph-augmented MLP trained with pdADMM-G (or pdADMM-G-Q), without backpropagation.

    ``fit(graph)`` takes what :func:`~pdadmm_g.data.datasets.load_dataset` gives, or a ``torch_geometric`` ``Data`` with
    ``x``, ``edge_index``, ``y``, and masks if there are any, or a ``networkx`` or DGL graph; ``fit(X, y, edge_index)``
    features, labels and edges, and ``fit(nodes, edges)`` two pandas tables, see
    :func:`~pdadmm_g.data.adapters.as_graph`. Where nothing says which nodes train, those with a label do; where nothing
    says which validate, some of these are set aside (``validation``).
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
        model_: The trained :class:`~pdadmm_g.model.GAMLP`, on the CPU. Its input is the augmented features; that of
            a :class:`~pdadmm_g.model.GCN` (method gcn) also the graph.
        history_: One dict per epoch, with the keys of ``metrics.jsonl``.
        status_: How training ended, a :class:`~pdadmm_g.status.Status` with ``.advice``.
        message_: Epoch, layer and variable of a failure, e.g. ``"epoch 17, layer 4, variable z"``; else empty.
        classes_: The labels, in the order of the model's outputs; of a matrix of 0 and 1 the names of its columns.
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

    _targets = ("classification", "multilabel")

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels, in the order of the model's outputs."""
        return self.outputs_

    def predict(
        self,
        X: Any,
        nodes: ArrayLike | Tensor | None = None,
        *,
        edge_index: Any = None,
        edge_weight: Any = None,
    ) -> NDArray[Any]:
        """The most probable label of every row, or of ``nodes`` (indices or a mask, all by default) of a graph.

        Where a row may have several labels, a row of 0 and 1 each: 1 where a label is more probable than not. The graph
        is given as to :meth:`fit`. It may be another one, with new nodes and edges; it needs neither labels nor masks.
        A table of edges may stand in the place of ``nodes``.
        """
        nodes, edge_index = edges_apart(nodes, edge_index)
        logits = self._logits(self._given(X, edge_index, edge_weight), nodes).numpy()
        if self.config_.target == "multilabel":
            return (logits > 0).astype(np.int64)
        return self.classes_[logits.argmax(1)]

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
        logits = self._logits(self._given(X, edge_index, edge_weight), nodes)
        return outputs(logits, self.config_.target).numpy()

    def predictions(
        self, X: Any, edge_index: Any = None, *, edge_weight: Any = None, probabilities: bool = False
    ) -> dict[str, NDArray[Any]]:
        """Columns ``node``, by its id, ``label`` and ``probability`` of every node of a graph, as for a pandas table.

        With ``probabilities``, also a column ``probability_LABEL`` for each class. Where a node may have several
        labels, there is a column of 0 and 1 for each, called as it is, instead of the first two.
        """
        data = self._given(X, edge_index, edge_weight)
        each = self.predict_proba(data)
        columns = {"node": ids_of(check_graph(data)) if isinstance(data, Graph) else np.arange(len(each))}
        if self.config_.target == "multilabel":
            labels = (each > 0.5).astype(np.int64)
            columns |= {name: labels[:, place] for place, name in enumerate(column_names(self.classes_, "label"))}
        else:
            columns |= {"label": self.classes_[each.argmax(1)], "probability": each.max(1)}
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
        """Accuracy; of several labels a row, the share of rows with all of them right.

        For a graph, which has its labels, ``y`` is the mask (or indices) of the nodes to score. By default these are
        its test nodes; where nothing says which these are, the labelled nodes that neither train nor validate by its
        masks. Where edges are given beside features, ``y`` are the labels, and nodes without one are not scored;
        without masks, all others are, whoever trained.
        """
        from sklearn.metrics import accuracy_score

        found = self._nodes_to_score(X, y, edge_index, edge_weight)
        several = self._fitted_target() == "multilabel"
        if found is None:
            if several:
                columns = columns_of(y, "multilabel", "y")
                assert columns is not None
                y = checked_columns(columns[0], "multilabel", len(columns[0]), "y").numpy()
            else:
                soft = probabilities_of(y)
                y = y if soft is None else soft.argmax(1).numpy()
            return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))
        data, nodes = found
        if several:
            true = data.y[nodes].numpy()
        else:
            true = labels_of(data)[nodes.numpy()]
            check_kind(true, self.classes_)
        return float(accuracy_score(true, self.predict(data, nodes), sample_weight=sample_weight))

    def _targets_of_rows(self, X: Any, y: Any, target: TargetKind) -> RowTargets:
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import check_consistent_length, validate_data

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


class Regressor(Estimator):
    """The same network for numbers: one or several a row, learned by squared error.

    ``fit`` takes what that of :class:`~pdadmm_g.GAMLPClassifier` does, with numbers for labels: one a row, or a column
    for each of several; NaN (in a table: nothing) is a node without. They are standardized for training, each column by
    its mean and deviation over the training rows, and predictions are in the units of the data. Nodes without a number
    do not teach (``unlabelled``), and ``class_weight`` and ``calibrate`` are for classes.

    Attributes:
        model_: The trained :class:`~pdadmm_g.model.GAMLP`, on the CPU. Its input is the augmented features; that of
            a :class:`~pdadmm_g.model.GCN` (method gcn) also the graph.
        history_: One dict per epoch, with the keys of ``metrics.jsonl``.
        status_: How training ended, a :class:`~pdadmm_g.status.Status` with ``.advice``.
        message_: Epoch, layer and variable of a failure, e.g. ``"epoch 17, layer 4, variable z"``; else empty.
        outputs_: What the columns of the numbers are called, in the order of the model's outputs; 0, 1, 2, ... where
            they have no names.
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

    _targets = ("regression",)

    def predict(
        self,
        X: Any,
        nodes: ArrayLike | Tensor | None = None,
        *,
        edge_index: Any = None,
        edge_weight: Any = None,
    ) -> NDArray[Any]:
        """The number of every row, or of ``nodes`` (indices or a mask, all by default) of a graph; or a row of several.

        The graph is given as to :meth:`fit`. It may be another one, with new nodes and edges; it needs neither numbers
        to learn nor masks. A table of edges may stand in the place of ``nodes``.
        """
        nodes, edge_index = edges_apart(nodes, edge_index)
        found = self._logits(self._given(X, edge_index, edge_weight), nodes).double().numpy()
        return found[:, 0] if found.shape[1] == 1 else found

    def predictions(
        self, X: Any, edge_index: Any = None, *, edge_weight: Any = None, probabilities: bool = False
    ) -> dict[str, NDArray[Any]]:
        """A column ``node``, by its id, and one for each number, of every node of a graph, as for a pandas table."""
        if probabilities:
            raise InputError("numbers have no probabilities: leave them out")
        data = self._given(X, edge_index, edge_weight)
        found = self._logits(data).double().numpy()
        columns = {"node": ids_of(check_graph(data)) if isinstance(data, Graph) else np.arange(len(found))}
        return columns | {name: found[:, place] for place, name in enumerate(column_names(self.outputs_, "value"))}

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        edge_index: Any = None,
        edge_weight: Any = None,
    ) -> float:
        r"""The coefficient of determination :math:`R^2`, of several columns their mean.

        Which nodes of a graph are scored is said, and found, as in :meth:`~pdadmm_g.GAMLPClassifier.score`.
        """
        from sklearn.metrics import r2_score

        found = self._nodes_to_score(X, y, edge_index, edge_weight)
        if found is None:
            return float(r2_score(y, self.predict(X), sample_weight=sample_weight))
        data, nodes = found
        return float(r2_score(data.y[nodes].numpy(), self.predict(data, nodes), sample_weight=sample_weight))

    def _targets_of_rows(self, X: Any, y: Any, target: TargetKind) -> RowTargets:
        from sklearn.utils.validation import validate_data

        columns = columns_of(y, target, "y") if hasattr(y, "columns") else None
        features, y = validate_data(self, X, y, dtype=np.float32, multi_output=True, y_numeric=True)
        t = torch.from_numpy(np.array(y, dtype=np.float64))
        return features, checked_columns(t, target, len(features), "y"), target, None if columns is None else columns[1]


def column_names(names: NDArray[Any], kind: str) -> list[str]:
    """What the columns of predictions are called: as those of the targets, numbered where they have no names."""
    if names.dtype.kind in "US":
        return [str(name) for name in names]
    return [kind] if kind == "value" and len(names) == 1 else [f"{kind}_{number}" for number in names]


def estimator_for(config: ModelConfig, seed: int) -> Classifier | Regressor:
    """The estimator that learns the kind of target that was asked for."""
    kind = Regressor if config.target == "regression" else Classifier
    return kind(**parameters(config), random_state=seed)


def load_estimator(path: str | Path) -> Classifier | Regressor:
    """The estimator of a model file, whichever it is of."""
    found = load_model(path)
    return (Regressor if found.config.target == "regression" else Classifier).of(found)


def _with_parameters(docstring: str) -> str:
    """The docstring of the estimator with a list of its parameters, from what the settings say of themselves."""
    texts = {item.name: described(item) for item in dataclasses.fields(ModelConfig) if item.name != "target"}
    texts["verbose"] = "show what is being done, on standard error [default: in a notebook]"
    texts["random_state"] = "seed of the initial weights, or a source of seeds [default: another one each time]"
    lines = [
        textwrap.fill(f"{name}: {text}", 120, initial_indent=" " * 8, subsequent_indent=" " * 12)
        for name, text in texts.items()
    ]
    return docstring.replace("    Attributes:\n", "\n".join(["    Args:", *lines, "", "    Attributes:\n"]), 1)


# For help() and notebooks; the site has the same texts in a table.
for _kind in (Classifier, Regressor):
    _kind.__doc__ = _with_parameters(_kind.__doc__ or "")
