from __future__ import annotations

import pytest
import torch

from pdadmm_g.admm.state import Quantization
from pdadmm_g.engine.stacking import LARGEST


@pytest.mark.parametrize("quantization", [Quantization(), Quantization(p=True, q=True, bits=5)], ids=["plain", "pq5"])
@pytest.mark.parametrize("solver", ["linearized", "exact"])
def test_the_pull_of_a_boundary_saves_reading_it_again(
    make_chain, monkeypatch: pytest.MonkeyPatch, solver: str, quantization: Quantization
) -> None:
    """Large layers on a GPU keep it, here any. The gradient is rounded once instead of twice."""
    monkeypatch.setitem(LARGEST, "cpu", 0)
    results = []
    for keeps_u in (True, False):
        monkeypatch.setattr("pdadmm_g.engine.worker.keeps_u", lambda like, answer=keeps_u: answer)
        worker = make_chain(
            nodes=60, hidden=16, layers=4, solver=solver, quantization=quantization, precision="bf16", nu=1.0,
            rho=5.0, dtype=torch.float32, keep_u=keeps_u,
        )  # fmt: skip
        assert worker._pulls.keys() == (set() if keeps_u else {1, 2, 3})
        start = torch.cat([layer.z.flatten() for layer in worker.layers])
        for _ in range(10):
            worker.epoch()
        results.append(torch.cat([layer.z.flatten() for layer in worker.layers]) - start)
    plain, pulled = results
    assert (pulled - plain).norm() <= 0.02 * plain.norm()
