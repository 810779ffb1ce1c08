"""The Triton kernels against the phases that they replace, run by Triton's interpreter: no GPU is needed."""

from __future__ import annotations

import pytest
import torch

from pdadmm_g.admm.activations import ACTIVATIONS
from pdadmm_g.admm.levels import Levels
from pdadmm_g.engine import phases

kernels = pytest.importorskip("pdadmm_g.engine.kernels", exc_type=ImportError)

NODES, WIDTH = 150, 70  # neither a multiple of a block or tile


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "BLOCK", 256)
    monkeypatch.setattr(kernels, "STRIP", 128)


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def compare(name: str, tensors: list[torch.Tensor | None], tolerance: float = 1e-5, **settings: object) -> None:
    """What the kernel writes and returns is what the phase does."""
    phase = getattr(phases, name)
    tensors = [*tensors, None]  # rows without weights
    expected = [None if x is None else x.clone() for x in tensors]
    kernel = kernels.kernel_for(phase, tuple(tensors), settings)
    assert kernel is not None
    returned, wanted = kernel(*tensors, **settings), phase(*expected, **settings)
    torch.testing.assert_close(tensors, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    torch.testing.assert_close(returned, wanted, rtol=tolerance, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize("keeps_u", [True, False])
@pytest.mark.parametrize("activation", ["relu", "leaky-relu", "identity"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_gradient(keeps_u: bool, activation: str, kind: torch.dtype) -> None:
    rW, p, q, other = (random(1, NODES, WIDTH, seed=seed) for seed in range(4))
    u, z = (other, None) if keeps_u else (None, other)
    tolerance = 1e-5 if kind is torch.float32 else 1e-2  # the interpreter cuts bits off instead of rounding
    compare("gradient", [rW.to(kind), p, q, u, z], tolerance, f=ACTIVATIONS[activation], nu=0.7, rho=3.0)


@pytest.mark.parametrize("copy", ["none", "rounded", "transposed"])
def test_move_and_sum(copy: str) -> None:
    x, direction = random(1, NODES, WIDTH, seed=0), random(1, NODES, WIDTH, seed=1)
    copies = {
        "none": None,
        "rounded": torch.empty(1, NODES, WIDTH, dtype=torch.bfloat16),
        "transposed": torch.empty(1, WIDTH, 160)[..., :NODES].mT,
    }
    tolerance = 1e-2 if copy == "rounded" else 1e-5
    compare("move_and_sum", [x, direction, copies[copy]], tolerance, length=torch.full((1, 1, 1), 0.3))


def test_a_step_of_length_one() -> None:
    x, direction = random(1, NODES, WIDTH, seed=0), random(1, NODES, WIDTH, seed=1)
    compare("move_and_sum", [x, direction, None], length=1.0)


def z_q_u_tensors(keeps_u: bool) -> list[torch.Tensor | None]:
    z, r, product, q, u, p = (random(1, NODES, WIDTH, seed=seed) for seed in range(6))
    return [z, r, product, q, u if keeps_u else None, p]


@pytest.mark.parametrize("keeps_u", [True, False])
@pytest.mark.parametrize("activation", ["relu", "leaky-relu", "identity"])
def test_z_q_u(keeps_u: bool, activation: str) -> None:
    settings = {"length": torch.full((1, 1, 1), 0.2), "decrement": random(1, 1, WIDTH, seed=9), "nu": 0.7, "rho": 3.0}
    compare("z_q_u", z_q_u_tensors(keeps_u), f=ACTIVATIONS[activation], levels=None, **settings)


@pytest.mark.parametrize("place", range(6))
def test_z_q_u_does_not_hide_nan(place: int) -> None:
    tensors = z_q_u_tensors(keeps_u=True)
    tensors[place][0, 3, 5] = torch.nan
    settings = {"length": torch.full((1, 1, 1), 0.2), "decrement": torch.zeros(1, 1, WIDTH), "nu": 0.7, "rho": 3.0}
    compare("z_q_u", tensors, f=ACTIVATIONS["relu"], levels=None, **settings)


def test_what_has_no_kernel() -> None:
    x, weights = torch.ones(1, 4, 3), torch.ones(4, 1)
    settings = {"f": ACTIVATIONS["relu"], "nu": 1.0, "rho": 5.0}

    def has_kernel(phase, *tensors: torch.Tensor | None, **other: object) -> bool:
        return kernels.kernel_for(phase, tensors, settings | other) is not None

    assert has_kernel(phases.gradient, x, x, x, x, None, None)
    assert not has_kernel(phases.gradient, x, x, x, x, None, weights)
    assert not has_kernel(phases.gradient, *[x.double()] * 4, None, None)
    assert not has_kernel(phases.gradient, *[x.expand(2, 4, 3)] * 4, None, None)
    assert not has_kernel(phases.gradient, x, x, x, x, None, None, f=ACTIVATIONS["tanh"])
    assert not has_kernel(phases.move, x, x, None, length=torch.ones(1))
    assert not has_kernel(phases.z_q_u, *[x] * 6, None, levels=Levels(torch.tensor([0.0, 1.0])))
