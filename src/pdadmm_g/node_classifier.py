"""The nodes of one graph as the samples of scikit-learn, so that its cross-validation and searches work on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from .classifier import GAMLPClassifier
from .data.adapters import graph_alone
from .data.checks import MASKS, as_mask, check_graph
from .data.graph import Graph
from .errors import InputError


class NodeClassifier(ClassifierMixin, BaseEstimator):
    """A classifier whose samples are nodes of one graph, given by their numbers.

    All nodes and edges of the graph are seen in training, as always; labels only those of the nodes of ``fit``,
    whatever labels and masks the graph itself has. So ``GridSearchCV``, ``cross_validate``, ``cross_val_predict``,
    ``learning_curve`` and all else of scikit-learn that deals samples works on nodes, with its own splitters and
    scorers, and what is held out stays unseen.

    Of the nodes of ``fit``, the share ``validation`` of the estimator does not train, but chooses what is left to the
    data and the epoch that is kept.

    Args:
        estimator: What is trained; its parameters are ``estimator__hidden`` and so on.
        graph: The graph; :func:`~pdadmm_g.data.adapters.as_graph` makes one of tables.

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
