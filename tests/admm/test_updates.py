"""Each step against brute force in float64, on random small problems."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pdadmm_g.admm.levels import PAPER_LEVELS, Levels
from pdadmm_g.admm.rows import Rows, squared_norm
from pdadmm_g.admm.updates import (
    Step,
    W_exact,
    W_gradient,
    W_inverse,
    W_linearized,
    b_decrement,
    gram,
    p_exact,
    p_gradient,
    p_inverse,
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
    def rows(self) -> Rows:
        return Rows(len(self.p))

    @property
    def r(self) -> Tensor:
        return self.residual()

    def residual(self, p: Tensor | None = None, W: Tensor | None = None, b: Tensor | None = None) -> Tensor:
        """p W^T + b - z, some of them replaced."""
        p = self.p if p is None else p
        W = self.W if W is None else W
        return p @ W.T + (self.b if b is None else b) - self.z

    def phi(self, p: Tensor | None = None, W: Tensor | None = None, b: Tensor | None = None) -> Tensor:
        """The layer's terms of the Lagrangian, from their definition."""
        fit = self.nu / 2 * self.residual(p, W, b).square().sum()
        p, W = self.p if p is None else p, self.W if W is None else W
        fit = fit + self.mu / 2 * (W - self.W0).square().sum()
        return fit + (self.u * (p - self.q)).sum() + self.rho / 2 * (p - self.q).square().sum()

    def p_gradient(self) -> Tensor:
        return p_gradient(self.r @ self.W, self.p, self.q, self.u, nu=self.nu, rho=self.rho)


def assert_product_is_the_change_of_r(problem: Problem, step: Step, tolerance: float = 1e-9, **changed: Tensor) -> None:
    close(problem.r - step.length * step.product, problem.residual(**changed), tolerance)


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


