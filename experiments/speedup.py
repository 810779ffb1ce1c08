"""Time per epoch against the number of workers and of layers, beside two ways to run Adam on as many processes.

One thread per process. pdADMM-G and pdADMM-G-Q (p and q at 8 bits) share the layers, and rows where there are shards;
full-batch Adam shares the rows (DistributedDataParallel) or the layers (GPipe, four microbatches a worker). "bare
products" is what the machine allows: every process makes the matrix products of its layers and rows and nothing else.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pdadmm_g.engine.launch import join, run_workers
from pdadmm_g.engine.team import Team
from pdadmm_g.training.train import train

from .epochs import CLASSES, Size, Step, admm_config, ddp_step, gpipe_step, meshes, problem, product_step
from .results import Results, Row, arranged, failures, markdown


def admm(team: Team, size: Size, depth: int, **settings: Any) -> Row | None:
    """Seconds of the slowest worker, and how it spent them."""
    config = admm_config(team, size, depth, size["warm_up"] + size["epochs"], **settings)
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


def timed(team: Team, size: Size, step: Step) -> Row:
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
    """The products of every process, and how uneven the cores are."""
    step, plan = product_step(team, size, depth)
    result = timed(team, size, step)
    # Without the barriers: how uneven are the cores? A middle worker does the same work as any other.
    start = time.process_time()
    step()
    own = torch.tensor([time.process_time() - start], dtype=torch.float64)
    everyone = team.chain.concat(own, [1] * team.chain.size)
    middle = [float(everyone[rank]) for rank, count in enumerate(plan.counts) if count == max(plan.counts)][1:-1]
    return result | {"cpu_seconds_of_equal_work": middle}


#: On one worker there is nothing to pipeline: what it is compared with is plain Adam.
GPIPE, ADAM, BARE = "Adam, GPipe", "Adam, data parallel", "bare products"
METHODS: dict[str, Callable[[Team, Size, int], Row | None]] = {
    BARE: bare_products,
    "pdADMM-G": admm,
    "pdADMM-G-Q": lambda team, size, depth: admm(team, size, depth, quantize="pq"),
    ADAM: lambda team, size, depth: timed(team, size, ddp_step(team, size, depth)),
    GPIPE: lambda team, size, depth: timed(team, size, gpipe_step(team, size, depth, micro=4 * team.size)),
}


def worker(job: Path) -> None:
    """What each process does: measure, and, on the first one, say what it measured."""
    order = json.loads((job / "order.json").read_text())
    torch.set_num_threads(1)
    team = join("cpu", 600.0, watch=False)
    speak(team, measured(team, order))


def speak(team: Team, rows: Iterator[Row]) -> None:
    """Go through the rows, the first process printing them; the end of the process."""
    for row in rows:
        if team.rank == 0:
            print(json.dumps(row), flush=True)
    dist.destroy_process_group()
    os._exit(0)


def measured(team: Team, order: Row) -> Iterator[Row]:
    """Every case of the order. The last row says so if an interrupt cut the measurement off."""
    mesh = meshes()
    for case in order["cases"]:
        shards = case.get("shards", 1)
        size = order["size"] | {"nodes": case["rows"]} if "rows" in case else order["size"]
        place = mesh(shards) if shards > 1 else team
        try:
            figures = METHODS[case["method"]](place, size, case["depth"])
        except Exception as error:  # a peer that cannot run here is reported as such
            figures = {"error": f"{type(error).__name__}: {error}"[:300]}
        if team.stop_requested():
            yield {"interrupted": True}
            return
        yield {**case, "size": order["size"], **(figures or {})}


def cases(workers: Sequence[int], depths: Sequence[int], methods: Sequence[str]) -> list[Row]:
    """What the chains of these lengths measure."""
    return [
        {"method": method, "depth": depth, "workers": count}
        for count in workers
        for depth in depths
        for method in methods
        if count > 1 or method != GPIPE
    ]


def processes(case: Row) -> int:
    """As many as the case needs."""
    return int(case["workers"] * case.get("shards", 1))


def run(results: Results, *, cases: Sequence[Row], size: Size, repeats: int) -> Iterator[Row]:
    """Go through all cases ``repeats`` times, so that the noise of the machine shows."""
    for repeat in range(repeats):
        for count in dict.fromkeys(map(processes, cases)):
            missing = []
            for case in cases:
                row = results.find(**case, repeat=repeat) if processes(case) == count else None
                if row is not None and row["size"] == size and "error" not in row:
                    yield row
                elif processes(case) == count:
                    missing.append(case)
            if missing:
                yield from measure(results, __name__, count, repeat, {"size": size, "cases": missing})


def measure(
    results: Results,
    module: str,
    processes: int,
    repeat: int,
    order: Row,
    *,
    answer: Callable[[Path, Row], bool] = lambda *_: False,
    **network: Any,
) -> list[Row]:
    """Have so many processes run ``module`` on the order, and save each row as it comes.

    ``answer`` is asked first: it returns True for what is no row. What ``network`` they talk over, see ``run_workers``.
    """
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "order.json").write_text(json.dumps(order))

        def show(_: int, row: Row) -> None:
            if "interrupted" in row:
                raise KeyboardInterrupt
            if not answer(folder, row):
                rows.append(results.put(row | {"repeat": repeat}))

        command = [sys.executable, "-m", module, name]
        run_workers(command, processes, threads=1, timeout=600, folder=folder, on_note=show, **network)
    return rows


def render(rows: Sequence[Row]) -> str:
    """Markdown: median seconds per epoch of all runs, and the speedup over one worker of the same run."""
    known = [row for row in arranged(rows, method=list(METHODS)) if "seconds" in row]
    counts = sorted({row["workers"] for row in known})
    titles = [f"{count} worker{'s' * (count > 1)}" for count in counts]
    lines = []
    seconds: dict[tuple[str, int, int], dict[int, float]] = {}
    for row in known:
        seconds.setdefault((row["method"], row["depth"], row["workers"]), {})[row["repeat"]] = row["seconds"]
    for method, depth in dict.fromkeys((row["method"], row["depth"]) for row in known):
        alone = seconds.get((method, depth, 1)) or seconds.get((ADAM if method == GPIPE else method, depth, 1), {})
        runs = [seconds.get((method, depth, count), {}) for count in counts]
        numbers = sorted({len(times) for times in runs if times})
        entries = [f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"]
        entries += [_entry(times, alone if count > 1 else {}) for count, times in zip(counts, runs, strict=True)]
        lines.append([method, str(depth), *entries])
    return markdown(["seconds per epoch", "layers", "runs", *titles], lines) + failures(rows)


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


def spread(values: Sequence[float], form: str = ".3g", unit: str = "") -> str:
    """The median, and, of several, the least and the greatest; a dash for none."""
    if not values:
        return "-"
    text = f"{statistics.median(values):{form}}{unit}"
    return text if len(values) == 1 else f"{text} ({min(values):{form}} to {max(values):{form}})"


if __name__ == "__main__":
    worker(Path(sys.argv[1]))
