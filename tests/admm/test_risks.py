from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pdadmm_g.admm.risks import RISKS, Targets


def random_problem(
    seed: int, nodes: int, classes: int, scale: float, *, soft: bool = False, weighted: bool = False
) -> tuple[Tensor, Targets, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    m, z_old = (scale * torch.randn(nodes, classes, generator=generator, dtype=torch.float64) for _ in range(2))
    t = torch.randint(classes, (nodes,), generator=generator)
    if soft:
        t = torch.softmax(3 * torch.randn(nodes, classes, generator=generator, dtype=torch.float64), dim=1)
    weights = torch.rand(nodes, generator=generator, dtype=torch.float64) + 0.1 if weighted else None
    return m, Targets(t, weights), z_old


@pytest.mark.parametrize("name", RISKS)
@given(
    seed=st.integers(0, 10**6),
    nodes=st.integers(1, 6),
    classes=st.integers(1, 8),
    log_nu=st.floats(-5, 2),
    scale=st.sampled_from([0.1, 1.0, 30.0, 300.0]),
    soft=st.booleans(),
    weighted=st.booleans(),
)
def test_z_step_of_the_last_layer_is_stationary(
    name: str, seed: int, nodes: int, classes: int, log_nu: float, scale: float, soft: bool, weighted: bool
) -> None:
    m, y, z_old = random_problem(seed, nodes, classes, scale, soft=soft, weighted=weighted)
    nu = 10.0**log_nu
    z = RISKS[name].argmin_z(m, y, nu, z_old).requires_grad_()
    # The objective is strictly convex: a vanishing gradient is the global minimum.
    (RISKS[name](z, y) + nu / 2 * y.sum((z - m).square().sum(1))).backward()
    assert z.grad.abs().max() < 1e-11 * (1 + nu * m.abs().max())


@pytest.mark.parametrize("name", RISKS)
def test_z_step_does_not_depend_on_the_warm_start(name: str) -> None:
    m, y, z_old = random_problem(0, 50, 7, 3.0)
    z = RISKS[name].argmin_z(m, y, 1e-4, z_old)
    for other in (m, torch.zeros_like(m), z_old * 100):
        torch.testing.assert_close(RISKS[name].argmin_z(m, y, 1e-4, other), z, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["cross-entropy", "logistic"])
@pytest.mark.parametrize("nu", [1e-4, 1e-2, 1.0])
def test_float32_is_near_float64(name: str, nu: float) -> None:
    m, y, z_old = random_problem(1, 200, 7, 5.0)
    exact, single = (RISKS[name].argmin_z(x, y, nu, z) for x, z in ((m, z_old), (m.float(), z_old.float())))

    def objective(z: Tensor) -> Tensor:
        return RISKS[name](z, y) + nu / 2 * (z - m).square().sum()

    assert objective(single.double()) <= objective(exact) * (1 + 1e-5)


@pytest.mark.parametrize("nu", [1e-3, 1e-2, 1.0])
def test_steps_without_a_look_always_descend_to_the_same_minimum(nu: float) -> None:
    """For CUDA graphs: a call makes every node better or leaves it, and calls end at the minimum."""
    risk = RISKS["cross-entropy"]
    m, y, z = random_problem(1, 200, 7, 20.0)
    exact = risk.argmin_z(m, y, nu, z)
    value = risk._node_objective(z, m, y, nu)
    for _ in range(60):
        z = risk.argmin_z_blind(m, y, nu, z)
        value, before = risk._node_objective(z, m, y, nu), value
        assert bool((value <= before + 1e-9 * (1 + before.abs())).all())
    torch.testing.assert_close(z, exact, rtol=1e-7, atol=1e-7)
    # From a minimum, which the epoch before has left, one call is exact.
    moved = m + 0.1 * nu * random_problem(3, 200, 7, 1.0)[0]
    one, exact = risk.argmin_z_blind(moved, y, nu, exact), risk.argmin_z(moved, y, nu, exact)
    torch.testing.assert_close(one, exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("nu", [1e-3, 0.3, 4.0])
def test_each_entry_of_a_logistic_z_step_is_what_trying_all_finds(nu: float) -> None:
    """Brute force: a fine grid around every m, on which no point is better."""
    m, _, z_old = random_problem(4, 6, 3, 4.0)
    labels = Targets((torch.rand(6, 3, generator=torch.Generator().manual_seed(1)) > 0.5).double())
    z = RISKS["logistic"].argmin_z(m, labels, nu, z_old)

    def objective(z: Tensor) -> Tensor:
        return torch.nn.functional.softplus(z) - labels.t * z + nu / 2 * (z - m).square()

    # The minimiser is no further from m than 1/nu.
    grid = torch.linspace(-1, 1, 20_001, dtype=torch.float64)[:, None, None] * (1 / nu) + m
    assert bool((objective(z) <= objective(grid).amin(0) + 1e-12).all())
    nearest = grid.gather(0, objective(grid).argmin(0, keepdim=True))[0]
    torch.testing.assert_close(z, nearest, rtol=0, atol=1e-4 / nu)


def test_values_by_hand() -> None:
    z, y = torch.tensor([[0.0, 0.0], [1.0, 3.0]], dtype=torch.float64), Targets(torch.tensor([0, 1]))
    two, e = torch.tensor(2.0, dtype=torch.float64), torch.tensor(-2.0, dtype=torch.float64)
    torch.testing.assert_close(RISKS["cross-entropy"](z, y), two.log() + e.exp().log1p())
    torch.testing.assert_close(RISKS["squared-error"](z, y), torch.tensor(0.5 + 0.5 + 2.0, dtype=torch.float64))
    both = Targets(torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=torch.float64))
    by_hand = 2 * math.log(2) + math.log(1 + math.e) + math.log(1 + math.exp(-3))
    assert float(RISKS["logistic"](z, both)) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("name", RISKS)
def test_nan_is_returned_and_does_not_loop(name: str) -> None:
    m = torch.full((3, 4), float("nan"))
    y = Targets(torch.tensor([0, 1, 2]))
    z = RISKS[name].argmin_z(m, y, 0.1, torch.zeros(3, 4))
    assert not torch.isfinite(RISKS[name](z, y) + (z - m).square().sum())


@pytest.mark.parametrize("name", RISKS)
def test_a_label_is_the_distribution_with_one_one(name: str) -> None:
    m, y, z_old = random_problem(0, 9, 4, 2.0)
    sure = Targets(torch.nn.functional.one_hot(y.t, 4).double())
    assert torch.equal(sure.labels, y.labels)
    torch.testing.assert_close(RISKS[name](m, sure), RISKS[name](m, y))
    torch.testing.assert_close(RISKS[name].argmin_z(m, sure, 0.3, z_old), RISKS[name].argmin_z(m, y, 0.3, z_old))
