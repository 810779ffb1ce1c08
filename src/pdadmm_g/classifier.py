"""The classifier as scikit-learn knows one: it can be cloned, searched over and put into a pipeline."""

from __future__ import annotations

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags

from .kinds import Classifier


class GAMLPClassifier(Classifier, ClassifierMixin, BaseEstimator):
    """What the classifier says of itself."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


GAMLPClassifier.__doc__ = Classifier.__doc__
