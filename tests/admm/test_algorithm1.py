"""The package against the naive transcription of Algorithm 1, epoch by epoch."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

spec = importlib.util.spec_from_file_location("naive", Path(__file__).with_name("naive.py"))
naive = importlib.util.module_from_spec(spec)
spec.loader.exec_module(naive)


@pytest.mark.parametrize(("nu", "rho"), [(0.1, 0.5), (0.01, 0.01), (1e-4, 1e-4)])
@pytest.mark.parametrize("layers", [2, 4])
def test_reproduces_algorithm_1(make_chain, layers: int, nu: float, rho: float) -> None:
    worker = make_chain(layers=layers, nu=nu, rho=rho, mu=0.0, solver="linearized", nodes=15)
    reference = naive.NaivePdADMM(
        [layer.W.numpy() for layer in worker.layers],
        [layer.b.numpy() for layer in worker.layers],
        worker.ends.X.T.numpy(),
        worker.ends.targets.t.numpy(),
        nu=nu,
        rho=rho,
    )
    for epoch in range(30):
        worker.epoch()
        reference.epoch()
        inner = worker.boundaries[1:-1]
        ours = {
            "p": [boundary.p.T for boundary in inner],
            "W": [layer.W for layer in worker.layers],
            "b": [layer.b for layer in worker.layers],
            "z": [layer.z.T for layer in worker.layers],
            "q": [boundary.q.T for boundary in inner],
            "u": [boundary.u.T for boundary in inner],
        }
        theirs = {
            "p": reference.p[1:],
            "W": reference.W,
            "b": reference.b,
            "z": reference.z,
            "q": reference.q,
            "u": reference.u,
        }
        for symbol, tensors in ours.items():
            for layer, (mine, other) in enumerate(zip(tensors, theirs[symbol], strict=True), start=1):
                other = torch.from_numpy(other)
                scale = 1 + other.abs().max()
                difference = float((mine - other).abs().max() / scale)
                assert difference < 1e-10, f"{symbol}_{layer} differs by {difference} after epoch {epoch + 1}"
