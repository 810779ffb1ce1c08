"""Time of one epoch as a multiple of its floor: the bare matrix products that no epoch can avoid.

A hidden layer needs r W, g W^T, r^T p and p G^T; the first layer, whose input is fixed, only the last two. The floor is
the time of exactly those products, same shapes, device, precision and threads, measured in the same run.

    python benchmarks/epoch_vs_floor.py --nodes 140 --features 5732 --hidden 100 --layers 10
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable

import torch

from pdadmm_g.admm.activations import ACTIVATIONS
from pdadmm_g.admm.risks import RISKS
from pdadmm_g.admm.state import Quantization, forward_state
from pdadmm_g.engine.worker import Algorithm, Worker
from pdadmm_g.experiments.speedup import floor
from pdadmm_g.growth import initial_layer, widths


def worker(args: argparse.Namespace, solver: str, quantization: Quantization) -> Worker:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(args.nodes, args.features, generator=generator)
    X = torch.nn.functional.normalize(X * (X < 0.02)).to(args.device)
    y = torch.randint(args.classes, (args.nodes,), generator=generator).to(args.device)
    shape = widths(args.features, args.hidden, args.classes, args.layers)
    weights = [initial_layer(index, shape, args.layers, seed=0, like=X) for index in range(args.layers)]
    algorithm = Algorithm(activation=ACTIVATIONS["relu"], risk=RISKS["cross-entropy"], solver=solver, nu=1e-2, mu=1e-3)
    layers, boundaries = forward_state(weights, X, algorithm.activation, quantization)
    return Worker.whole_chain(layers, boundaries, algorithm, rho=5e-2, X=X, y=y)


def products(chain: Worker) -> Callable[[], None]:
    """The floor of this chain."""
    shapes = []
    for layer, left in zip(chain.layers, chain.boundaries[:-1], strict=True):
        p = chain.X if left is None else left.p
        shapes.append((p, torch.randn_like(layer.r), torch.randn_like(layer.W), left is not None))
    return floor(shapes)


def milliseconds(function: Callable[[], object], repeats: int, device: str) -> float:
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=140)
    parser.add_argument("--features", type=int, default=5732, help="inputs; the default is Cora with four hops")
    parser.add_argument("--hidden", type=int, default=100)
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--classes", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    chain = worker(args, "linearized", Quantization())
    floor_ms = milliseconds(products(chain), args.repeats, args.device)
    result = {"size": vars(args), "torch": torch.__version__, "machine": platform.processor() or platform.machine()}
    result["floor_ms"] = floor_ms
    print(f"floor                  {floor_ms:8.2f} ms")
    for name, solver, quantization in (
        ("linearized", "linearized", Quantization()),
        ("exact", "exact", Quantization()),
        ("p and q at 8 bits", "linearized", Quantization(p=True, q=True)),
    ):
        chain = worker(args, solver, quantization)
        for _ in range(20):  # leave the transient of the first epochs behind
            chain.epoch()
        time_ms = milliseconds(chain.epoch, args.repeats, args.device)
        result[name] = {"ms": time_ms, "x_floor": time_ms / floor_ms}
        print(f"{name:<22} {time_ms:8.2f} ms = {time_ms / floor_ms:.2f} x floor")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
