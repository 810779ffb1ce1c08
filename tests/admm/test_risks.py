from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pdadmm_g.admm.risks import RISKS
from pdadmm_g.admm.targets import Targets


def random_problem(seed: int, nodes: int, classes: int, scale: float) -> tuple[Tensor, Targets, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    m, z_old = (scale * torch.randn(nodes, classes, generator=generator, dtype=torch.float64) for _ in range(2))
    return m, Targets(torch.randint(classes, (nodes,), generator=generator)), z_old


@pytest.mark.parametrize("name", RISKS)
@given(
    seed=st.integers(0, 10**6),
    nodes=st.integers(1, 6),
    classes=st.integers(1, 8),
    log_nu=st.floats(-5, 2),
    scale=st.sampled_from([0.1, 1.0, 30.0, 300.0]),
)
def test_z_step_of_the_last_layer_is_stationary(
    name: str, seed: int, nodes: int, classes: int, log_nu: float, scale: float
) -> None:
    m, y, z_old = random_problem(seed, nodes, classes, scale)
    nu = 10.0**log_nu
    z = RISKS[name].argmin_z(m, y, nu, z_old).requires_grad_()
    # The objective is strictly convex: a vanishing gradient is the global minimum.
    (RISKS[name](z, y) + nu / 2 * (z - m).square().sum()).backward()
    assert z.grad.abs().max() < 1e-11 * (1 + nu * m.abs().max())


@pytest.mark.parametrize("name", RISKS)
def test_z_step_does_not_depend_on_the_warm_start(name: str) -> None:
    m, y, z_old = random_problem(0, 50, 7, 3.0)
    z = RISKS[name].argmin_z(m, y, 1e-4, z_old)
    for other in (m, torch.zeros_like(m), z_old * 100):
        torch.testing.assert_close(RISKS[name].argmin_z(m, y, 1e-4, other), z, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("nu", [1e-4, 1e-2, 1.0])
def test_cross_entropy_in_float32_is_near_float64(nu: float) -> None:
    m, y, z_old = random_problem(1, 200, 7, 5.0)
    exact = RISKS["cross-entropy"].argmin_z(m, y, nu, z_old)
    single = RISKS["cross-entropy"].argmin_z(m.float(), y, nu, z_old.float())

    def objective(z: Tensor) -> Tensor:
        return RISKS["cross-entropy"](z, y) + nu / 2 * (z - m).square().sum()

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


def test_a_warm_start_needs_no_look() -> None:
    """From the minimum of the epoch before, one call is exact."""
    risk = RISKS["cross-entropy"]
    m, y, z = random_problem(2, 200, 7, 3.0)
    z = risk.argmin_z(m, y, 1.0, z)
    moved = m + 0.3 * random_problem(3, 200, 7, 1.0)[0]
    torch.testing.assert_close(
        risk.argmin_z_blind(moved, y, 1.0, z), risk.argmin_z(moved, y, 1.0, z), rtol=1e-9, atol=1e-9
    )


def test_values_by_hand() -> None:
    z, y = torch.tensor([[0.0, 0.0], [1.0, 3.0]], dtype=torch.float64), Targets(torch.tensor([0, 1]))
    two, e = torch.tensor(2.0, dtype=torch.float64), torch.tensor(-2.0, dtype=torch.float64)
    torch.testing.assert_close(RISKS["cross-entropy"](z, y), two.log() + e.exp().log1p())
    torch.testing.assert_close(RISKS["squared-error"](z, y), torch.tensor(0.5 + 0.5 + 2.0, dtype=torch.float64))


@pytest.mark.parametrize("name", RISKS)
def test_nan_is_returned_and_does_not_loop(name: str) -> None:
    m = torch.full((3, 4), float("nan"))
    y = Targets(torch.tensor([0, 1, 2]))
    z = RISKS[name].argmin_z(m, y, 0.1, torch.zeros(3, 4))
    assert not torch.isfinite(RISKS[name](z, y) + (z - m).square().sum())
