"""What the paper proves must hold: descent, the dual identity, levels, stationarity, rates."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from pdadmm_g.admm.activations import ACTIVATIONS
from pdadmm_g.admm.diagnostics import descent_constants, rate_term, rho_bound
from pdadmm_g.admm.risks import RISKS
from pdadmm_g.admm.state import Quantization
from pdadmm_g.admm.updates import p_gradient
from pdadmm_g.engine.worker import Worker

EPOCHS = 60
QUANTIZED = Quantization(p=True, bits=4)
VARIANTS = [("linearized", None), ("exact", None), ("linearized", QUANTIZED)]
variants = pytest.mark.parametrize(("solver", "quantization"), VARIANTS, ids=["linearized", "exact", "p-quantized"])


def lagrangian(worker: Worker) -> float:
    """From the definition, with a fresh pre-activation."""
    nu, mu, f = worker.algorithm.nu, worker.algorithm.mu, worker.algorithm.activation
    value = worker.risk()
    for layer, left, right in zip(worker.layers, worker.boundaries[:-1], worker.boundaries[1:], strict=True):
        p = worker.ends.X if left is None else left.p
        value = value + nu / 2 * (layer.z - p @ layer.W.T - layer.b).square().sum()
        value = value + mu / 2 * (layer.W - layer.W0).square().sum()
        if right is not None:
            gap = right.p - right.q
            value = value + nu / 2 * (right.q - f(layer.z)).square().sum()
            value = value + (right.u * gap).sum() + worker.algorithm.rho / 2 * gap.square().sum()
    return float(value)


def total_moves(worker: Worker, moves) -> float:
    return rate_term(
        moves, nu=worker.algorithm.nu, rho=worker.algorithm.rho, lipschitz=worker.algorithm.activation.lipschitz
    )


PROBLEMS = [
    *((activation, "cross-entropy", 0.01) for activation in ACTIVATIONS),
    *(("relu", risk, 0.01) for risk in RISKS if risk != "cross-entropy"),
    *((activation, "cross-entropy", 0.0) for activation in ("relu", "identity")),
]


@variants
@pytest.mark.parametrize(("activation", "risk", "mu"), PROBLEMS)
def test_every_epoch_descends_as_promised_and_leaves_the_dual_identity(
    make_chain, solver: str, quantization: Quantization | None, activation: str, risk: str, mu: float
) -> None:
    """u is nu (q - f(z)), and what is measured adds up to the Lagrangian."""
    soft = risk != "cross-entropy"
    worker = make_chain(solver=solver, quantization=quantization, activation=activation, risk=risk, mu=mu, soft=soft)
    before = start = lagrangian(worker)
    # The z-step of the smooth ones is a search: fewer epochs keep the suite fast.
    for epoch in range(EPOCHS if activation not in ("tanh", "sigmoid") else 30):
        promised = total_moves(worker, worker.epoch())
        after = lagrangian(worker)
        assert promised >= 0
        assert before - after >= promised - 1e-12 * (1 + abs(before)), f"epoch {epoch + 1}"
        before = after
        total = float(worker.risk()) + float(worker.measured.objective.sum())
        assert total == pytest.approx(after, rel=1e-12)
        for layer, right in zip(worker.layers[:-1], worker.boundaries[1:-1], strict=True):
            expected = worker.algorithm.nu * (right.q - worker.algorithm.activation(layer.z))
            torch.testing.assert_close(right.u, expected, rtol=1e-9, atol=1e-12)
    assert before < 0.9 * start


@pytest.mark.parametrize("invert_every", [1, 7])
def test_large_layers_that_are_inverted_now_and_then_descend_too(make_chain, monkeypatch, invert_every: int) -> None:
    exact = make_chain(solver="exact", mu=0.01)
    worker = make_chain(solver="exact", mu=0.01)
    monkeypatch.setattr(worker, "large", 1)
    monkeypatch.setattr(worker, "invert_every", invert_every)
    for epoch in range(EPOCHS):
        before = lagrangian(worker)
        promised = total_moves(worker, worker.epoch())
        assert before - lagrangian(worker) >= promised - 1e-12 * (1 + abs(before)), f"epoch {epoch + 1}"
        exact.epoch()
    # Inverted in every epoch it is the exact solver; now and then, the objective falls as far.
    assert lagrangian(worker) == pytest.approx(lagrangian(exact), rel=1e-9 if invert_every == 1 else 2e-2)


@variants
def test_primal_residual_vanishes_and_the_rate_series_is_summable(
    make_chain, solver: str, quantization: Quantization | None
) -> None:
    worker = make_chain(solver=solver, quantization=quantization, mu=0.01)
    start, terms, gaps = lagrangian(worker), [], []
    for _ in range(300):
        terms.append(total_moves(worker, worker.epoch()))
        gaps.append(math.sqrt(worker.measured.gap.sum()))
    c = list(itertools.accumulate(terms, min))
    # The terms add up to no more than the total descent, which is what makes c_k = o(1/k).
    assert sum(terms) <= start - lagrangian(worker) + 1e-9
    assert 300 * c[-1] < 0.03 * max(k * c_k for k, c_k in enumerate(c, start=1))
    assert gaps[-1] < 0.01 * max(gaps)


@pytest.mark.parametrize("levels", [None, (-1.0, -0.1, 0.0, 0.3, 0.4, 1.0, 2.0, 5.0)], ids=["calibrated", "arbitrary"])
@pytest.mark.parametrize("q", [False, True], ids=["p", "pq"])
def test_quantized_variables_are_exactly_on_their_levels(make_chain, levels, q: bool) -> None:
    worker = make_chain(quantization=Quantization(p=True, q=q, bits=3, levels=levels))
    for _ in range(30):
        worker.epoch()
        for boundary in worker.boundaries[1:-1]:
            assert torch.isin(boundary.p, boundary.p_levels.values).all()
            assert not q or torch.isin(boundary.q, boundary.q_levels.values).all()


def test_converged_p_is_a_quantized_stationary_point(make_chain) -> None:
    """p is the nearest level to p - grad F / tau, F being the objective without the coupling term."""
    worker = make_chain(quantization=QUANTIZED, mu=0.05, layers=3)
    for epoch in range(400):
        if epoch == 200:
            before = [boundary.p.clone() for boundary in worker.boundaries[1:-1]]
        worker.epoch()
    assert all(torch.equal(old, new.p) for old, new in zip(before, worker.boundaries[1:-1], strict=True))
    for layer, left in zip(worker.layers[1:], worker.boundaries[1:-1], strict=True):
        nu = worker.algorithm.nu
        # At the limit p = q and u is the multiplier, so grad F + u = 0 up to the levels: use phi's gradient.
        g = p_gradient(layer.r @ layer.W, left.p, left.q, left.u, nu=nu, rho=worker.algorithm.rho)
        tau = nu * torch.linalg.matrix_norm(layer.W, 2) ** 2 + worker.algorithm.rho
        assert torch.equal(left.p_levels.project(left.p - g / tau), left.p)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("solver", ["linearized", "exact"])
def test_cached_residual_does_not_drift(make_chain, solver: str, dtype: torch.dtype) -> None:
    """Within 200 rounding errors of the pre-activation after 200 epochs without a refresh."""
    worker = make_chain(solver=solver, dtype=dtype, mu=0.01, nodes=60, hidden=20, layers=5)
    worker.refresh_every = 201
    for _ in range(200):
        worker.epoch()
    cached = [layer.r.clone() for layer in worker.layers]
    worker.refresh()
    for r, layer in zip(cached, worker.layers, strict=True):
        drift = float((r - layer.r).abs().max() / (layer.z + layer.r).abs().max())
        assert drift < 200 * torch.finfo(dtype).eps
        layer.r += 1e-3
    worker.epoch()  # the 201st: whatever r has become, it is recomputed
    for place, layer in enumerate(worker.layers):
        expected = worker.input(place) @ layer.W.T + layer.b - layer.z
        torch.testing.assert_close(layer.r, expected, rtol=0, atol=20 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("lipschitz", [0.25, 1.0])
@pytest.mark.parametrize("nu", [1e-3, 1.0])
def test_descent_constants_are_positive_exactly_above_the_bound(nu: float, lipschitz: float) -> None:
    bound = rho_bound(nu, lipschitz)
    assert min(descent_constants(nu, 1.001 * bound, lipschitz)) > 0
    assert min(descent_constants(nu, 0.999 * bound, lipschitz)) < 0
