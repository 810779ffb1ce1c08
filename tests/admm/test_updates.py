"""Each step against brute force in float64, on random small problems."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pdadmm_g.admm.levels import PAPER_LEVELS, Levels
from pdadmm_g.admm.updates import (
    W_exact,
    W_gradient,
    W_linearized,
    b_step,
    gram,
    p_exact,
    p_gradient,
    p_linearized,
    p_quantized,
    q_step,
    u_step,
)


class Problem(NamedTuple):
    """The variables around one layer."""

    W: Tensor
    b: Tensor
    W0: Tensor
    p: Tensor
    z: Tensor
    q: Tensor
    u: Tensor
    nu: float
    rho: float
    mu: float

    @property
    def m(self) -> Tensor:
        return self.p @ self.W.T + self.b

    def phi(self, p: Tensor | None = None, W: Tensor | None = None, b: Tensor | None = None) -> Tensor:
        """The layer's terms of the Lagrangian, from their definition."""
        p = self.p if p is None else p
        W = self.W if W is None else W
        b = self.b if b is None else b
        fit = self.nu / 2 * (self.z - p @ W.T - b).square().sum() + self.mu / 2 * (W - self.W0).square().sum()
        return fit + (self.u * (p - self.q)).sum() + self.rho / 2 * (p - self.q).square().sum()

    def p_gradient(self) -> Tensor:
        rW = (self.m - self.z) @ self.W
        return p_gradient(rW, self.p, self.q, self.u, nu=self.nu, rho=self.rho)


penalty = st.floats(-3, 1).map(lambda exponent: 10.0**exponent)


