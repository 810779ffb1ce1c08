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
from ..model import GAMLP
from ..training.growth import widths
from ..training.train import train
from .bench import products
from .results import Results, Row, arranged

CLASSES = 10
#: Of random data, and for so many epochs after some to warm up.
Size = dict[str, int]


def problem(size: Size) -> Examples:
    """Random features and labels of that size."""
    generator = torch.Generator().manual_seed(0)
    X = torch.nn.functional.normalize(torch.randn(size["nodes"], size["features"], generator=generator))
    return Examples(X, torch.randint(CLASSES, (size["nodes"],), generator=generator))


def admm(team: Team, size: Size, depth: int, quantize: Literal["none", "pq"]) -> Row | None:
    """Seconds of the slowest worker, and how it spent them."""
    epochs = size["warm_up"] + size["epochs"]
    config = ModelConfig(
        layers=depth, stages=(depth,), hidden=size["hidden"], solver="linearized", epochs=epochs, eval_every=epochs,
        patience=None, tolerance=0, quantize=quantize, workers=team.size,
    )  # fmt: skip
    result = train(problem(size) if team.rank == 0 else None, None, CLASSES, config, seed=0, team=team)
    if result is None:
        return None
    records = result.history[size["warm_up"] :]
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


def timed(team: Team, size: Size, step: Any) -> Row:
    """Median seconds of a step that ends on all processes together."""
    times = []
    for _ in range(size["warm_up"] + size["epochs"]):
        team.barrier()
        start = time.perf_counter()
        step()
        team.barrier()
        times.append(time.perf_counter() - start)
    return {"seconds": statistics.median(times[size["warm_up"] :])}


def bare_products(team: Team, size: Size, depth: int) -> Row:
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


def adam_ddp(team: Team, size: Size, depth: int) -> Row:
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


def adam_gpipe(team: Team, size: Size, depth: int) -> Row:
    """Every process has its layers, and microbatches travel through them."""
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


#: On one worker there is nothing to pipeline: what it is compared with is plain Adam.
GPIPE, ADAM = "Adam, GPipe", "Adam, data parallel"
METHODS = {
    "bare products": bare_products,
    "pdADMM-G": lambda team, size, depth: admm(team, size, depth, "none"),
    "pdADMM-G-Q": lambda team, size, depth: admm(team, size, depth, "pq"),
    ADAM: adam_ddp,
    GPIPE: adam_gpipe,
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


def measured(team: Team, order: Row) -> Iterator[Row]:
    """Every method at every depth of the order. The last row says so if an interrupt cut the measurement off."""
    for depth, method in order["cases"]:
        try:
            figures = METHODS[method](team, order["size"], depth)
        except Exception as error:  # a peer that cannot run here is reported as such
            figures = {"error": f"{type(error).__name__}: {error}"[:300]}
        if team.stop_requested():
            yield {"interrupted": True}
            return
        yield {"method": method, "depth": depth, **(figures or {})}


def cases(workers: int, depths: Sequence[int], methods: Sequence[str]) -> list[tuple[int, str]]:
    """Depths and methods that so many workers measure."""
    return [(depth, method) for depth in depths for method in methods if workers > 1 or method != GPIPE]


def run(
    results: Results, *, workers: Sequence[int], depths: Sequence[int], methods: Sequence[str], size: Size, repeats: int
) -> Iterator[Row]:
    """Go through all numbers of workers ``repeats`` times, so that the noise of the machine shows."""
    for repeat in range(repeats):
        for count in workers:
            missing = []
            for depth, method in cases(count, depths, methods):
                row = results.find(method=method, depth=depth, workers=count, repeat=repeat)
                if row is not None and row["size"] == size and "error" not in row:
                    yield row
                else:
                    missing.append((depth, method))
            if missing:
                yield from measure(results, count, repeat, {"size": size, "cases": missing})


def measure(results: Results, workers: int, repeat: int, order: Row) -> list[Row]:
    """Measure what is in the order on so many workers, and save each row as it comes."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "order.json").write_text(json.dumps(order))

        def show(_: int, row: Row) -> None:
            if "interrupted" in row:
                raise KeyboardInterrupt
            rows.append(results.put(row | {"workers": workers, "repeat": repeat, "size": order["size"]}))

        command = [sys.executable, "-m", __name__, name]
        run_workers(command, workers, threads=1, timeout=600, folder=folder, on_note=show)
    return rows


def render(rows: Sequence[Row]) -> str:
    """Markdown: median seconds per epoch of all runs, and the speedup over one worker of the same run."""
    known = [row for row in arranged(rows, method=list(METHODS)) if "seconds" in row]
    counts = sorted({row["workers"] for row in known})
    titles = [f"{count} worker{'s' * (count > 1)}" for count in counts]
    lines = [
        "| seconds per epoch | layers | runs | " + " | ".join(titles) + " |",
        "|---|---|---|" + "---|" * len(counts),
    ]
    seconds: dict[tuple[str, int, int], dict[int, float]] = {}
    for row in known:
        seconds.setdefault((row["method"], row["depth"], row["workers"]), {})[row["repeat"]] = row["seconds"]
    for method, depth in dict.fromkeys((row["method"], row["depth"]) for row in known):
        alone = seconds.get((method, depth, 1)) or seconds.get((ADAM if method == GPIPE else method, depth, 1), {})
        runs = [seconds.get((method, depth, count), {}) for count in counts]
        numbers = sorted({len(times) for times in runs if times})
        entries = [f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"]
        entries += [_entry(times, alone if count > 1 else {}) for count, times in zip(counts, runs, strict=True)]
        lines.append(f"| {method} | {depth} | " + " | ".join(entries) + " |")
    failed = {(row["method"], row["error"]) for row in rows if "error" in row}
    return "\n".join([*lines, *(f"\n{method}: {error}" for method, error in sorted(failed))]) + "\n"


def _entry(times: dict[int, float], alone: dict[int, float]) -> str:
    """The median time, and the median, least and greatest speedup over the time that one worker took in that run."""
    if not times:
        return "-"
    speedups = [alone[repeat] / time for repeat, time in times.items() if repeat in alone]
    text = f"{statistics.median(times.values()):.3g}"
    if speedups:
        text += f" ({statistics.median(speedups):.1f} x"
        text += f", {min(speedups):.1f} to {max(speedups):.1f})" if len(speedups) > 1 else ")"
    return text


if __name__ == "__main__":
    worker(Path(sys.argv[1]))
