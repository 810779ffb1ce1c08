r"""Generalized linear models of a few rows: they tell quickly what features are worth.

.. math:: \min_{B, b} \sum_i w_i \, R(x_i B + b; t_i) + \tfrac{\lambda}{2} \sum_i w_i \|B\|^2

by Newton steps with the one Hessian that bounds all others, :math:`c X^T \mathrm{diag}(w) X + \lambda I` (Böhning,
1992). In its eigenvectors every step is a division, and no step goes up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..model import GAMLP

#: Weight decays, per training row.
RIDGES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
#: Steps end where no entry of the gradient is larger.
SMALL = 1e-6


class Model(NamedTuple):
    """A generalized linear model."""

    #: Outputs by logits, and the logits of mean targets.
    outputs: Callable[[Tensor], Tensor]
    logits: Callable[[Tensor], Tensor]
    #: The least bound of the second derivative of a row's risk.
    curvature: float
    #: The most Newton steps; one is exact for squares.
    steps: int


MODELS = {
    "classification": Model(lambda z: torch.softmax(z, -1), lambda p: p.clamp(1e-6).log(), 0.5, 50),
    "multilabel": Model(torch.sigmoid, lambda p: p.clamp(1e-3, 1 - 1e-3).logit(), 0.25, 50),
    "regression": Model(lambda z: z, torch.clone, 1.0, 1),
}


def fitted(X: Tensor, t: Tensor, weights: Tensor | None, target: str) -> tuple[Tensor, Tensor]:
    """The models of rows with these targets (rows, outputs), one for each of :data:`RIDGES`: weights B and biases b."""
    model, X, t = MODELS[target], X.double(), t.double()
    share = torch.full((len(X), 1), 1 / len(X), dtype=X.dtype) if weights is None else weights.double()[:, None]
    share = share / share.sum()
    mean = (share * X).sum(0)
    X = X - mean
    # B lies in the span of the rows: of few rows, their coordinates in it make the problem small.
    basis = None
    if len(X) < X.shape[1]:
        K = X @ X.T
        A = spanned(K)
        X, basis = K @ A, X.T @ A
    curvatures, axes = eigen(X.T @ (share * X))
    X = X @ axes
    ridges = torch.tensor(RIDGES, dtype=X.dtype)
    steps = 1 / (model.curvature * curvatures.clamp(0)[:, None] + ridges)[..., None]
    B, b = X.new_zeros(X.shape[1], len(RIDGES), t.shape[1]), model.logits((share * t).sum(0))
    for _ in range(model.steps):
        gap = share[..., None] * (t[:, None] - model.outputs((X @ B.flatten(1)).view(len(X), *B.shape[1:]) + b))
        gradient = (X.T @ gap.flatten(1)).view_as(B) - ridges[:, None] * B
        B = B + steps * gradient
        b = b + gap.sum(0) / model.curvature
        if float(gradient.abs().max()) < SMALL:
            break
    W = axes @ B.flatten(1)
    W = (W if basis is None else basis @ W).view(-1, *B.shape[1:]).transpose(0, 1)
    return W, b.expand(len(RIDGES), -1) - mean @ W


def network(W: Tensor, b: Tensor, activation: str) -> GAMLP:
    """A linear model as a network of one layer."""
    return GAMLP.from_parameters([(W.T.float().contiguous(), b.float())], activation)


def loss(P: Tensor, t: Tensor, target: str) -> float:
    """The mean loss of predictions, given class indices, or columns of labels or numbers."""
    if target == "regression":
        return float((P - t).square().mean())
    if target == "multilabel":
        return float(F.binary_cross_entropy(P, t.to(P)))
    return float(-P[torch.arange(len(t)), t].clamp(1e-12).log().mean())


def mean_output(outputs: Sequence[Tensor], target: str) -> Tensor:
    """What a model says whose logits are the mean of those of several, by what these say."""
    model = MODELS[target]
    return model.outputs(torch.stack([model.logits(P) for P in outputs]).mean(0))


def eigen(K: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of a symmetric matrix; the fast way fails on some with many columns of zeros."""
    try:
        lengths, axes = torch.linalg.eigh(K)
    except RuntimeError:
        from scipy.linalg import eigh  # a worker process starts faster without

        lengths, axes = map(torch.from_numpy, eigh(K.numpy(), driver="ev"))
    return lengths, axes


def spanned(K: Tensor) -> Tensor:
    """A, with which :math:`V = X^T A` is an orthonormal basis of the span of the rows of X, from their products K."""
    lengths, axes = eigen(K.double())
    kept = lengths > (1e-12 if K.dtype == torch.float64 else 1e-7) * lengths[-1].clamp(min=1e-300)
    return (axes[:, kept] / lengths[kept].sqrt()).to(K.dtype)
