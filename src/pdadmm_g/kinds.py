"""The estimators by what they learn, classes and labels or numbers: predict and score; and which of them a model is of.

:mod:`.classifier` and :mod:`.regressor` make scikit-learn's of them.
"""

from __future__ import annotations

import dataclasses
import inspect
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
from .estimator import Estimator, Parameters, RowTargets, parameters
from .model import decisions, outputs
from .training.model_file import load_model


class Classifier(Estimator):
    """The estimator of classes, or of several labels a row."""

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
        return self._labels(self._logits(self._given(X, edge_index, edge_weight), nodes))

    def _labels(self, logits: Tensor) -> NDArray[Any]:
        found = decisions(logits, self.config_.target).numpy()
        return found if self.config_.target == "multilabel" else self.classes_[found]

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
        logits = self._logits(data)
        labels, each = self._labels(logits), outputs(logits, self.config_.target).numpy()
        columns = {"node": ids_of(check_graph(data)) if isinstance(data, Graph) else np.arange(len(each))}
        if self.config_.target == "multilabel":
            columns |= {name: labels[:, place] for place, name in enumerate(column_names(self.classes_, "label"))}
        else:
            columns |= {"label": labels, "probability": each.max(1)}
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
    """The estimator of numbers, one or several a row."""

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
        found = self._logits(self._given(X, edge_index, edge_weight), nodes).numpy()
        # scikit-learn wants several numbers in double precision, and compares by the precision that it gets.
        return found[:, 0] if found.shape[1] == 1 else found.astype(np.float64)

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


def with_parameters(docstring: str) -> str:
    """The docstring of the estimator with a list of its parameters, from what the settings say of themselves."""
    texts = {item.name: described(item) for item in dataclasses.fields(Parameters)}
    lines = [
        textwrap.fill(f"{name}: {text}", 120, initial_indent=" " * 4, subsequent_indent=" " * 8)
        for name, text in texts.items()
    ]
    # Since Python 3.13 it comes without the indentation of the source; before, with it.
    return inspect.cleandoc(docstring).replace("Attributes:\n", "\n".join(["Args:", *lines, "", "Attributes:\n"]), 1)
