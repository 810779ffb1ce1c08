from __future__ import annotations

import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

# Tests are imported one by one, so what they share is found like any other package, and so is what is beside src; also
# by the processes that they start, in other folders.
sys.path.extend(map(str, Path(__file__).parents[:2]))
os.environ["PYTHONPATH"] = os.pathsep.join([*os.environ.get("PYTHONPATH", "").split(), str(Path(__file__).parents[1])])

# Threads that wait for each other sleep: here they are more than the cores. Read when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

# Read when Triton is first imported, which torch_geometric does: without a GPU kernels run on the CPU, line by line.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

import pytest
from hypothesis import settings

from helpers.commands import save
from helpers.faults import config
from pdadmm_g.admm.activations import ACTIVATIONS
from pdadmm_g.admm.diagnostics import rho_bound
from pdadmm_g.admm.risks import RISKS, Targets
from pdadmm_g.admm.state import Quantization, Weights, forward_state
from pdadmm_g.engine.worker import Algorithm, Ends, Worker
from pdadmm_g.graph.graph import Graph
from pdadmm_g.runs.run import train_run

# A suite that a shell runs in the background is started with interrupts ignored, and what it starts inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("suite", deadline=None, max_examples=25, derandomize=True, database=None)
settings.load_profile("suite")
# Small problems gain nothing from threads, and lose much where several processes share the cores.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def make_chain() -> Callable[..., Worker]:
    """A worker with a whole chain on a random problem in float64, rho just above the theory's bound by default."""

    def make(
        *,
        layers: int = 4,
        nodes: int = 30,
        features: int = 12,
        hidden: int = 8,
        classes: int = 3,
        activation: str = "relu",
        risk: str = "cross-entropy",
        solver: str = "linearized",
        nu: float = 0.1,
        rho: float | None = None,
        mu: float = 0.0,
        quantization: Quantization | None = None,
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
        keep_u: bool = True,
        precision: str = "fp32",
        rows: torch.Tensor | None = None,
        row_weights: torch.Tensor | None = None,
        soft: bool = False,
        device: str = "cpu",
    ) -> Worker:
        """``rows`` of the problem are taken, some perhaps several times; ``soft`` targets are probabilities."""

        generator = torch.Generator().manual_seed(seed)

        def randn(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64).to(device, dtype)

        widths = [features, *[hidden] * (layers - 1), classes]
        weights = [
            Weights(randn(b, a) / a**0.5, randn(b) / 10, torch.eye(b, a, dtype=dtype, device=device))
            for a, b in itertools.pairwise(widths)
        ]
        X = randn(nodes, features)
        y = torch.randint(classes, (nodes,), generator=generator).to(device)
        if soft:
            y = torch.softmax(randn(nodes, classes), dim=1)
        if rows is not None:
            X, y = X[rows], y[rows]
        f = ACTIVATIONS[activation]
        rho = 1.001 * rho_bound(nu, f.lipschitz) if rho is None else rho
        algorithm = Algorithm(activation=f, risk=RISKS[risk], solver=solver, nu=nu, rho=rho, mu=mu, precision=precision)
        chain, boundaries = forward_state(weights, X, f, quantization or Quantization(), keep_u=keep_u)
        targets = Targets(y, row_weights)
        return Worker(chain, [None, *boundaries, None], algorithm, Ends(targets.rows(), X, targets))

    return make


@pytest.fixture
def tiny_graph() -> Graph:
    """Two cliques of 10 nodes joined by one edge; features and labels tell them apart."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(20) // 10
    x = torch.randn(20, 5, generator=generator) + 2.0 * y[:, None]
    pairs = [(i, j) for i in range(20) for j in range(20) if i != j and i // 10 == j // 10]
    edge_index = torch.tensor([*pairs, (9, 10), (10, 9)]).T
    data = Graph(x=x, edge_index=edge_index, y=y)
    for mask, digits in (("train_mask", (0, 1, 2)), ("val_mask", (3, 4, 5)), ("test_mask", (6, 7, 8, 9))):
        data[mask] = torch.tensor([node % 10 in digits for node in range(20)])
    return data


@pytest.fixture
def graph_file(tmp_path: Path, tiny_graph: Graph) -> Path:
    return save(tmp_path / "graph.npz", tiny_graph)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model of a run that nothing happened to."""
    out = tmp_path_factory.mktemp("runs") / "undisturbed"
    train_run(config(out))
    return (out / "model.safetensors").read_bytes()


@pytest.fixture
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are told of a folder in here, by which those of this test are known."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real benchmark files that $PDADMM_G_DATA names."""
    root = os.environ.get("PDADMM_G_DATA")
    if not root:
        pytest.skip("PDADMM_G_DATA does not name a folder of raw benchmark files")
    return Path(root)


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Processed benchmarks go to a folder of this test session."""
    os.environ["PDADMM_G_CACHE"] = str(tmp_path_factory.mktemp("cache"))
