from __future__ import annotations

import pytest
import torch

from pdadmm_g.admm.state import Quantization
from pdadmm_g.engine import phases


@pytest.mark.parametrize("block", [1, 7, 30, 1000])
def test_blocks_cover_every_row_once(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(phases, "BLOCK", block)
    x, y = torch.arange(24.0).view(8, 3), torch.ones(8, 2)

    def phase(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y += 1
        return x.sum()

    assert phases.in_blocks(phase, x, y) == x.sum()
    assert torch.equal(y, torch.full((8, 2), 2.0))


@pytest.mark.parametrize("solver", ["linearized", "exact"])
@pytest.mark.parametrize("quantization", [Quantization(), Quantization(p=True, q=True, bits=5)], ids=["plain", "pq5"])
def test_an_epoch_does_not_depend_on_the_blocks(
    monkeypatch: pytest.MonkeyPatch, make_chain, solver: str, quantization: Quantization
) -> None:
    results = []
    for block in (20, 1 << 16):
        monkeypatch.setattr(phases, "BLOCK", block)
        worker = make_chain(solver=solver, quantization=quantization, mu=0.01)
        for _ in range(5):
            moves = worker.epoch()
        inner = worker.boundaries[1:-1]
        results.append(
            [
                *(tensor for layer in worker.layers for tensor in (layer.W, layer.b, layer.z, layer.r)),
                *(tensor for boundary in inner for tensor in (boundary.p, boundary.q, boundary.u)),
                torch.tensor(moves, dtype=torch.float64),
                torch.tensor(worker.shares(), dtype=torch.float64),
            ]
        )
    for small, large in zip(*results, strict=True):
        torch.testing.assert_close(small, large, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("quantization", [Quantization(), Quantization(p=True, q=True, bits=5)], ids=["plain", "pq5"])
def test_an_epoch_measures_the_state_that_it_leaves(make_chain, quantization: Quantization) -> None:
    worker = make_chain(quantization=quantization, mu=0.01)
    for _ in range(3):
        worker.epoch()
    measured, expected = (torch.tensor(shares, dtype=torch.float64) for shares in (worker.measured, worker.shares()))
    torch.testing.assert_close(measured, expected, rtol=1e-12, atol=1e-12)


def test_small_tensors_on_a_gpu_are_taken_as_they_are() -> None:
    pytest.importorskip("triton")
    x = torch.ones(1, 4, 3)
    assert phases.fused(torch.add, x, x).equal(2 * x)


def test_sums_of_blocks_are_added_up_field_by_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "BLOCK", 3)
    W = torch.randn(1, 8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sums = phases.in_blocks(phases.move_weights, W.clone(), torch.zeros_like(W), torch.zeros_like(W), length=1.0)
    assert isinstance(sums, phases.WeightSums)
    torch.testing.assert_close(sums.decay, W.square().sum((1, 2)))
    torch.testing.assert_close(sums.W, W.sum((1, 2)))
