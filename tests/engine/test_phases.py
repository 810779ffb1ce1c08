from __future__ import annotations

import gc
import weakref

import pytest
import torch

from pdadmm_g.admm.state import Quantization
from pdadmm_g.engine import phases


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
                *moves,
                *worker.measured,
            ]
        )
    for small, large in zip(*results, strict=True):
        torch.testing.assert_close(small, large, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("quantization", [Quantization(), Quantization(p=True, q=True, bits=5)], ids=["plain", "pq5"])
def test_an_epoch_measures_the_state_that_it_leaves(make_chain, quantization: Quantization) -> None:
    worker = make_chain(quantization=quantization, mu=0.01)
    for _ in range(3):
        worker.epoch()
    for place, boundary in enumerate(worker.boundaries[1:-1]):
        expected = [(boundary.p - boundary.q).square().sum(), boundary.q.square().sum()]
        found = [worker.measured.gap[place], worker.measured.output[place]]
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_a_worker_is_gone_as_soon_as_nobody_has_it(make_chain) -> None:
    """Its memory is that of the whole network: it must not wait for the garbage collector."""
    gc.disable()
    try:
        worker = make_chain()
        worker.epoch()
        gone = weakref.ref(worker)
        del worker
        assert gone() is None
    finally:
        gc.enable()
