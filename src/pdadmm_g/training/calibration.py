r"""One temperature for all logits, fitted on the validation rows (Guo et al., 2017).

.. math:: \min_{s > 0} \frac1n \sum_i \Bigl( \log \sum_c e^{s z_{ic}} - s z_{i y_i} \Bigr), \quad T = 1/s

It is convex in s. The last layer is divided by T, so that whoever uses the network, wherever, has the probabilities;
the order of the classes stays.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InputError
from ..model import GAMLP
from .problem import Problem

#: T is between the inverse and this; without a bound, rows that are all right would ask for certainty.
LARGEST_TEMPERATURE = 20.0


def check_calibration(problem: Problem) -> None:
    """Raise if probabilities are to be calibrated and there is nothing to do it with."""
    if problem.config.calibrate and problem.validation is None:
        remedy = "give the graph a val_mask, or for a matrix use scikit-learn's CalibratedClassifierCV"
        raise InputError(f"calibrate needs validation nodes: {remedy}")


@torch.no_grad()
def calibrate(model: GAMLP, problem: Problem) -> str:
    """Divide the logits of a network by the best temperature for the validation rows of its problem; a sentence on it.

    The network changes in place.
    """
    assert problem.validation is not None
    X, y = problem.validation.X, problem.validation.targets.labels
    logits = model.to(X.device)(X).double()
    s = inverse_temperature(logits, y)
    last = model.linears[-1]
    for parameter in last.parameters():
        parameter.mul_(s)
    before, after = (float(torch.nn.functional.cross_entropy(scale * logits, y)) for scale in (1.0, s))
    return f"probabilities: temperature {1 / s:.3g}, log loss of the validation nodes {after:.3f}, {before:.3f} without"


def inverse_temperature(logits: Tensor, y: Tensor) -> float:
    """The s at which the derivative of the objective is zero, found by halving: it rises with s."""
    own = logits.gather(1, y[:, None])[:, 0].mean()
    low, high = 1 / LARGEST_TEMPERATURE, LARGEST_TEMPERATURE
    for _ in range(60):
        s = (low + high) / 2
        rises = bool((torch.softmax(s * logits, dim=1) * logits).sum(1).mean() > own)
        low, high = (low, s) if rises else (s, high)
    return (low + high) / 2