def test_squared_norm_keeps_its_digits_in_float32() -> None:
    x = torch.randn(4000, 1000, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(squared_norm(x).double(), x.double().square().sum(), rtol=1e-6, atol=0)


@given(problems())
def test_gradients_are_those_of_phi(problem: Problem) -> None:
    close(problem.p_gradient(), autograd(lambda p: problem.phi(p=p), problem.p))
    decay = problem.W - problem.W0 if problem.mu else None
    G = W_gradient(problem.r.T @ problem.p, decay, nu=problem.nu, mu=problem.mu)
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
def test_linearized_steps_are_the_longest_safe_ones(problem: Problem) -> None:
    g = problem.p_gradient()
    step = p_linearized(problem.W, g, nu=problem.nu, rho=problem.rho, rows=problem.rows)
    p = step.of(problem.p)
    assert_smallest_majoriser(lambda p: problem.phi(p=p), problem.p, g, p, step.descent)
    assert_product_is_the_change_of_r(problem, step, p=p)
    G = autograd(lambda W: problem.phi(W=W), problem.W)
    step = W_linearized(problem.p, G, nu=problem.nu, mu=problem.mu, rows=problem.rows)
    W = step.of(problem.W)
    assert_smallest_majoriser(lambda W: problem.phi(W=W), problem.W, G, W, step.descent)
    assert_product_is_the_change_of_r(problem, step, W=W)


@given(problems(mu=penalty))
def test_exact_steps_minimise_phi(problem: Problem) -> None:
    nu, mu = problem.nu, problem.mu
    steps = {
        "p": p_exact(problem.W, problem.p_gradient(), nu=nu, rho=problem.rho, rows=problem.rows),
        "W": W_exact(problem.W, problem.W0, problem.p, problem.r, nu=nu, mu=mu, rows=problem.rows),
    }
    for name, step in steps.items():
        before = getattr(problem, name)
        new = step.of(before)
        start, gradient = (autograd(lambda x, name=name: problem.phi(**{name: x}), at) for at in (before, new))
        assert gradient.abs().max() <= 1e-9 * (1 + start.abs().max())
        assert_product_is_the_change_of_r(problem, step, 1e-8, **{name: new})
        close(step.descent, problem.phi() - problem.phi(**{name: new}), 1e-8)


@given(problems(mu=st.just(0.0)))
def test_W_exact_without_decay_minimises_phi_plus_its_proximal_term(problem: Problem) -> None:
    epsilon = gram(problem.p, nu=problem.nu, mu=0.0, rows=problem.rows).ridge
    assert epsilon > 0
    step = W_exact(problem.W, problem.W0, problem.p, problem.r, nu=problem.nu, mu=0.0, rows=problem.rows)

    def objective(W: Tensor) -> Tensor:
        return problem.phi(W=W) + epsilon / 2 * (W - problem.W).square().sum()

    W = step.of(problem.W)
    start, gradient = autograd(objective, problem.W), autograd(objective, W)
    assert gradient.abs().max() <= 1e-6 * (1e-6 + start.abs().max())
    assert objective(W) <= problem.phi() + 1e-12
    assert_product_is_the_change_of_r(problem, step, 1e-6, W=W)


@pytest.mark.parametrize("nodes", [5, 12], ids=["kernel", "primal"])
@pytest.mark.parametrize("mu", [0.0, 1e-3])
def test_W_exact_survives_dead_units_in_float32(nodes: int, mu: float) -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.relu(torch.randn(nodes, 8, generator=generator))
    p[:, :5] = 0  # five dead units: p has rank 3 at most
    W, z = torch.randn(4, 8, generator=generator), torch.randn(nodes, 4, generator=generator)
    r = p @ W.T - z
    step = W_exact(W, torch.zeros_like(W), p, r, nu=0.01, mu=mu, rows=Rows(len(p)))
    assert torch.isfinite(step.direction).all()
    assert (r - step.product).square().sum() < r.square().sum()
    torch.testing.assert_close(step.product, p @ step.direction.T, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("mu", [0.0, 0.01])
def test_W_exact_takes_the_same_step_in_both_forms(mu: float, weighted: bool) -> None:
    """Also where mu is below the floor of the ridge."""
    generator = torch.Generator().manual_seed(0)
    p, r = (10 + torch.randn(9, 20, generator=generator)), torch.randn(9, 6, generator=generator)
    W, W0 = torch.randn(6, 20, generator=generator), torch.zeros(6, 20)
    weights = torch.linspace(0.2, 3, 9) if weighted else torch.ones(9)
    all_here = Rows.of_weights(weights)
    in_parts = Rows(all_here.number, all_here.weights, OnlyPart())
    kernel, primal = (gram(p, nu=0.5, mu=mu, rows=rows) for rows in (all_here, in_parts))
    assert (kernel.kernel, primal.kernel) == (True, False)
    assert float(kernel.ridge) > max(mu, 0.1)
    assert float(kernel.ridge) == pytest.approx(float(primal.ridge), rel=1e-6)
    steps = [
        W_exact(W, W0, p, r, nu=0.5, mu=mu, rows=rows, factor=factor)
        for rows, factor in ((all_here, kernel), (in_parts, primal))
    ]
    close(steps[0].direction, steps[1].direction, 1e-3)


class OnlyPart:
    """The parts of one process, which has all rows but does not know it."""

    def sum(self, part: Tensor) -> Tensor:
        return part

    largest = sum


@given(problems())
def test_p_preconditioned_by_its_own_inverse_is_exact_and_by_another_descends(problem: Problem) -> None:
    g, given = problem.p_gradient(), {"nu": problem.nu, "rho": problem.rho}
    own = p_inverse(problem.W, **given)
    step = p_linearized(problem.W, g, own, **given, rows=problem.rows)
    close(step.of(problem.p), p_exact(problem.W, g, **given, rows=problem.rows).of(problem.p), 1e-7)
    step = p_linearized(problem.W, g, p_inverse(problem.W0, **given), **given, rows=problem.rows)
    p = step.of(problem.p)
    close(problem.phi() - problem.phi(p=p), step.descent, 1e-7)
    assert step.descent >= 0
    assert_product_is_the_change_of_r(problem, step, p=p)
    # No other length is better.
    for length in (0.99, 1.01):
        assert problem.phi(p=problem.p - length * step.length * step.direction) >= problem.phi(p=p) - 1e-9


@given(problems(mu=penalty))
def test_W_preconditioned_by_its_own_inverse_is_exact_and_by_another_descends(problem: Problem) -> None:
    given = {"nu": problem.nu, "mu": problem.mu, "rows": problem.rows}
    parts = Rows(len(problem.p), across=OnlyPart())  # no kernel form
    G = W_gradient(problem.r.T @ problem.p, problem.W - problem.W0, nu=problem.nu, mu=problem.mu)
    own, other = (W_inverse(p, nu=problem.nu, mu=problem.mu, rows=parts) for p in (problem.p, problem.q))
    step = W_linearized(problem.p, G, own, **given)
    exact = W_exact(problem.W, problem.W0, problem.p, problem.r, **given)
    close(step.of(problem.W), exact.of(problem.W), 1e-6)
    found = problem.r.sum(0, keepdim=True)
    step = W_linearized(problem.p, G, other, **given, found=found)
    W = step.of(problem.W)
    close(problem.phi() - problem.phi(W=W), step.descent, 1e-6)
    assert step.descent >= 0
    assert_product_is_the_change_of_r(problem, step, W=W)
    close(step.left, problem.residual(W=W).sum(0, keepdim=True), 1e-7)


@given(problems(), st.sampled_from(["paper", "uniform", "arbitrary"]))
def test_p_quantized_stays_in_the_levels_and_never_raises_phi(problem: Problem, kind: str) -> None:
    values = {"paper": PAPER_LEVELS, "uniform": [-2 + i / 4 for i in range(16)], "arbitrary": [-1.5, -0.2, 0, 0.1, 3]}
    levels = Levels(problem.p.new_tensor(values[kind]))
    problem = problem._replace(p=levels.project(problem.p))
    g = problem.p_gradient()
    step = p_quantized(problem.p, problem.W, g, levels, nu=problem.nu, rho=problem.rho, rows=problem.rows)
    p = levels.project(step.of(problem.p))
    close(p, step.of(problem.p), 1e-12)
    # It is the projection of a step along the gradient, by a tau that satisfies the majorisation.
    d = p - problem.p
    curvature = problem.nu * (d @ problem.W.T).square().sum() + problem.rho * d.square().sum()
    least = problem.nu * problem.W.square().sum() / problem.W.shape[1] + problem.rho
    taus = torch.cat([least * 1.001 ** torch.arange(15_000), least * 2.0 ** torch.arange(22, 60)])
    taus = taus[curvature <= taus * d.square().sum() * (1 + 1e-9)]
    assert (levels.project(problem.p - g / taus[:, None, None]) == p).all(-1).all(-1).any()
    assert problem.phi(p=p) <= problem.phi() + 1e-9 * (1 + problem.phi().abs())
    assert_product_is_the_change_of_r(problem, step, p=p)


@given(problems(), st.sampled_from(["uniform", "arbitrary"]))
def test_p_quantized_that_does_not_look_takes_the_same_step_or_none(problem: Problem, kind: str) -> None:
    values = {"uniform": [-2 + i / 4 for i in range(16)], "arbitrary": [-1.5, -0.2, 0, 0.1, 3]}
    levels = Levels(problem.p.new_tensor(values[kind]))
    problem = problem._replace(p=levels.project(problem.p))
    given = {"nu": problem.nu, "rho": problem.rho, "rows": problem.rows}
    looked = p_quantized(problem.p, problem.W, problem.p_gradient(), levels, **given)
    for tries in (1, 2, 40):
        step = p_quantized(problem.p, problem.W, problem.p_gradient(), levels, tries=tries, **given)
        if tries == 40 or step.length.all():
            assert torch.equal(step.of(problem.p), looked.of(problem.p))
        else:
            assert torch.equal(step.of(problem.p), problem.p)


@pytest.mark.parametrize("value", [0.0, float("nan")])
def test_a_zero_gradient_makes_no_step_and_does_not_hide_nan(value: float) -> None:
    p, W, g = torch.ones(3, 2), torch.ones(4, 2), torch.full((3, 2), value)
    levels, given = Levels(torch.tensor([0.0, 1.0])), {"nu": 1.0, "rho": 1.0, "rows": Rows(3)}
    for step in (p_linearized(W, g, **given), p_quantized(p, W, g, levels, **given)):
        expected = p if value == 0 else torch.full_like(p, torch.nan)
        torch.testing.assert_close(levels.project(step.of(p)), expected, rtol=0, atol=0, equal_nan=True)
        assert value != 0 or not (step.length * step.product).any()


@given(problems())
def test_b_step_minimises_phi(problem: Problem) -> None:
    decrement = b_decrement(problem.r.sum(0), problem.rows)
    close(autograd(lambda b: problem.phi(b=b), problem.b - decrement), torch.zeros_like(problem.b), 1e-9)


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
    # What the u-step leaves is the gradient of the term that q shares with z.
    close(u_step(u, p_next - q, rho=rho), nu * (q - fz), 1e-8)
