"""Linear models of classes, and of several labels or numbers: how well features suit them, which chooses features."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..metrics import Scorer, score

#: Weight decays, per training node.
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)


class Model(NamedTuple):
    """A generalized linear model."""

    #: Outputs by logits, and the logits of mean targets.
    outputs: Callable[[Tensor], Tensor]
    logits: Callable[[Tensor], Tensor]
    #: The least bound of the second derivative of a row's risk.
    curvature: float
    #: Newton steps; one is exact for squares.
    steps: int
    #: The risk of logits, with the targets of the validation rows.
    risk: Callable[[Tensor, Tensor], Tensor]


MODELS = {
    "classification": Model(lambda z: torch.softmax(z, -1), torch.log, 0.5, 50, F.cross_entropy),
    "multilabel": Model(
        torch.sigmoid, lambda p: p.clamp(1e-3, 1 - 1e-3).logit(), 0.25, 50, F.binary_cross_entropy_with_logits
    ),
    "regression": Model(lambda z: z, torch.zeros_like, 1.0, 1, F.mse_loss),
}


def linear_score(
    X: Tensor,
    targets: list[Tensor],
    weights: Tensor | None = None,
    scoring: str | Scorer = "accuracy",
    target: str = "classification",
) -> tuple[float, float]:
    r"""Validation score and minus the mean risk of the best of a few linear models, ``X`` being all rows.

    .. math:: \min_{B, b} \sum_i w_i \, R(x_i B + b; t_i) + \tfrac{\lambda}{2} \sum_i w_i \|B\|^2

    by Newton steps with the one Hessian that bounds all others, :math:`c X^T \mathrm{diag}(w) X + \lambda I` (Böhning
    1992): it is factored once, and no step goes up. ``targets`` are those of the training and of the validation rows.
    """
    model = MODELS[target]
    training, validation = X.cpu().double().split([len(part) for part in targets])
    t, t_validation = targets
    w = torch.ones(len(t), 1, dtype=torch.float64) if weights is None else weights.cpu().double()[:, None]
    if target == "classification":
        classes, y = t.unique(return_inverse=True)
        known = t_validation[:, None] == classes
        t = torch.eye(len(classes), dtype=torch.float64)[y]
        t_validation = torch.where(known.any(1), known.int().argmax(1), -1)
        met = t_validation >= 0
    else:
        if target == "regression":  # mean 0 and deviation 1 over the training rows, so that all columns count alike
            mean = (w * t).sum(0) / w.sum()
            deviation = ((w * (t - mean).square()).sum(0) / w.sum()).sqrt()
            t, t_validation = ((each - mean) / deviation.where(deviation > 0, 1.0) for each in targets)
        met = torch.ones(len(t_validation), dtype=torch.bool)
    mean = (w * training).sum(0) / w.sum()
    training, validation = training - mean, validation - mean
    # B lies in the span of the training rows: an orthogonal basis of it makes the problem small, exactly.
    if len(training) < training.shape[1]:
        basis, coordinates = torch.linalg.qr(training.T)
        training, validation = coordinates.T.contiguous(), validation @ basis
    gram = model.curvature * (training.T @ (w * training) / w.sum())
    # All ridges at once: a block of columns of B each.
    ridges = torch.tensor(RIDGES, dtype=torch.float64)
    inverses = torch.cholesky_inverse(
        torch.linalg.cholesky(gram + ridges[:, None, None] * torch.eye(len(gram), dtype=torch.float64))
    )
    number, shape = len(gram), (-1, len(RIDGES), t.shape[1])
    B, b = training.new_zeros(number, len(RIDGES) * t.shape[1]), model.logits((w * t).sum(0) / w.sum())
    share = (w / w.sum())[:, None]
    for _ in range(model.steps):
        gap = share * (t[:, None] - model.outputs((training @ B).view(shape) + b))
        gradient = (training.T @ gap.flatten(1)).view(shape) - ridges[:, None] * B.view(shape)
        B = B + (inverses @ gradient.transpose(0, 1)).transpose(0, 1).reshape(number, -1)
        b = b + gap.sum(0) / model.curvature
    best = (-math.inf, -math.inf)
    for logits in ((validation @ B).view(shape) + b).unbind(1):
        found = score(scoring, t_validation.numpy(), model.outputs(logits).numpy(), target)
        risk = float(model.risk(logits[met], t_validation[met])) if bool(met.any()) else math.inf
        best = max(best, (-math.inf if found is None else found, -risk))
    return best
