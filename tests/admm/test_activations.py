from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from pdadmm_g.admm.activations import ACTIVATIONS
from pdadmm_g.model import _MODULES

value = st.floats(-6, 6) | st.floats(-60, 60)


def objective(name: str, z: np.ndarray | float, m: float, q: float, z_old: float) -> np.ndarray:
    f = ACTIVATIONS[name](torch.as_tensor(z, dtype=torch.float64)).numpy()
    return (z - m) ** 2 + (q - f) ** 2 + (z - z_old) ** 2


def brute_force(name: str, m: float, q: float, z_old: float) -> float:
    """The smallest value over a fine grid, refined around its best points."""
    reach = 2 + abs(m) + abs(q) + abs(z_old)
    grid = np.concatenate([np.linspace(-reach, reach, 20001), np.linspace(-20, 20, 20001)])
    values = objective(name, grid, m, q, z_old)
    best = values.min()
    for start in grid[np.argsort(values)[:5]]:
        width = reach / 5000 + 0.01
        found = minimize_scalar(
            lambda z: float(objective(name, z, m, q, z_old)),
            bounds=(start - width, start + width),
            method="bounded",
            options={"xatol": 1e-12},
        )
        best = min(best, found.fun)
    return best


@pytest.mark.parametrize("name", ACTIVATIONS)
@given(value, value, value)
def test_z_step_is_the_global_minimum(name: str, m: float, q: float, z_old: float) -> None:
    arguments = [torch.tensor([x], dtype=torch.float64) for x in (m, q, z_old)]
    z = ACTIVATIONS[name].argmin_z(*arguments).item()
    best = brute_force(name, m, q, z_old)
    assert objective(name, z, m, q, z_old) <= best + 1e-9 * (1 + best)


@pytest.mark.parametrize(("name", "reach"), [("tanh", 8), ("sigmoid", 20)])
def test_smooth_z_step_finds_the_deeper_of_two_valleys(name: str, reach: float) -> None:
    """Thousands of subproblems against a grid so fine that it resolves every valley."""
    generator = torch.Generator().manual_seed(0)
    c, q = (reach / 2 * (2 * torch.rand(4000, generator=generator, dtype=torch.float64) - 1) for _ in range(2))
    c[0], q[0] = -1.8666, 3.1907
    activation = ACTIVATIONS[name]
    z = activation.argmin_z(c, q, c)
    grid = torch.linspace(-reach, reach, 8001, dtype=torch.float64)
    f = activation(grid)
    least = torch.stack([(2 * (grid - c[i]).square() + (q[i] - f).square()).min() for i in range(len(c))])
    assert (2 * (z - c).square() + (q - activation(z)).square() <= least + 1e-9).all()


@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
def test_smooth_z_step_is_accurate_to_float_precision(name: str, dtype: torch.dtype, tolerance: float) -> None:
    generator = torch.Generator().manual_seed(0)
    m, q, z_old = (torch.randn(2000, generator=generator, dtype=torch.float64) * 2 for _ in range(3))
    activation = ACTIVATIONS[name]
    z = activation.argmin_z(m.to(dtype), q.to(dtype), z_old.to(dtype)).double()
    f = activation(z)
    df, _ = activation.derivatives(f)
    slope = 2 * (z - m) + 2 * (z - z_old) - 2 * (q - f) * df
    assert slope.abs().max() < tolerance * 20


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_z_step_does_not_change_its_arguments(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    arguments = [torch.randn(50, generator=generator) for _ in range(3)]
    copies = [x.clone() for x in arguments]
    ACTIVATIONS[name].argmin_z(*arguments)
    assert all(torch.equal(x, copy) for x, copy in zip(arguments, copies, strict=True))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_its_module_and_its_lipschitz_constant_is_tight(name: str) -> None:
    z = torch.linspace(-8, 8, 100001, dtype=torch.float64)
    f = ACTIVATIONS[name](z)
    assert (f.diff().abs() / z.diff()).max().item() == pytest.approx(ACTIVATIONS[name].lipschitz, rel=1e-6)
    torch.testing.assert_close(f, _MODULES[name]()(z), rtol=0, atol=0)
    assert set(ACTIVATIONS) == set(_MODULES)


@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_nan_passes_through_the_safeguards(name: str) -> None:
    nan, one = torch.tensor([float("nan")]), torch.ones(1)
    assert ACTIVATIONS[name].argmin_z(nan, one, one).isnan().all()
