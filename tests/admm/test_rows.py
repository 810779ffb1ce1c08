"""Rows with weights, and rows in several processes: both against the same rows, each counted once, in one place."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from helpers.lines import ThreadLine
from pdadmm_g.admm.risks import Targets
from pdadmm_g.admm.rows import Rows
from pdadmm_g.admm.state import Boundary, Layer, Quantization
from pdadmm_g.engine.team import RowSums
from pdadmm_g.engine.worker import Ends, Worker

SETTINGS = {
    "linearized": {"solver": "linearized"},
    "exact": {"solver": "exact"},
    "exact, more features than rows": {"solver": "exact", "features": 40, "hidden": 35},
    # Without ReLU no unit is dead, and so p has full rank: else rounding decides where nothing pulls.
    "exact without decay": {"solver": "exact", "mu": 0.0, "activation": "identity"},
    "p on levels": {"quantization": Quantization(p=True, bits=6)},
    "p and q on levels": {"quantization": Quantization(p=True, q=True, bits=6)},
    "stacked": {"layers": 6, "nodes": 16, "hidden": 8},
    "soft targets": {"soft": True},
    "squared error": {"soft": True, "risk": "squared-error"},
    "tanh": {"activation": "tanh"},
}
TIMES = torch.tensor([1, 3, 2, 1, 2, 4, 1, 1])


def objective(worker: Worker) -> float:
    return float(worker.risk()) + float(worker.measured.objective.double().sum())


@pytest.mark.parametrize("name", SETTINGS)
def test_a_row_of_weight_k_is_k_equal_rows(make_chain, name: str) -> None:
    settings = {"mu": 0.02, "nodes": 16} | SETTINGS[name]
    nodes = settings["nodes"]
    times = TIMES.repeat(nodes // len(TIMES))
    weighted = make_chain(**settings, row_weights=times.double())
    repeated = make_chain(**settings, rows=torch.arange(nodes).repeat_interleave(times))
    first = times.cumsum(0) - times
    tolerance = 1e-8
    for _ in range(12):
        moves, expected = weighted.epoch(), repeated.epoch()
        torch.testing.assert_close(moves, expected, rtol=tolerance, atol=tolerance)
        assert objective(weighted) == pytest.approx(objective(repeated), rel=1e-8)
    for layer, other in zip(weighted.layers, repeated.layers, strict=True):
        torch.testing.assert_close(layer.W, other.W, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(layer.b, other.b, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(layer.z, other.z[first], rtol=tolerance, atol=tolerance)


def test_weights_make_a_difference(make_chain) -> None:
    weights = torch.linspace(1, 5, 30, dtype=torch.float64)
    plain, weighted = make_chain(), make_chain(row_weights=weights)
    for _ in range(5):
        plain.epoch()
        weighted.epoch()
    assert not torch.allclose(plain.layers[-1].W, weighted.layers[-1].W)
    assert not torch.allclose(plain.layers[-1].b, weighted.layers[-1].b)


def sharded(worker: Worker, cut: int) -> list[Worker]:
    """Two workers with all layers and with the rows before and from ``cut``."""
    number, weights = worker.rows.number, worker.rows.weights
    barrier, board = threading.Barrier(2), [None, None]
    workers = []
    for part, own in enumerate((slice(0, cut), slice(cut, None))):
        layers = [
            Layer(layer.W.clone(), layer.b.clone(), layer.W0, z=layer.z[own].clone(), r=layer.r[own].clone())
            for layer in worker.layers
        ]
        boundaries = [
            boundary
            and Boundary(
                boundary.p[own].clone(), boundary.q[own].clone(), boundary.u[own].clone(),
                boundary.p_levels, boundary.q_levels,
            )
            for boundary in worker.boundaries
        ]  # fmt: skip
        rows = Rows(number, None if weights is None else weights[own], RowSums(ThreadLine(part, 2, barrier, board)))
        t, w = worker.ends.targets
        ends = Ends(rows, worker.ends.X[own], Targets(t[own], None if w is None else w[own]))
        workers.append(Worker(layers, boundaries, worker.algorithm, ends))
    return workers


@pytest.mark.timeout(60)
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("name", SETTINGS)
def test_rows_in_two_parts_are_the_rows_in_one(make_chain, name: str, weighted: bool) -> None:
    settings = {"mu": 0.02, "nodes": 30} | SETTINGS[name]
    if weighted:
        settings["row_weights"] = torch.linspace(0.5, 3, settings["nodes"], dtype=torch.float64)
    whole = make_chain(**settings)
    parts = sharded(whole, settings["nodes"] // 3)
    tolerance = 1e-8
    with ThreadPoolExecutor(2) as pool:
        for _ in range(12):
            moves = whole.epoch()
            for found in pool.map(Worker.epoch, parts):
                torch.testing.assert_close(found, moves, rtol=tolerance, atol=1e-10)
            risks = list(pool.map(Worker.risk, parts))
            assert [float(risk) for risk in risks] == pytest.approx([float(whole.risk())] * 2, rel=1e-9)
            torch.testing.assert_close(parts[0].measured, whole.measured, rtol=tolerance, atol=1e-10)
    for one, left, right in zip(whole.layers, *(part.layers for part in parts), strict=True):
        for symbol in ("W", "b"):
            assert torch.equal(getattr(left, symbol), getattr(right, symbol)), "replicas must be the same bit for bit"
            torch.testing.assert_close(getattr(left, symbol), getattr(one, symbol), rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(torch.cat([left.z, right.z]), one.z, rtol=tolerance, atol=tolerance)
