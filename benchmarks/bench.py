"""How fast is this machine? One epoch of each method as a multiple of its floor, measured in the same run.

The floor is the time of the matrix products that no epoch of the linearized algorithm can avoid: r W, g W^T, r^T p and
p G^T for a hidden layer, the last two for the first one, same shapes, device, precision and threads.

    python -m benchmarks.bench                                                     10 layers of 1000 neurons, 2000 nodes
    python -m benchmarks.bench --nodes 140 --features 5732 --hidden 100 --classes 7            Cora with four hop blocks
    python -m benchmarks.bench --device cuda --precision tf32 --nodes 44625 --hidden 4000 --layers 16
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from experiments.epochs import products
from experiments.results import write
from pdadmm_g.admm.activations import ACTIVATIONS
from pdadmm_g.admm.risks import RISKS
from pdadmm_g.admm.state import Quantization, forward_state
from pdadmm_g.engine.layout import widths
from pdadmm_g.engine.precision import tensor_cores
from pdadmm_g.engine.team import Line
from pdadmm_g.engine.worker import Algorithm, Ends, Worker
from pdadmm_g.graph.examples import Examples
from pdadmm_g.model import GAMLP
from pdadmm_g.training.train import in_row_space, initial_layer
from pdadmm_g.utils import checked_device, compute_threads

#: Epochs that are timed together: the exact solver inverts large matrices in one of so many.
TOGETHER = Worker.invert_every
#: Epochs before the clock starts: compilation, recording, and the transient in which p and q rest.
WARM_UP = 2 * TOGETHER


@dataclass(frozen=True, kw_only=True)
class Size:
    """What is measured, and on what."""

    nodes: int = 2000
    features: int = 2000
    hidden: int = 1000
    layers: int = 10
    classes: int = 10
    device: str = "cpu"
    threads: int = 2
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"


METHODS = ("floor", "linearized", "exact", "quantized", "adam")


def bench(size: Size, methods: tuple[str, ...] = METHODS, seconds: float = 5.0) -> Iterator[dict[str, Any]]:
    """Milliseconds of one epoch of each method, its multiple of the floor, and its peak memory."""
    floor = None
    with compute_threads(size.threads), tensor_cores(size.precision):
        for method in methods:
            times, memory = _measure(STEPS[method], size, seconds)
            median = statistics.median(times)
            floor = median if method == "floor" else floor
            yield {
                "method": method,
                "ms": 1e3 * median,
                "fastest_ms": 1e3 * min(times),
                "slowest_ms": 1e3 * max(times),
                "repeats": len(times),
                "x_floor": median / floor if floor else None,
                "peak_gib": memory / 2**30,
                **dataclasses.asdict(size),
            }


def _measure(make: Callable[[Size], Callable[[], object]], size: Size, seconds: float) -> tuple[list[float], float]:
    """Times of a step, means of a few, over about so many seconds, at least three, and the peak memory in bytes."""
    on_gpu = torch.device(size.device).type == "cuda"
    if on_gpu:
        torch.compiler.reset()  # what was compiled for other sizes counts toward a limit
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(size.device)
    step = make(size)
    for _ in range(WARM_UP):
        step()
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < seconds:
        if on_gpu:
            torch.cuda.synchronize(size.device)
        start = time.perf_counter()
        for _ in range(TOGETHER):
            step()
        if on_gpu:
            torch.cuda.synchronize(size.device)
        times.append((time.perf_counter() - start) / TOGETHER)
    if on_gpu:
        return times, torch.cuda.max_memory_allocated(size.device)
    # Of the process since it started, so no less than that of the methods before.
    return times, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def problem(size: Size) -> Examples:
    """Random features, most of them zero as in bags of words, and random labels."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(size.nodes, size.features, generator=generator)
    X = torch.nn.functional.normalize(X.mul_(X < 0.02)).to(size.device)
    return Examples(X, torch.randint(size.classes, (size.nodes,), generator=generator).to(size.device))


def chain(size: Size, solver: Literal["linearized", "exact"], quantization: Quantization) -> Worker:
    """One worker with the whole network, as training would set it up."""
    training, _, basis = in_row_space(problem(size), None, Line())
    assert training is not None
    X = training.X
    shape = widths(X.shape[1], size.hidden, size.classes, size.layers)
    weights = [initial_layer(index, shape, size.layers, seed=0, like=X, basis=basis) for index in range(size.layers)]
    algorithm = Algorithm(
        activation=ACTIVATIONS["relu"], risk=RISKS["cross-entropy"], solver=solver, nu=1.0, rho=5.0, mu=0.1,
        precision=size.precision,
    )  # fmt: skip
    layers, boundaries = forward_state(weights, X, algorithm.activation, quantization)
    targets = training.targets
    return Worker(layers, [None, *boundaries, None], algorithm, Ends(targets.rows(), X, targets))


def _floor(size: Size) -> Callable[[], None]:
    shape = widths(size.features, size.hidden, size.classes, size.layers)
    kind = torch.bfloat16 if size.precision == "bf16" else torch.float32

    def random(*dimensions: int) -> Tensor:
        return torch.randn(*dimensions, device=size.device, dtype=kind)

    # One set of operands per shape: the time of a product does not depend on which of the layers it is for.
    operands = {pair: (random(size.nodes, pair[0]), random(size.nodes, pair[1]), random(*pair[::-1]))
                for pair in pairwise(shape)}  # fmt: skip

    return products([(*operands[pair], index > 0) for index, pair in enumerate(pairwise(shape))])


def _adam(size: Size) -> Callable[[], None]:
    X, y, _ = problem(size)
    torch.manual_seed(0)
    model = GAMLP(widths(size.features, size.hidden, size.classes, size.layers)).to(size.device)
    fast = X.is_cuda
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=fast or None)

    def loss() -> Tensor:
        with torch.autocast(X.device.type, torch.bfloat16, enabled=size.precision == "bf16"):
            return torch.nn.functional.cross_entropy(model(X), y)

    compiled = torch.compile(loss) if fast else loss

    def step() -> None:
        optimizer.zero_grad()
        compiled().backward()
        optimizer.step()

    return step


STEPS: dict[str, Callable[[Size], Callable[[], object]]] = {
    "floor": _floor,
    "linearized": lambda size: chain(size, "linearized", Quantization()).epoch,
    "exact": lambda size: chain(size, "exact", Quantization()).epoch,
    "quantized": lambda size: chain(size, "linearized", Quantization(p=True, q=True)).epoch,
    "adam": _adam,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("nodes", 2000), ("features", 2000), ("hidden", 1000), ("layers", 10), ("classes", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16"], default="fp32")
    parser.add_argument("--methods", default=",".join(METHODS), help="only these of %(default)s")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each method, after warming up")
    parser.add_argument("--out", type=Path)
    options = vars(parser.parse_args(arguments))
    methods, seconds, out = tuple(options.pop("methods").split(",")), options.pop("seconds"), options.pop("out")
    options["device"] = str(checked_device(options["device"]))
    rows = []
    print(f"{'':<12}{'ms':>10}{'x floor':>9}{'peak GiB':>10}")
    for row in bench(Size(**options), methods, seconds):
        rows.append(row)
        ratio = "-" if row["x_floor"] is None else f"{row['x_floor']:.2f}"
        print(f"{row['method']:<12}{row['ms']:>10.2f}{ratio:>9}{row['peak_gib']:>10.2f}", flush=True)
    write(out, {"measured": rows})


if __name__ == "__main__":
    main()
