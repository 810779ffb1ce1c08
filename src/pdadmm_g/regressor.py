"""The regressor as scikit-learn knows one: it can be cloned, searched over and put into a pipeline."""

from __future__ import annotations

from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags

from .kinds import Regressor


class GAMLPRegressor(Regressor, RegressorMixin, BaseEstimator):
    """What the regressor says of itself."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


GAMLPRegressor.__doc__ = Regressor.__doc__