@st.composite
def problems(draw: st.DrawFn, *, mu: st.SearchStrategy[float] | None = None) -> Problem:
    nodes, width, out = (draw(st.integers(1, 9)) for _ in range(3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    mu = st.one_of(st.just(0.0), penalty) if mu is None else mu
    return Problem(
        W=randn(out, width),
        b=randn(out),
        W0=randn(out, width),
        p=randn(nodes, width),
        z=randn(nodes, out),
        q=randn(nodes, width),
        u=randn(nodes, width),
        nu=draw(penalty),
        rho=draw(penalty),
        mu=draw(mu),
    )


def autograd(function, at: Tensor) -> Tensor:
    at = at.clone().requires_grad_()
    return torch.autograd.grad(function(at), at)[0]


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@given(problems())
def test_gradients_are_those_of_phi(problem: Problem) -> None:
    close(problem.p_gradient(), autograd(lambda p: problem.phi(p=p), problem.p))
    decay = problem.W - problem.W0 if problem.mu else None
    G = W_gradient(problem.m - problem.z, problem.p, decay, nu=problem.nu, mu=problem.mu)
    close(G, autograd(lambda W: problem.phi(W=W), problem.W))


def assert_smallest_majoriser(phi, x: Tensor, gradient: Tensor, x_new: Tensor, descent: Tensor) -> None:
    """phi(x_new) <= U(x_new; t) at the t that was used, and not for a slightly smaller one."""
    gg = gradient.square().sum()
    t = gg / (2 * descent)
    close(x_new, x - gradient / t)

    def gap(t: Tensor) -> Tensor:
        point = x - gradient / t
        d = point - x
        majoriser = phi(x) + (gradient * d).sum() + t / 2 * d.square().sum()
        return majoriser - phi(point)

    scale = gg / t
    assert gap(t) >= -1e-9 * scale
    assert gap(0.99 * t) < -1e-4 * scale


@given(problems())
def test_p_linearized_takes_the_longest_safe_step(problem: Problem) -> None:
    g = problem.p_gradient()
    step = p_linearized(problem.p, problem.m, problem.W, g, nu=problem.nu, rho=problem.rho)
    assert_smallest_majoriser(lambda p: problem.phi(p=p), problem.p, g, step.value, step.descent)
    close(step.m, step.value @ problem.W.T + problem.b)


@given(problems())
def test_W_linearized_takes_the_longest_safe_step(problem: Problem) -> None:
    G = autograd(lambda W: problem.phi(W=W), problem.W)
    step = W_linearized(problem.W, problem.W0, problem.p, problem.m, problem.z, nu=problem.nu, mu=problem.mu)
    assert_smallest_majoriser(lambda W: problem.phi(W=W), problem.W, G, step.value, step.descent)
    close(step.m, problem.p @ step.value.T + problem.b)


@given(problems())
def test_p_exact_minimises_phi(problem: Problem) -> None:
    g = problem.p_gradient()
    step = p_exact(problem.p, problem.m, problem.W, g, nu=problem.nu, rho=problem.rho)
    gradient = autograd(lambda p: problem.phi(p=p), step.value)
    assert gradient.abs().max() <= 1e-9 * (1 + g.abs().max())
    close(step.m, step.value @ problem.W.T + problem.b, 1e-8)
    close(step.descent, problem.phi() - problem.phi(p=step.value), 1e-8)


@given(problems(mu=penalty))
def test_W_exact_minimises_phi(problem: Problem) -> None:
    step = W_exact(problem.W, problem.W0, problem.p, problem.m, problem.z, nu=problem.nu, mu=problem.mu)
    start = autograd(lambda W: problem.phi(W=W), problem.W)
    gradient = autograd(lambda W: problem.phi(W=W), step.value)
    assert gradient.abs().max() <= 1e-9 * (1 + start.abs().max())
    close(step.m, problem.p @ step.value.T + problem.b, 1e-8)
    close(step.descent, problem.phi() - problem.phi(W=step.value), 1e-8)


@given(problems(mu=st.just(0.0)))
def test_W_exact_without_decay_minimises_phi_plus_its_proximal_term(problem: Problem) -> None:
    epsilon = gram(problem.p, nu=problem.nu, mu=0.0).ridge
    assert epsilon > 0
    step = W_exact(problem.W, problem.W0, problem.p, problem.m, problem.z, nu=problem.nu, mu=0.0)

    def objective(W: Tensor) -> Tensor:
        return problem.phi(W=W) + epsilon / 2 * (W - problem.W).square().sum()

    start, gradient = autograd(objective, problem.W), autograd(objective, step.value)
    assert gradient.abs().max() <= 1e-6 * (1e-6 + start.abs().max())
    assert objective(step.value) <= problem.phi() + 1e-12
    close(step.m, problem.p @ step.value.T + problem.b, 1e-6)


@pytest.mark.parametrize("nodes", [5, 12], ids=["kernel", "primal"])
@pytest.mark.parametrize("mu", [0.0, 1e-3])
def test_W_exact_survives_dead_units_in_float32(nodes: int, mu: float) -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.relu(torch.randn(nodes, 8, generator=generator))
    p[:, :5] = 0  # five dead units: p has rank 3 at most
    W, z = torch.randn(4, 8, generator=generator), torch.randn(nodes, 4, generator=generator)
    m = p @ W.T
    step = W_exact(W, torch.zeros_like(W), p, m, z, nu=0.01, mu=mu)
    assert torch.isfinite(step.value).all()
    assert (step.m - z).square().sum() < (m - z).square().sum()
    torch.testing.assert_close(step.m, p @ step.value.T, rtol=1e-3, atol=1e-3)


def test_W_exact_reuses_a_factor() -> None:
    generator = torch.Generator().manual_seed(1)
    p, W, z = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((4, 7), (3, 7), (4, 3)))
    factor = gram(p, nu=0.1, mu=0.2)
    assert factor.kernel
    fresh = W_exact(W, torch.zeros_like(W), p, p @ W.T, z, nu=0.1, mu=0.2)
    reused = W_exact(W, torch.zeros_like(W), p, p @ W.T, z, nu=0.1, mu=0.2, factor=factor)
    torch.testing.assert_close(reused.value, fresh.value, rtol=0, atol=0)


@given(problems(), st.sampled_from(["paper", "uniform", "arbitrary"]))
def test_p_quantized_stays_in_the_levels_and_never_raises_phi(problem: Problem, kind: str) -> None:
    values = {"paper": PAPER_LEVELS, "uniform": [-2 + i / 4 for i in range(16)], "arbitrary": [-1.5, -0.2, 0, 0.1, 3]}
    levels = Levels.from_sequence(values[kind], like=problem.p)
    problem = problem._replace(p=levels.project(problem.p))
    g = problem.p_gradient()
    step = p_quantized(problem.p, problem.m, problem.W, g, levels, nu=problem.nu, rho=problem.rho)
    assert torch.isin(step.value, levels.values).all()
    # Some tau = tau_0 2^k that satisfies the majorisation projects to the returned point.
    gg, gWt = g.square().sum(), (g @ problem.W.T).square().sum()
    taus = [(problem.nu * gWt + problem.rho * gg) / gg * 2**k for k in range(60)]
    d = step.value - problem.p
    curvature = problem.nu * (d @ problem.W.T).square().sum() + problem.rho * d.square().sum()
    tau = next(tau for tau in taus if torch.equal(levels.project(problem.p - g / tau), step.value))
    holds = [t for t in taus if t >= tau and torch.equal(levels.project(problem.p - g / t), step.value)]
    assert any(curvature <= t * d.square().sum() * (1 + 1e-12) for t in holds)
    assert problem.phi(p=step.value) <= problem.phi() + 1e-9 * (1 + problem.phi().abs())
    close(step.m, step.value @ problem.W.T + problem.b)


@given(problems())
def test_p_quantized_on_fine_levels_is_the_linearized_step(problem: Problem) -> None:
    levels = Levels(torch.linspace(-200, 200, 2**16, dtype=torch.float64))
    problem = problem._replace(p=levels.project(problem.p), rho=1.0 + problem.rho)
    g = problem.p_gradient()
    plain = p_linearized(problem.p, problem.m, problem.W, g, nu=problem.nu, rho=problem.rho)
    quantized = p_quantized(problem.p, problem.m, problem.W, g, levels, nu=problem.nu, rho=problem.rho)
    spacing = 400 / 2**16
    # The first tau may be doubled: the step is then the projection of half, a quarter, ... of the plain step.
    moved = quantized.value - problem.p
    shares = [(moved - (plain.value - problem.p) / 2**k).abs().max() for k in range(8)]
    assert min(shares) <= spacing


@pytest.mark.parametrize("quantized", [False, True])
def test_zero_gradient_makes_no_step(quantized: bool) -> None:
    p, W = torch.ones(3, 2), torch.ones(4, 2)
    m, g = p @ W.T, torch.zeros(3, 2)
    if quantized:
        step = p_quantized(p, m, W, g, Levels(torch.tensor([0.0, 1.0])), nu=1.0, rho=1.0)
    else:
        step = p_linearized(p, m, W, g, nu=1.0, rho=1.0)
    assert torch.equal(step.value, p)
    assert torch.equal(step.m, m)


def test_nan_is_not_hidden_by_the_zero_gradient_rule() -> None:
    p, W = torch.ones(3, 2), torch.ones(4, 2)
    g = torch.full((3, 2), float("nan"))
    assert p_linearized(p, p @ W.T, W, g, nu=1.0, rho=1.0).value.isnan().all()
    assert p_quantized(p, p @ W.T, W, g, Levels(torch.tensor([0.0, 1.0])), nu=1.0, rho=1.0).value.isnan().all()


@given(problems())
def test_b_step_minimises_phi(problem: Problem) -> None:
    b, m, decrement = b_step(problem.b, problem.m, problem.z)
    close(autograd(lambda b: problem.phi(b=b), b), torch.zeros_like(b), 1e-9)
    close(m, problem.p @ problem.W.T + b)
    close(decrement, problem.b - b)


@given(problems())
def test_q_step_minimises_the_lagrangian(problem: Problem) -> None:
    p_next, u, fz, nu, rho = problem.p, problem.u, problem.q, problem.nu, problem.rho

    def lagrangian(q: Tensor) -> Tensor:
        gap = p_next - q
        return nu / 2 * (q - fz).square().sum() + (u * gap).sum() + rho / 2 * gap.square().sum()

    q = q_step(p_next, u, fz, nu=nu, rho=rho)
    close(autograd(lagrangian, q), torch.zeros_like(q), 1e-8)
    levels = Levels(torch.tensor([-1.0, 0.0, 0.5, 2.0], dtype=torch.float64))
    on_levels = q_step(p_next, u, fz, nu=nu, rho=rho, levels=levels)
    # The objective is the same parabola in every entry: the best level is the nearest one.
    candidates = torch.stack([torch.full_like(q, value.item()) for value in levels.values])
    close((on_levels - q).abs(), (candidates - q).abs().min(0).values)


@given(problems())
def test_u_step_is_the_definition_and_gives_the_identity(problem: Problem) -> None:
    p_next, u, fz, nu, rho = problem.p, problem.u, problem.q, problem.nu, problem.rho
    q = q_step(p_next, u, fz, nu=nu, rho=rho)
    u_new = u_step(u, p_next, q, rho=rho)
    close(u_new, u + rho * (p_next - q))
    close(u_new, nu * (q - fz), 1e-8)
