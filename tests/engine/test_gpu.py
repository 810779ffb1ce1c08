"""On a GPU an epoch is the same epoch: kernels, compiled phases and recorded epochs against those of a CPU."""

from __future__ import annotations

import pytest
import torch

from helpers.blobs import TRAINING, VALIDATION
from pdadmm_g.admm.state import SMALL, Quantization
from pdadmm_g.config import ModelConfig
from pdadmm_g.engine.precision import tensor_cores
from pdadmm_g.graph.examples import Examples
from pdadmm_g.training.train import train

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    pytest.mark.timeout(300),  # the first of them compile
]
QUANTIZATIONS = {"plain": Quantization(), "pq5": Quantization(p=True, q=True, bits=5)}


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The kernels that have been given weights, and "recorded" once an epoch is."""
    kernels = pytest.importorskip("pdadmm_g.engine.kernels", exc_type=ImportError)
    monkeypatch.setattr("pdadmm_g.engine.phases.WORTH_COMPILING", 0)
    seen: set[str] = set()
    for phase, kernel in kernels.KERNELS.items():

        def noted(*tensors, kernel=kernel, **settings):
            seen.update([kernel.__name__] if tensors[-1] is not None else [])
            return kernel(*tensors, **settings)

        monkeypatch.setitem(kernels.KERNELS, phase, noted)
    record = torch.cuda.graph
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: (seen.add("recorded"), record(graph))[1])
    return seen


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("quantization", QUANTIZATIONS)
@pytest.mark.parametrize("solver", ["linearized", "exact"])
def test_large_layers_of_rows_with_weights_and_probabilities(
    make_chain, used: set[str], solver: str, quantization: str, precision: str
) -> None:
    """Such weights move W by a tenth and more, rounding by less than a hundredth of that."""
    nodes, hidden = 4501, 256
    assert nodes * hidden > SMALL, "TF32 has an order of memory of its own from here on"
    results = []
    for device in ("cpu", "cuda"):
        with tensor_cores(precision if device == "cuda" else "fp32"):
            worker = make_chain(
                nodes=nodes, features=256, hidden=hidden, classes=5, layers=3, solver=solver, nu=1.0, mu=1000.0,
                quantization=QUANTIZATIONS[quantization], dtype=torch.float32, soft=True, device=device,
                row_weights=torch.logspace(-1, 1, nodes).to(device), keep_u=device == "cpu",
                precision=precision if device == "cuda" else "fp32",
            )  # fmt: skip
            objectives = []
            for _ in range(8):
                worker.epoch()
                objectives.append(float(worker.risk()) + float(worker.measured.objective.double().sum()))
        results.append((objectives, [layer.W.cpu() for layer in worker.layers]))
    (expected, Ws), (objectives, ours) = results
    tolerance = 1e-3 if precision == "fp32" else 2e-2
    assert objectives == pytest.approx(expected, rel=tolerance / 10)
    for W, W_cpu in zip(ours, Ws, strict=True):
        assert (W - W_cpu).norm() <= tolerance * W_cpu.norm()
    assert used >= {"move_and_sum", "norm_and_columns", "z_q_u", "recorded"}
    assert ("gradient" in used) is (precision != "bf16"), "in bfloat16 r W is added to the pull of the boundary"


@pytest.mark.parametrize("quantize", ["none", "pq"])
@pytest.mark.parametrize("solver", ["linearized", "exact"])
def test_training_with_weights_and_probabilities(used: set[str], solver: str, quantize: str) -> None:
    """In double precision, in which a CPU and a GPU differ by nothing that could be mistaken for a weight.

    Quantized, a value that rounds to another level on one of the two moves the objective by some 4e-5.
    """
    tolerance = 1e-6 if quantize == "none" else 1e-3
    soft = (torch.eye(3, dtype=torch.float64)[TRAINING.y] + 0.2) / 1.6
    training = Examples(TRAINING.X.double(), soft, torch.linspace(0.5, 3.0, len(soft), dtype=torch.float64))
    validation = VALIDATION._replace(X=VALIDATION.X.double())
    histories = []
    for device in ("cpu", "cuda"):
        config = ModelConfig(
            layers=4, stages=(2, 4), hidden=8, epochs=12, weight_decay=0.05, patience=None, solver=solver,
            quantize=quantize, device=device,
        )  # fmt: skip
        examples = (
            Examples(*(None if part is None else part.to(device) for part in rows)) for rows in (training, validation)
        )
        histories.append(train(*examples, 3, config, seed=0).history)
    for cpu, gpu in zip(*histories, strict=True):
        for name in ("objective", "risk", "primal_residual", "train_loss", "train_accuracy", "val_loss"):
            assert gpu[name] == pytest.approx(cpu[name], rel=tolerance, abs=1e-12), name
    assert "recorded" in used


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_large_layers_that_are_inverted_now_and_then(make_chain, precision: str) -> None:
    results = []
    for device in ("cpu", "cuda"):
        with tensor_cores(precision if device == "cuda" else "fp32"):
            worker = make_chain(
                nodes=2501, features=256, hidden=512, classes=5, layers=4, solver="exact", nu=1.0, mu=100.0,
                dtype=torch.float32, device=device, precision=precision if device == "cuda" else "fp32",
                keep_u=device == "cpu",
            )  # fmt: skip
            for _ in range(worker.invert_every + 2):
                worker.epoch()
            results.append(float(worker.risk()) + float(worker.measured.objective.double().sum()))
    assert results[1] == pytest.approx(results[0], rel=1e-4 if precision == "fp32" else 5e-3)
