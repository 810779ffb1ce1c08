"""The Triton kernels against the phases that they replace: on a GPU, or where there is none by Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from pdadmm_g.admm import updates
from pdadmm_g.admm.activations import ACTIVATIONS
from pdadmm_g.admm.levels import Levels
from pdadmm_g.engine import phases

kernels = pytest.importorskip("pdadmm_g.engine.kernels", exc_type=ImportError)

NODES, WIDTH = 70, 37  # neither a multiple of a block or tile
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "BLOCK", 256)
    for name, value in (("ROWS", 16), ("STRIP", 32), ("COLUMNS", 32)):
        monkeypatch.setattr(kernels, name, value)


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def full(*shape: int, value: float) -> torch.Tensor:
    return torch.full(shape, value, device=DEVICE)


def weights_of(kind: str) -> torch.Tensor | None:
    """Weights of the rows as the worker passes them, not one after the other in memory."""
    return None if kind == "none" else torch.linspace(0.1, 5.0, 2 * NODES, device=DEVICE)[::2, None]


weighted = pytest.mark.parametrize("weights", ["none", "every other"])


def compare(
    name: str, tensors: list[torch.Tensor | None], tolerance: float = 1e-5, *, weights: str = "none", **settings: object
) -> None:
    """What the kernel writes and returns is what the phase does."""
    phase = getattr(phases, name, None) or getattr(updates, name)
    tensors = [*tensors, *([] if name == "move" else [weights_of(weights)])]
    expected = [None if x is None else x.clone() for x in tensors]
    kernel = kernels.kernel_for(phase, tuple(tensors), settings)
    assert kernel is not None
    returned, wanted = kernel(*tensors, **settings), phase(*expected, **settings)
    torch.testing.assert_close(tensors, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    torch.testing.assert_close(returned, wanted, rtol=tolerance, atol=1e-3, equal_nan=True)


@weighted
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("keeps_u", "activation"), [(True, "relu"), (False, "leaky-relu"), (False, "identity")])
def test_gradient(keeps_u: bool, activation: str, kind: torch.dtype, weights: str) -> None:
    rW, p, q, other = (random(1, NODES, WIDTH, seed=seed) for seed in range(4))
    u, z = (other, None) if keeps_u else (None, other)
    tolerance = 1e-5 if kind is torch.float32 else 1e-2  # the interpreter cuts bits off instead of rounding
    settings = {"f": ACTIVATIONS[activation], "nu": 0.7, "rho": 3.0}
    compare("gradient", [rW.to(kind), p, q, u, z], tolerance, weights=weights, **settings)


@weighted
@pytest.mark.parametrize("copy", ["none", "rounded", "transposed"])
def test_move_and_sum(copy: str, weights: str) -> None:
    x, direction = random(1, NODES, WIDTH, seed=0), random(1, NODES, WIDTH, seed=1)
    copies = {
        "none": None,
        "rounded": torch.empty(1, NODES, WIDTH, dtype=torch.bfloat16, device=DEVICE),
        "transposed": torch.empty(1, WIDTH, 96, device=DEVICE)[..., :NODES].mT,
    }
    tolerance = 1e-2 if copy == "rounded" else 1e-5
    length = 1.0 if copy == "none" else full(1, 1, 1, value=0.3)
    compare("move_and_sum", [x, direction, copies[copy]], tolerance, weights=weights, length=length)


#: Steps of an eighth, which no rounding moves to another level; the largest values are beyond the last.
LEVELS = Levels(torch.arange(-10, 11, device=DEVICE) / 8)


@pytest.mark.parametrize("levels", [None, LEVELS])
@pytest.mark.parametrize("copy", [None, torch.bfloat16])
def test_move(levels: Levels | None, copy: torch.dtype | None) -> None:
    x, direction = random(1, NODES, WIDTH, seed=0), random(1, NODES, WIDTH, seed=1)
    x[0, 3, 5] = torch.nan
    other = None if copy is None else torch.empty(x.shape, dtype=copy, device=DEVICE)
    compare("move", [x, direction, other], 1e-5 if copy is None else 1e-2, length=0.25, levels=levels)


@weighted
@pytest.mark.parametrize(("hole", "kind"), [(False, torch.float32), (True, torch.bfloat16)])
def test_norm_and_columns(hole: bool, kind: torch.dtype, weights: str) -> None:
    x = random(1, NODES, WIDTH, seed=0).to(kind)
    x[0, 3, 5] = torch.nan if hole else 0.0
    compare("norm_and_columns", [x], weights=weights)


@weighted
@pytest.mark.parametrize(("hole", "kind"), [(False, torch.float32), (True, torch.bfloat16)])
def test_quantized_move(hole: bool, kind: torch.dtype, weights: str) -> None:
    d, p, g = (random(1, NODES, WIDTH, seed=seed) for seed in range(3))
    g[0, 3, 5] = torch.nan if hole else 0.0
    p, length = LEVELS.project(p), full(1, 1, 1, value=0.5)
    # As short as the gradient: a few eighths are exact in bfloat16.
    compare("quantized_move", [d.to(kind), p, g.to(kind)], weights=weights, levels=LEVELS, length=length)


def z_q_u_tensors(keeps_u: bool) -> list[torch.Tensor | None]:
    z, r, product, q, u, p = (random(1, NODES, WIDTH, seed=seed) for seed in range(6))
    return [z, r, product, q, u if keeps_u else None, p, None]


def z_q_u_settings(activation: str, levels: Levels | None) -> dict[str, object]:
    settings = {"f": ACTIVATIONS[activation], "nu": 0.7, "rho": 3.0, "levels": levels}
    return settings | {"length": full(1, 1, 1, value=0.2), "decrement": random(1, 1, WIDTH, seed=9)}


Z_Q_U = {
    "u is kept": (True, "relu", None, None),
    "u follows": (False, "leaky-relu", None, None),
    "no bend": (True, "identity", None, None),
    "on levels": (True, "relu", LEVELS, None),
    "the pull is kept": (False, "relu", None, torch.bfloat16),
    "the pull is kept on levels": (True, "relu", LEVELS, torch.float32),
}


@weighted
@pytest.mark.parametrize("case", Z_Q_U)
def test_z_q_u(case: str, weights: str) -> None:
    keeps_u, activation, levels, pull = Z_Q_U[case]
    tensors = z_q_u_tensors(keeps_u)
    if pull is not None:
        tensors[-1] = torch.empty(1, NODES, WIDTH, dtype=pull, device=DEVICE)
    tolerance = 1e-2 if pull is torch.bfloat16 else 1e-5  # the interpreter cuts bits off instead of rounding
    compare("z_q_u", tensors, tolerance, weights=weights, **z_q_u_settings(activation, levels))


@pytest.mark.parametrize("levels", [None, LEVELS])
@pytest.mark.parametrize("place", range(6))
def test_z_q_u_does_not_hide_nan(place: int, levels: Levels | None) -> None:
    tensors = z_q_u_tensors(keeps_u=True)
    tensors[place][0, 3, 5] = torch.nan
    compare("z_q_u", tensors, **z_q_u_settings("relu", levels))


@pytest.mark.parametrize("width", [1, 7, 256, 300])
def test_each_value_counts_with_the_weight_of_its_row(width: int) -> None:
    """Whole numbers, of which every sum is exact: rows shorter and longer than a block, and just as long."""
    counts = torch.arange(NODES, device=DEVICE).remainder(7).add(1.0)
    x, zeros = full(1, NODES, width, value=1.0), full(1, NODES, width, value=0.0)
    settings = {"f": ACTIVATIONS["identity"], "nu": 1.0, "rho": 1.0}
    norm = kernels.gradient(x.clone(), zeros, zeros, zeros, None, counts[:, None], **settings)
    assert norm.item() == width * counts.sum()
    sums = kernels.move_and_sum(x, zeros, None, counts[:, None], length=1.0)
    assert sums.equal(counts.sum().expand(1, 1, width))
    size, columns = kernels.norm_and_columns(2 * x, counts[:, None])
    assert size.item() == 4 * width * counts.sum()
    assert columns.equal(2 * sums)


def test_what_has_no_kernel() -> None:
    x, weights = full(1, 4, 3, value=1.0), full(4, 1, value=1.0)
    settings = {"f": ACTIVATIONS["relu"], "nu": 1.0, "rho": 5.0}

    def has_kernel(phase, *tensors: torch.Tensor | None, **other: object) -> bool:
        return kernels.kernel_for(phase, tensors, settings | other) is not None

    assert has_kernel(phases.gradient, x, x, x, x, None, None)
    assert has_kernel(phases.gradient, x, x, x, x, None, weights)
    assert not has_kernel(phases.gradient, x, x, x, x, None, weights.double())
    assert not has_kernel(phases.gradient, *[x.double()] * 4, None, None)
    assert not has_kernel(phases.gradient, *[x.expand(2, 4, 3)] * 4, None, None)
    assert not has_kernel(phases.gradient, x, x, x, x, None, None, f=ACTIVATIONS["tanh"])
    assert has_kernel(phases.move, x, x, None, length=torch.ones(1))
    assert not has_kernel(phases.move, x, x, x.mT.contiguous().mT, length=torch.ones(1))
    assert has_kernel(updates.norm_and_columns, x, None)
    assert not has_kernel(updates.norm_and_columns, x.mT.contiguous().mT, None)
    assert has_kernel(phases.z_q_u, *[x] * 7, None, levels=Levels(torch.tensor([0.0, 1.0])))
    assert not has_kernel(phases.z_q_u, *[x] * 7, None, levels=Levels(torch.tensor([0.0, 1.0, 3.0])))
