"""Time per epoch against the number of workers, beside two ways to run Adam on as many processes.

One thread per worker. pdADMM-G and pdADMM-G-Q (p and q at 8 bits) share the layers; full-batch Adam shares the nodes
(DistributedDataParallel) or the layers (GPipe schedule of torch.distributed.pipelining, four microbatches a worker).
"bare products" is what the machine allows: every worker makes the matrix products of its layers and nothing else.

    python benchmarks/scaling.py --workers 1 2 4 8 16 --repeats 3 --out results/scaling.json
    python benchmarks/scaling.py --depths 8 11 14 17 --workers 1 8 --nodes 1000 --methods pdADMM-G
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pdadmm_g.config import ModelConfig
from pdadmm_g.engine.launch import join, run_workers
from pdadmm_g.engine.plan import deal, layer_costs
from pdadmm_g.engine.team import Team
from pdadmm_g.growth import widths
from pdadmm_g.model import GAMLP
from pdadmm_g.stage import Examples
from pdadmm_g.training import train

WARM_UP = 2
CLASSES = 10


def problem(size: dict[str, int]) -> Examples:
    generator = torch.Generator().manual_seed(0)
    X = torch.nn.functional.normalize(torch.randn(size["nodes"], size["features"], generator=generator))
    return Examples(X, torch.randint(CLASSES, (size["nodes"],), generator=generator))


def admm(team: Team, size: dict[str, int], depth: int, quantize: str) -> dict[str, Any] | None:
    """Seconds of the slowest worker, and how it spent them."""
    epochs = size["epochs"] + WARM_UP
    config = ModelConfig(
        layers=depth, stages=(depth,), hidden=size["hidden"], solver="linearized", epochs=epochs, eval_every=epochs,
        patience=None, tolerance=0, quantize=quantize, workers=team.size,
    )  # fmt: skip
    result = train(problem(size) if team.rank == 0 else None, None, CLASSES, config, seed=0, team=team)
    if result is None:
        return None
    records = result.history[WARM_UP:]
    slowest = [max(record["workers"], key=lambda worker: worker["compute_seconds"]) for record in records]
    return {
        "seconds": statistics.median(record["seconds"] for record in records),
        **{
            name: statistics.median(worker[name] for worker in slowest)
            for name in ("compute_seconds", "wait_seconds", "pack_seconds")
        },
        "bytes_sent": records[-1]["bytes_sent"],
        "plan": result.plan.counts,
    }


def timed(team: Team, size: dict[str, int], step: Any) -> dict[str, Any]:
    """Median seconds of a step that ends on all processes together."""
    times = []
    for _ in range(size["epochs"] + WARM_UP):
        team.barrier()
        start = time.perf_counter()
        step()
        team.barrier()
        times.append(time.perf_counter() - start)
    return {"seconds": statistics.median(times[WARM_UP:])}


def bare_products(team: Team, size: dict[str, int], depth: int) -> dict[str, Any]:
    """r W, g W^T, r^T p and p G^T of every layer of this worker, the first two not for the first layer."""
    shape = widths(size["features"], size["hidden"], CLASSES, depth)
    plan = deal(layer_costs(size["nodes"], shape, "linearized"), team.size)
    layers = []
    for index in plan.layers(team.rank):
        p, r = torch.randn(size["nodes"], shape[index]), torch.randn(size["nodes"], shape[index + 1])
        layers.append((p, r, torch.randn(shape[index + 1], shape[index]), index > 0))

    def step() -> None:
        for p, r, W, hidden in layers:
            if hidden:
                r @ W
                p @ W.T
            r.T @ p
            p @ W.T

    result = timed(team, size, step)
    # Without the barriers: how uneven are the cores? A middle worker does the same work as any other.
    start = time.process_time()
    step()
    own = torch.tensor([time.process_time() - start], dtype=torch.float64)
    everyone = team.concat(own, [1] * team.size)
    middle = [float(everyone[rank]) for rank in range(team.size) if plan.counts[rank] == max(plan.counts)][1:-1]
    return result | {"cpu_seconds_of_equal_work": middle}


def adam_ddp(team: Team, size: dict[str, int], depth: int) -> dict[str, Any]:
    X, y = problem(size)
    X, y = X.chunk(team.size)[team.rank], y.chunk(team.size)[team.rank]
    torch.manual_seed(0)
    model: torch.nn.Module = GAMLP(widths(size["features"], size["hidden"], CLASSES, depth))
    if team.size > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(X), y).backward()
        optimizer.step()

    return timed(team, size, step)


def adam_gpipe(team: Team, size: dict[str, int], depth: int) -> dict[str, Any]:
    if team.size == 1:
        return adam_ddp(team, size, depth)
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    X, y = problem(size)
    shape = widths(size["features"], size["hidden"], CLASSES, depth)
    plan = deal(layer_costs(size["nodes"], shape, "linearized"), team.size)
    layers: list[torch.nn.Module] = []
    for index in plan.layers(team.rank):
        layers.append(torch.nn.Linear(shape[index], shape[index + 1]))
        if index < depth - 1:
            layers.append(torch.nn.ReLU())
    model = torch.nn.Sequential(*layers)
    micro = 4 * team.size
    rows = len(X) // micro * micro
    own = torch.empty(rows // micro, shape[plan.layers(team.rank).start])
    stage = PipelineStage(model, team.rank, team.size, torch.device("cpu"), input_args=(own,))
    schedule = ScheduleGPipe(stage, n_microbatches=micro, loss_fn=torch.nn.functional.cross_entropy)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        if team.rank == 0:
            schedule.step(X[:rows])
        elif team.rank == team.size - 1:
            schedule.step(target=y[:rows], losses=[])
        else:
            schedule.step()
        optimizer.step()

    return timed(team, size, step)


METHODS = {
    "bare products": bare_products,
    "pdADMM-G": lambda team, size, depth: admm(team, size, depth, "none"),
    "pdADMM-G-Q": lambda team, size, depth: admm(team, size, depth, "pq"),
    "Adam, data parallel": adam_ddp,
    "Adam, GPipe": adam_gpipe,
}


def worker(job: Path) -> None:
    """What each process does: every method at every depth."""
    order = json.loads((job / "order.json").read_text())
    torch.set_num_threads(1)
    if order["pin"]:
        os.sched_setaffinity(0, {int(os.environ["LOCAL_RANK"])})
    team = join("cpu", 600.0, watch=False)
    for depth in order["depths"]:
        for method in order["methods"]:
            try:
                result = METHODS[method](team, order["size"], depth)
            except Exception as error:  # a peer that cannot run here is reported as such
                result = {"error": f"{type(error).__name__}: {error}"[:300]}
            if team.rank == 0:
                print(json.dumps({"depth": depth, "method": method, **(result or {})}), flush=True)
    dist.destroy_process_group()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--depths", type=int, nargs="+", default=[16])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--features", type=int, default=1000)
    parser.add_argument("--hidden", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=5, help="timed epochs, after two to warm up")
    parser.add_argument("--repeats", type=int, default=1, help="how often to go through all numbers of workers")
    parser.add_argument("--pin", action="store_true", help="bind worker k to processor k")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    size = {name: getattr(args, name) for name in ("nodes", "features", "hidden", "epochs")}
    order = {"size": size, "depths": args.depths, "methods": args.methods, "pin": args.pin}
    rows: list[dict[str, Any]] = []
    for repeat in range(args.repeats):
        for workers in args.workers:
            measure(order, workers, repeat, rows)
            if args.out:  # after each step, so that a run that is cut short leaves what it has
                args.out.parent.mkdir(parents=True, exist_ok=True)
                record = {"date": str(date.today()), "hardware": hardware(), "order": order, "rows": rows}
                args.out.write_text(json.dumps(record, indent=1))
    summarize(rows)


def measure(order: dict[str, Any], workers: int, repeat: int, rows: list[dict[str, Any]]) -> None:
    """Run every method at every depth on so many workers, and append the results to ``rows``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "order.json").write_text(json.dumps(order))

        def show(_: int, row: dict[str, Any]) -> None:
            rows.append({"repeat": repeat, "workers": workers, **row})
            result = row.get("error") or f"{row['seconds']:8.3f} s"
            if "plan" in row:
                result += f"  compute {row['compute_seconds']:.3f} wait {row['wait_seconds']:.3f}"
            print(f"{workers:>3} workers  {row['depth']:>3} layers  {row['method']:<20} {result}", flush=True)

        command = [sys.executable, __file__, "--worker", name]
        run_workers(command, workers, threads=1, timeout=600, folder=folder, on_event=show)


def summarize(rows: list[dict[str, Any]]) -> None:
    """Speedup over one worker of the same repeat: median, least and greatest."""
    base = {(row["repeat"], row["depth"], row["method"]): row.get("seconds") for row in rows if row["workers"] == 1}
    speedups: dict[tuple[int, str, int], list[float]] = {}
    for row in rows:
        one = base.get((row["repeat"], row["depth"], row["method"]))
        if one and "seconds" in row:
            key = (row["depth"], row["method"], row["workers"])
            speedups.setdefault(key, []).append(one / row["seconds"])
    for (depth, method, workers), values in sorted(speedups.items()):
        spread = f"{statistics.median(values):6.2f} x  ({min(values):.2f} to {max(values):.2f})"
        print(f"{depth:>3} layers  {method:<20} {workers:>3} workers {spread}")


def hardware() -> dict[str, Any]:
    cpu = Path("/proc/cpuinfo")
    names = [line.split(":", 1)[1].strip() for line in cpu.read_text().splitlines() if line.startswith("model name")]
    model = names[0] if names else platform.processor()
    return {"cores": os.cpu_count(), "machine": platform.machine(), "cpu": model, "torch": torch.__version__}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(Path(sys.argv[2]))
    else:
        main()
