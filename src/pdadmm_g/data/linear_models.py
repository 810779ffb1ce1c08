"""Linear models of classes, and of several labels or numbers: how well features suit them, which chooses features."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..metrics import Scorer, score

#: Weight decays, per training node.
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
#: Steps of each, where one is not exact.
STEPS = 50
#: The least that bounds the second derivative of a row's risk.
CURVATURE = {"multilabel": 0.25, "regression": 1.0}


def linear_score(
    X: Tensor, labels: list[Tensor], weights: Tensor | None = None, scoring: str | Scorer = "accuracy"
) -> tuple[float, float]:
    r"""Validation score and minus log loss of the best of a few logistic regressions, ``X`` being all rows.

    .. math:: \min_{B, b} \sum_i w_i \, R(x_i B + b; t_i) + \tfrac{\lambda}{2} \sum_i w_i \|B\|^2

    by Newton steps with the one Hessian that bounds all others, :math:`\tfrac12 X^T \mathrm{diag}(w) X + \lambda I`
    (Böhning 1992): it is factored once, and no step goes up.
    """
    training, validation = X.cpu().double().split([len(part) for part in labels])
    classes, y = labels[0].unique(return_inverse=True)
    w = torch.ones(len(y), 1, dtype=torch.float64) if weights is None else weights.cpu().double()[:, None]
    t = torch.eye(len(classes), dtype=torch.float64)[y]
    known = labels[1][:, None] == classes
    places = torch.where(known.any(1), known.int().argmax(1), -1)
    mean = (w * training).sum(0) / w.sum()
    training, validation = training - mean, validation - mean
    # B lies in the span of the training rows: an orthogonal basis of it makes the problem small, exactly.
    if len(training) < training.shape[1]:
        basis, coordinates = torch.linalg.qr(training.T)
        training, validation = coordinates.T.contiguous(), validation @ basis
    gram = training.T @ (w * training) / (2 * w.sum())
    # All ridges at once: a block of columns of B each.
    ridges = torch.tensor(RIDGES, dtype=torch.float64)
    inverses = torch.cholesky_inverse(
        torch.linalg.cholesky(gram + ridges[:, None, None] * torch.eye(len(gram), dtype=torch.float64))
    )
    number, shape = len(gram), (-1, len(RIDGES), len(classes))
    B, b = training.new_zeros(number, len(RIDGES) * len(classes)), ((w * t).sum(0) / w.sum()).log()
    share = (w / w.sum())[:, None]
    for _ in range(STEPS):
        gap = share * (t[:, None] - torch.softmax((training @ B).view(shape) + b, -1))
        gradient = (training.T @ gap.flatten(1)).view(shape) - ridges[:, None] * B.view(shape)
        B = B + (inverses @ gradient.transpose(0, 1)).transpose(0, 1).reshape(number, -1)
        b = b + 2 * gap.sum(0)
    met, best = places >= 0, (-math.inf, -math.inf)
    for logits in ((validation @ B).view(shape) + b).unbind(1):
        found = score(scoring, places.numpy(), torch.softmax(logits, 1).numpy())
        loss = float(torch.nn.functional.cross_entropy(logits[met], places[met])) if bool(met.any()) else math.inf
        best = max(best, (-math.inf if found is None else found, -loss))
    return best


def column_score(
    X: Tensor, targets: list[Tensor], weights: Tensor | None, scoring: str | Scorer, target: str
) -> tuple[float, float]:
    r"""Validation score and minus the loss of the best of a few ridge regressions, logistic ones for labels.

    ``X`` is all rows, ``targets`` those of the training and the validation rows, a column a label or number.

    .. math:: \min_{B, b} \sum_i w_i \, R(x_i B + b; t_i) + \tfrac{\lambda}{2} \sum_i w_i \|B\|^2

    by Newton steps with one Hessian that bounds all others, :math:`c X^T \mathrm{diag}(w) X + \lambda I`: it is
    factored once, and no step goes up. For numbers it is exact, and one step is enough.
    """
    training, validation = X.cpu().double().split([len(part) for part in targets])
    w = torch.ones(len(training), 1, dtype=torch.float64) if weights is None else weights.cpu().double()[:, None]
    t, t_val = _standardized(targets, w) if target == "regression" else targets
    mean = (w * training).sum(0) / w.sum()
    training, validation = training - mean, validation - mean
    # B lies in the span of the training rows: an orthogonal basis of it makes the problem small, exactly.
    basis = torch.linalg.qr(training.T)[0] if len(training) < training.shape[1] else None
    if basis is not None:
        training, validation = training @ basis, validation @ basis
    curvature = CURVATURE[target]
    gram = curvature * training.T @ (w * training) / w.sum()
    share = ((w * t).sum(0) / w.sum()).clamp(1e-3, 1 - 1e-3)
    best = (-math.inf, -math.inf)
    for ridge in RIDGES:
        factor = torch.linalg.cholesky(gram + ridge * torch.eye(len(gram), dtype=torch.float64))
        B, b = training.new_zeros(len(gram), t.shape[1]), share.logit() if target == "multilabel" else 0 * share
        for _ in range(STEPS if target == "multilabel" else 1):
            logits = training @ B + b
            gap = w * (t - (torch.sigmoid(logits) if target == "multilabel" else logits)) / w.sum()
            B = B + torch.cholesky_solve(training.T @ gap - ridge * B, factor)
            b = b + gap.sum(0) / curvature
        logits = validation @ B + b
        if target == "multilabel":
            found = score(scoring, t_val.numpy(), torch.sigmoid(logits).numpy(), target)
            loss = float(torch.nn.functional.binary_cross_entropy_with_logits(logits, t_val))
        else:
            found = score(scoring, t_val.numpy(), logits.numpy(), target)
            loss = float((logits - t_val).square().mean())
        best = max(best, (-math.inf if found is None else found, -loss))
    return best


def _standardized(targets: list[Tensor], w: Tensor) -> list[Tensor]:
    """Numbers with mean 0 and deviation 1 over the training rows, so that all columns count alike."""
    mean = (w * targets[0]).sum(0) / w.sum()
    deviation = ((w * (targets[0] - mean).square()).sum(0) / w.sum()).sqrt()
    return [(part - mean) / deviation.where(deviation > 0, 1.0) for part in targets]
