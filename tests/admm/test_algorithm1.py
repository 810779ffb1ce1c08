"""Algorithm 1 against a naive transcription of the paper, and the worker's epoch against Algorithm 1."""

from __future__ import annotations

import importlib.util
import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pdadmm_g.admm.algorithm1 import Given, Variables, one_pass
from pdadmm_g.admm.state import Quantization
from pdadmm_g.engine.worker import Ends, Worker

spec = importlib.util.spec_from_file_location("naive", Path(__file__).with_name("naive.py"))
naive = importlib.util.module_from_spec(spec)
spec.loader.exec_module(naive)

EMPTY = torch.empty(0)


def as_algorithm1(worker: Worker) -> tuple[Variables, Given]:
    """The state and the problem of a worker with the whole chain, in the paper's numbering."""
    layers, inner = worker.layers, worker.boundaries[1:-1]

    def numbered(tensors: Iterator[Tensor]) -> list[Tensor]:
        return [EMPTY, *(tensor.clone() for tensor in tensors)]

    variables = Variables(
        p=numbered([worker.ends.X, *(boundary.p for boundary in inner)]),
        W=numbered(layer.W for layer in layers),
        b=numbered(layer.b for layer in layers),
        z=numbered(layer.z for layer in layers),
        q=numbered(boundary.q for boundary in inner),
        u=numbered(boundary.u for boundary in inner),
    )
    algorithm = worker.algorithm
    problem = Given(
        y=worker.ends.targets,
        f=algorithm.activation,
        R=algorithm.risk,
        nu=algorithm.nu,
        rho=algorithm.rho,
        W0=numbered(layer.W0 for layer in layers),
        mu=algorithm.mu,
        solver=algorithm.solver,
        p_levels={l: boundary.p_levels for l, boundary in enumerate(inner, start=2) if boundary.p_levels},
        q_levels={l: boundary.q_levels for l, boundary in enumerate(inner, start=1) if boundary.q_levels},
    )
    return variables, problem


def assert_same(ours: Variables, theirs: Variables, epoch: int, tolerance: float = 1e-10) -> None:
    for symbol in ("p", "W", "b", "z", "q", "u"):
        pairs = zip(getattr(ours, symbol), getattr(theirs, symbol), strict=True)
        for l, (mine, other) in enumerate(pairs):
            if l:
                difference = float((mine - other).abs().max() / (1 + other.abs().max()))
                assert difference < tolerance, f"{symbol}_{l} differs by {difference} after epoch {epoch + 1}"


@pytest.mark.parametrize(("nu", "rho"), [(0.1, 0.5), (0.01, 0.01), (1e-4, 1e-4)])
@pytest.mark.parametrize("layers", [2, 4])
def test_algorithm_1_is_the_papers(make_chain, layers: int, nu: float, rho: float) -> None:
    """The transcription shares no line of code with the package."""
    variables, problem = as_algorithm1(make_chain(layers=layers, nu=nu, rho=rho, solver="linearized", nodes=15))
    W, b = ([tensor.numpy() for tensor in tensors[1:]] for tensors in (variables.W, variables.b))
    theirs = naive.NaivePdADMM(W, b, variables.p[1].T.numpy(), problem.y.t.numpy(), nu=nu, rho=rho)
    for epoch in range(30):
        gaps = one_pass(variables, problem)
        theirs.epoch()

        def turned(arrays) -> list[Tensor]:
            return [EMPTY, *(torch.from_numpy(array).T for array in arrays)]

        reference = Variables(
            p=turned(theirs.p),
            W=[EMPTY, *map(torch.from_numpy, theirs.W)],
            b=[EMPTY, *map(torch.from_numpy, theirs.b)],
            z=turned(theirs.z),
            q=turned(theirs.q),
            u=turned(theirs.u),
        )
        assert_same(variables, reference, epoch)
        for l in range(1, layers):
            assert torch.equal(gaps[l], variables.p[l + 1] - variables.q[l])


class QueueLink:
    """A link to a neighbour in the same process."""

    def __init__(self, outbox: queue.Queue, inbox: queue.Queue) -> None:
        self.outbox, self.inbox = outbox, inbox
        self.expecting = False

    def expect(self) -> None:
        assert not self.expecting
        self.expecting = True

    def send(self, x: Tensor) -> None:
        self.outbox.put(x.clone())

    def receive(self) -> Tensor:
        assert self.expecting
        self.expecting = False
        return self.inbox.get(timeout=20)


def dealt(worker: Worker, counts: tuple[int, ...]) -> list[Worker]:
    """The layers of a worker with the whole chain, dealt to several; each has copies of the boundaries it shares."""
    workers, start, left = [], 0, None
    for rank, count in enumerate(counts):
        stop, last = start + count, rank == len(counts) - 1
        boundaries = worker.boundaries[start : stop + 1]
        if rank:
            shared = boundaries[0]
            boundaries[0] = type(shared)(
                shared.p.clone(), shared.q.clone(), shared.u.clone(), shared.p_levels, shared.q_levels
            )
        to_right, to_left = queue.Queue(), queue.Queue()
        right = None if last else QueueLink(to_right, to_left)
        ends = Ends(
            worker.rows, worker.ends.X if rank == 0 else None, worker.ends.targets if last else None
        )  # fmt: skip
        workers.append(Worker(worker.layers[start:stop], boundaries, worker.algorithm, ends, left=left, right=right))
        left = QueueLink(to_left, to_right)
        start = stop
    return workers


QUANTIZED = {
    "unquantized": Quantization(),
    "p": Quantization(p=True, bits=6),
    "p and q": Quantization(p=True, q=True, bits=6),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("quantized", QUANTIZED)
@pytest.mark.parametrize("solver", ["linearized", "exact"])
def test_the_workers_epoch_is_algorithm_1(make_chain, solver: str, quantized: str, workers: int) -> None:
    whole = make_chain(layers=6, solver=solver, quantization=QUANTIZED[quantized], mu=0.02, nodes=25, hidden=7)
    variables, problem = as_algorithm1(whole)
    team = [whole] if workers == 1 else dealt(whole, (2, 1, 3))
    with ThreadPoolExecutor(len(team)) as pool:
        for epoch in range(20):
            list(pool.map(Worker.epoch, team))
            for worker in team:
                worker.settle()
            one_pass(variables, problem)
            inner = [boundary for worker in team for boundary in worker.boundaries[1:] if boundary is not None]
            left_copies = [worker.boundaries[0] for worker in team[1:]]
            layers = [layer for worker in team for layer in worker.layers]
            found = Variables(
                p=[EMPTY, whole.ends.X, *(boundary.p for boundary in inner)],
                W=[EMPTY, *(layer.W for layer in layers)],
                b=[EMPTY, *(layer.b for layer in layers)],
                z=[EMPTY, *(layer.z for layer in layers)],
                q=[EMPTY, *(boundary.q for boundary in inner)],
                u=[EMPTY, *(boundary.u for boundary in inner)],
            )
            assert_same(found, variables, epoch)
            for copy in left_copies:
                assert any(torch.equal(copy.u, boundary.u) for boundary in inner)
