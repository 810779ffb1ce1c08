"""What the processes of ``reproduce network`` do: epochs of each method while their links change speed under them.

A case is set up once, at full speed, and then goes through all speeds, from the slowest: at each one epoch to settle
and some that are timed together. ADMM goes on training meanwhile, so that what it has on its way from one epoch to the
next is on its way here, too.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pdadmm_g.engine.launch import join
from pdadmm_g.engine.team import Team
from pdadmm_g.training.train import train

from .epochs import CLASSES, Mesh, Step, admm_config, ddp_step, gpipe_step, meshes, problem
from .namespaces import SPEEDS
from .results import Row
from .speedup import ADAM, GPIPE, speak

HALF, SENDS = "Adam, data parallel, float16 gradients", "messages alone"
#: pdADMM-G and what it quantizes.
ADMM: dict[str, dict[str, Any]] = {
    "pdADMM-G": {},
    "pdADMM-G-Q, 8 bits": {"quantize": "pq", "bits": 8},
    "pdADMM-G-Q, 4 bits": {"quantize": "pq", "bits": 4},
}
#: Of several numbers of microbatches each link takes what is fastest there.
MICROBATCHES = (16, 32)


class Dial:
    """Asks for a speed of all links, and takes the time. All processes call it together."""

    def __init__(self, team: Team, job: Path) -> None:
        self.team = team
        self.job = job
        self.turns = 0
        self._start = self._sent = 0.0

    def turn(self, link: str) -> None:
        """Return when the links have this speed: whoever started the processes sets it."""
        self.team.barrier()
        self.turns += 1
        if self.team.rank == 0:
            print(json.dumps({"turn": self.turns, "link": link}), flush=True)
            while not (self.job / f"turn-{self.turns}").exists():
                time.sleep(0.002)
        self.team.barrier()

    def begin(self) -> None:
        """Start the clock."""
        self.team.barrier()
        self._start, self._sent = time.perf_counter(), _bytes_sent()

    def end(self, epochs: int) -> Row:
        """Seconds of each epoch since, and the megabytes that all processes together sent in it, headers included."""
        self.team.barrier()
        seconds = time.perf_counter() - self._start
        sent = torch.tensor([_bytes_sent() - self._sent], dtype=torch.float64)
        return {"seconds": seconds / epochs, "megabytes": float(self.team.sum(sent)) / 1e6 / epochs}


def _bytes_sent() -> float:
    """What left by the link of this process since it was made."""
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "link":
            return float(numbers.split()[8])
    return 0.0


def stepwise(dial: Dial, order: Row, variants: dict[str, Step]) -> dict[str, Row]:
    """A method whose epoch is a function: at each speed all variants once, and the fastest of them timed."""
    for step in variants.values():
        for _ in range(order["size"]["warm_up"]):
            step()
    figures = {}
    for link in order["links"]:
        dial.turn(link)
        trials = []
        for step in variants.values():
            dial.begin()
            step()
            trials.append(dial.end(1)["seconds"])
        choice = dial.team.broadcast(torch.tensor([trials.index(min(trials))]), 0)
        name = list(variants)[int(choice)]
        dial.begin()
        for _ in range(order["size"]["epochs"]):
            variants[name]()
        figures[link] = dial.end(order["size"]["epochs"]) | {"variant": name}
    dial.turn("unlimited")
    return figures


def admm(dial: Dial, order: Row, mesh: Mesh, depth: int, settings: dict[str, Any]) -> dict[str, Row]:
    """Training that begins at full speed; when an epoch begins the links may change, or the clock start or stop."""
    size, links, timed = order["size"], order["links"], order["size"]["epochs"]
    figures: dict[str, Row] = {}

    def pace(epoch: int) -> None:
        place, phase = divmod(epoch - size["warm_up"] - 1, 1 + timed)
        if phase == 0 and place >= 0:
            if place > 0:
                figures[links[place - 1]] = dial.end(timed)
            dial.turn(links[place] if place < len(links) else "unlimited")
        elif phase == 1 and 0 <= place < len(links):
            dial.begin()

    mesh.pace = pace
    # The last epoch begins with the end of the last measurement.
    config = admm_config(mesh, size, depth, size["warm_up"] + (1 + timed) * len(links) + 1, **settings)
    train(problem(size) if mesh.rank == 0 else None, None, CLASSES, config, seed=0, team=mesh)
    return figures


def sends(dial: Dial, order: Row) -> dict[str, Row]:
    """Half a second of data from every process to the next, all at once: what the links really carry."""
    team, figures = dial.team, {}
    for link in order["links"]:
        dial.turn(link)
        block = torch.zeros(int(min(SPEEDS[link] or 4e9, 4e9) / 16), dtype=torch.uint8)
        # Receives first: gloo tells a sender that somebody waits, and that must not queue behind data.
        arriving = dist.irecv(torch.empty_like(block), (team.rank - 1) % team.size)
        dial.begin()
        dist.send(block, (team.rank + 1) % team.size)
        assert arriving is not None
        arriving.wait()
        figures[link] = {"mbit_per_second": 8e-6 * len(block) / dial.end(1)["seconds"]}
    dial.turn("unlimited")
    return figures


def measured(team: Team, job: Path, order: Row) -> Iterator[Row]:
    """Every case of the order, a row for each speed. The last row says so if an interrupt cut it off."""
    mesh, dial = meshes(), Dial(team, job)
    for case in order["cases"]:
        figures = _figures(dial, order, mesh(case["shards"]), case)
        if team.stop_requested():
            yield {"interrupted": True}
            return
        for link, numbers in figures.items():
            yield {**case, "link": link, "size": order["size"], **numbers}


def _figures(dial: Dial, order: Row, mesh: Mesh, case: Row) -> dict[str, Row]:
    method, depth, size = case["method"], case["depth"], order["size"]
    if method in ADMM:
        return admm(dial, order, mesh, depth, ADMM[method])
    if method == SENDS:
        return sends(dial, order)
    try:
        return stepwise(dial, order, _variants(method, mesh, size, depth))
    except Exception as error:  # a peer that cannot run here is reported as such
        return {link: {"error": f"{type(error).__name__}: {error}"[:300]} for link in order["links"]}


def _variants(method: str, team: Team, size: dict[str, int], depth: int) -> dict[str, Step]:
    if method == GPIPE:
        micro: Sequence[int] = [count for count in MICROBATCHES if count <= size["nodes"]]
        return {f"{count} microbatches": gpipe_step(team, size, depth, micro=count) for count in micro}
    half = {ADAM: False, HALF: True}[method]
    return {"usual": ddp_step(team, size, depth, half=half)}


def worker(job: Path) -> None:
    """What each process does."""
    order = json.loads((job / "order.json").read_text())
    torch.set_num_threads(1)
    team = join("cpu", 600.0, watch=False)
    speak(team, measured(team, job, order))


if __name__ == "__main__":
    worker(Path(sys.argv[1]))
