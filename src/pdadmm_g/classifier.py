"""The estimator as scikit-learn knows one: it can be cloned, searched over and put into a pipeline."""

from __future__ import annotations

from sklearn.base import BaseEstimator, ClassifierMixin

from .estimator import Estimator


class GAMLPClassifier(Estimator, ClassifierMixin, BaseEstimator):
    """What the estimator says of itself."""


GAMLPClassifier.__doc__ = Estimator.__doc__
