"""The regressor as scikit-learn knows one: it can be cloned, searched over and put into a pipeline."""

from __future__ import annotations

from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags

from .kinds import Regressor, with_parameters


class GAMLPRegressor(Regressor, RegressorMixin, BaseEstimator):
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

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


# For help() and notebooks; the site has the same texts in a table.
GAMLPRegressor.__doc__ = with_parameters(GAMLPRegressor.__doc__ or "")
