"""The classifier as scikit-learn knows one: it can be cloned, searched over and put into a pipeline."""

from __future__ import annotations

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags

from .kinds import Classifier, with_parameters


class GAMLPClassifier(Classifier, ClassifierMixin, BaseEstimator):
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

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


# For help() and notebooks; the site has the same texts in a table.
GAMLPClassifier.__doc__ = with_parameters(GAMLPClassifier.__doc__ or "")
