"""Quick linear models are those of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge

from pdadmm_g.training import linear
from pdadmm_g.training.linear import MODELS, fitted, network, spanned

KINDS = ("classification", "multilabel", "regression")


def rows(number: int, features: int, target: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features of different lengths far from zero, targets that they hardly tell (rows, outputs), and weights."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(number, features + 3, generator=generator, dtype=torch.float64)
    X = noise[:, :-3] * torch.linspace(0.5, 1.5, features, dtype=torch.float64) + 1
    z = X[:, :3] + 2 * noise[:, -3:]
    one_hot = torch.nn.functional.one_hot(z.argmax(1), 3)
    t = {"classification": one_hot, "multilabel": (z > 1).long(), "regression": z + 100}[target]
    return X, t, torch.rand(number, generator=generator, dtype=torch.float64) + 0.5


def expected(X: torch.Tensor, t: torch.Tensor, weights: np.ndarray, target: str, ridge: float) -> np.ndarray:
    if target == "regression":
        return Ridge(alpha=ridge * weights.sum()).fit(X, t, weights).predict(X)
    model = LogisticRegression(C=1 / (ridge * weights.sum()), tol=1e-8, max_iter=1000, solver="newton-cg")
    if target == "classification":
        return model.fit(X, t.argmax(1), weights).predict_proba(X)
    return np.stack([model.fit(X, column, weights).predict_proba(X)[:, 1] for column in t.T], axis=1)


@pytest.mark.parametrize("shape", [(90, 4), (20, 30)])
@pytest.mark.parametrize("target", KINDS)
def test_the_models_are_those_of_scikit_learn(target: str, shape: tuple[int, int], monkeypatch) -> None:
    """Of more features than rows, which are told apart without a mistake, given the steps that this takes."""
    X, t, weights = rows(*shape, target)
    if shape[0] < shape[1] and target != "regression":
        monkeypatch.setitem(MODELS, target, MODELS[target]._replace(steps=800))
        monkeypatch.setattr(linear, "SMALL", 1e-9)
    monkeypatch.setattr(linear, "RIDGES", (1e-2, 1e-1))
    for given in (None, weights):
        W, b = fitted(X, t, given, target)
        for place, ridge in enumerate((1e-2, 1e-1)):
            P = MODELS[target].outputs(X @ W[place] + b[place])
            own = np.ones(len(X)) if given is None else given.numpy()
            np.testing.assert_allclose(P, expected(X, t, own, target, ridge), rtol=1e-7, atol=2e-4)
    model = network(W[1], b[1], "relu")
    torch.testing.assert_close(model(X.float()).double(), X @ W[1] + b[1], rtol=1e-3, atol=1e-4)


def test_the_span_of_rows_is_told_by_their_products() -> None:
    X, _, _ = rows(6, 20, "regression")
    X = torch.cat([X, X[:3] * 2])  # of rank 6
    V = X.T @ spanned(X @ X.T)
    torch.testing.assert_close(V.T @ V, torch.eye(6, dtype=torch.float64))
    torch.testing.assert_close(X @ V @ V.T, X)
    assert spanned(torch.zeros(3, 3)).shape == (3, 0)
