"""Layers that take their steps together, and u where it is not kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from pdadmm_g.admm.state import Quantization
from pdadmm_g.engine import stacking
from pdadmm_g.engine.worker import Worker

VARIABLES = ("W", "b", "z", "r")


def state(worker: Worker) -> Iterator[Tensor]:
    for layer in worker.layers:
        yield from (getattr(layer, name) for name in VARIABLES)
    for place, boundary in enumerate(worker.boundaries[1:-1]):
        assert boundary is not None
        yield from (boundary.p, boundary.q, worker.u(place))


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


QUANTIZATIONS = {
    "p and q": Quantization(p=True, q=True, bits=5),
    "p": Quantization(p=True, levels=tuple(step / 8 for step in range(-3, 30))),
}


@pytest.mark.parametrize("quantized", [None, *QUANTIZATIONS])
@pytest.mark.parametrize("solver", ["linearized", "exact"])
@pytest.mark.parametrize(("activation", "workers_threads"), [("relu", 1), ("leaky-relu", 2), ("identity", 1)])
@pytest.mark.parametrize(("nodes", "hidden"), [(36, 8), (150, 160), (12, 40)])
def test_a_group_computes_bit_for_bit_what_its_layers_would_alone(
    make_chain, monkeypatch, threads, workers_threads: int, quantized, solver: str, activation: str, nodes: int, hidden
) -> None:
    threads(workers_threads)
    settings = {"layers": 6, "nodes": nodes, "hidden": hidden, "mu": 0.01, "dtype": torch.float32}

    def run() -> tuple[Worker, list[tuple]]:
        quantization = QUANTIZATIONS.get(quantized)
        worker = make_chain(solver=solver, activation=activation, quantization=quantization, **settings)
        return worker, [(*worker.epoch(), *worker.measured) for _ in range(4)]

    together, measured = run()
    monkeypatch.setitem(stacking.LARGEST, "cpu", 0)
    alone, expected = run()
    assert [len(group.layer.W) for group in together._groups] == [1, 4, 1]
    assert [len(group.layer.W) for group in alone._groups] == [1] * 6
    for a, b in zip(state(together), state(alone), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(measured[-1], expected[-1], strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("solver", ["linearized", "exact"])
@pytest.mark.parametrize("activation", ["relu", "identity", "tanh"])
def test_u_that_is_not_kept_is_the_same(make_chain, monkeypatch, solver: str, activation: str) -> None:
    monkeypatch.setitem(stacking.LARGEST, "cpu", 0)
    kept, implied = (make_chain(solver=solver, activation=activation, keep_u=keep) for keep in (True, False))
    assert all(boundary.u is None for boundary in implied.boundaries[1:-1])
    for _ in range(8):
        torch.testing.assert_close(implied.epoch(), kept.epoch(), rtol=1e-7, atol=1e-10)
    for a, b in zip(state(implied), state(kept), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(implied.measured, kept.measured, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("solver", ["linearized", "exact"])
def test_products_in_bfloat16_descend_like_the_others(make_chain, solver: str) -> None:
    def objectives(precision: str) -> list[float]:
        worker = make_chain(solver=solver, precision=precision, dtype=torch.float32, mu=0.01, nodes=200, hidden=16)
        values = []
        for _ in range(20):
            worker.epoch()
            values.append(float(worker.risk()) + float(worker.measured.objective.double().sum()))
        return values

    exact, rounded = objectives("fp32"), objectives("bf16")
    assert all(after <= before * (1 + 1e-4) for before, after in pairwise(rounded))
    assert rounded == pytest.approx(exact, rel=1e-2)
    assert rounded != exact
