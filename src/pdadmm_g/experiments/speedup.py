"""Time per epoch against the number of workers and of layers, beside two ways to run Adam on as many processes.

One thread per worker. pdADMM-G and pdADMM-G-Q (p and q at 8 bits) share the layers; full-batch Adam shares the nodes
(DistributedDataParallel) or the layers (GPipe schedule of torch.distributed.pipelining, four microbatches a worker).
"bare products" is what the machine allows: every worker makes the matrix products of its layers and nothing else.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist

from ..config import ModelConfig
from ..data.examples import Examples
from ..engine.launch import join, run_workers
from ..engine.plan import deal, layer_costs
from ..engine.team import Team
from ..hardware import provenance
from ..model import GAMLP
from ..training.growth import widths
from ..training.train import train
from .bench import products
from .cells import save

WARM_UP = 2
CLASSES = 10


def problem(size: dict[str, int]) -> Examples:
    """Random features and labels of that size."""
    generator = torch.Generator().manual_seed(0)
    X = torch.nn.functional.normalize(torch.randn(size["nodes"], size["features"], generator=generator))
    return Examples(X, torch.randint(CLASSES, (size["nodes"],), generator=generator))


def admm(team: Team, size: dict[str, int], depth: int, quantize: Literal["none", "pq"]) -> dict[str, Any] | None:
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
    step = products(layers)
    result = timed(team, size, step)
    # Without the barriers: how uneven are the cores? A middle worker does the same work as any other.
    start = time.process_time()
    step()
    own = torch.tensor([time.process_time() - start], dtype=torch.float64)
    everyone = team.concat(own, [1] * team.size)
    middle = [float(everyone[rank]) for rank in range(team.size) if plan.counts[rank] == max(plan.counts)][1:-1]
    return result | {"cpu_seconds_of_equal_work": middle}


def adam_ddp(team: Team, size: dict[str, int], depth: int) -> dict[str, Any]:
    """Every process has the whole network and its share of the nodes."""
    X, y, _ = problem(size)
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
    """Every process has its layers, and microbatches travel through them."""
    if team.size == 1:
        return adam_ddp(team, size, depth)
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    X, y, _ = problem(size)
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
    """What each process does: measure, and, on the first one, say what it measured."""
    order = json.loads((job / "order.json").read_text())
    torch.set_num_threads(1)
    team = join("cpu", 600.0, watch=False)
    for row in measured(team, order):
        if team.rank == 0:
            print(json.dumps(row), flush=True)
    dist.destroy_process_group()
    os._exit(0)


def measured(team: Team, order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every method at every depth. The last row says so if an interrupt cut the measurement off."""
    for depth in order["depths"]:
        for method in order["methods"]:
            try:
                result = METHODS[method](team, order["size"], depth)
            except Exception as error:  # a peer that cannot run here is reported as such
                result = {"error": f"{type(error).__name__}: {error}"[:300]}
            if team.stop_requested():
                yield {"interrupted": True}
                return
            yield {"depth": depth, "method": method, **(result or {})}


def run(
    folder: Path,
    command: str,
    *,
    workers: Sequence[int],
    depths: Sequence[int],
    methods: Sequence[str],
    size: dict[str, int],
    repeats: int,
) -> Iterator[dict[str, Any]]:
    """Go through all numbers of workers ``repeats`` times, so that the noise of the machine shows."""
    order = {"size": size, "depths": list(depths), "methods": list(methods)}
    rows: list[dict[str, Any]] = []
    for repeat in range(repeats):
        for count in workers:
            known = len(rows)
            measure(order, count, repeat, rows)
            yield from rows[known:]
            save(folder / "timings.json", {**provenance(command), "order": order, "rows": rows})


def measure(order: dict[str, Any], workers: int, repeat: int, rows: list[dict[str, Any]]) -> None:
    """Run every method at every depth on so many workers, and append the results to ``rows``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "order.json").write_text(json.dumps(order))

        def show(_: int, row: dict[str, Any]) -> None:
            if "interrupted" in row:
                raise KeyboardInterrupt
            rows.append({"repeat": repeat, "workers": workers, **row})

        command = [sys.executable, "-m", __name__, name]
        run_workers(command, workers, threads=1, timeout=600, folder=folder, on_event=show)


def render(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: speedup over one worker of the same repeat, median with the least and greatest."""
    base = {(row["repeat"], row["depth"], row["method"]): row.get("seconds") for row in rows if row["workers"] == 1}
    speedups: dict[tuple[str, int, int], list[float]] = {}
    for row in rows:
        one = base.get((row["repeat"], row["depth"], row["method"]))
        if one and "seconds" in row:
            speedups.setdefault((row["method"], row["depth"], row["workers"]), []).append(one / row["seconds"])
    lines = ["| method | layers | workers | speedup | least | greatest |", "|---|---|---|---|---|---|"]
    for (method, depth, workers), values in sorted(speedups.items()):
        lines.append(
            f"| {method} | {depth} | {workers} | {statistics.median(values):.2f} | {min(values):.2f} | "
            f"{max(values):.2f} |"
        )
    failed = {(row["method"], row["error"]) for row in rows if "error" in row}
    return "\n".join([*lines, *(f"\n{method}: {error}" for method, error in sorted(failed))]) + "\n"


if __name__ == "__main__":
    worker(Path(sys.argv[1]))
