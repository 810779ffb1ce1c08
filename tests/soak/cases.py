"""The runs of the soak as they are drawn: settings, and what happens to them."""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pdadmm_g.data.sharding import open_source, shard_graph

Settings = dict[str, Any]

#: What is done to a run, and the exit code that it must end with.
FAULTS = {
    "kill worker": 4,
    "stop worker": 4,
    "kill parent": -signal.SIGKILL,
    "terminate parent": 130,
    "interrupt parent": 130,
}


#: Workers of a chain, and shards; so many processes at most, since each takes seconds to start.
MOST, MOST_PROCESSES = 4, 8
#: A graph of 120 nodes, one whose edges have weights, and the former in as many shards as all numbers of them divide.
GRAPH, WEIGHTED, SHARDED, SHARDS = "graph.npz", "weighted.npz", "sharded", 12
#: Settings with which a small change of the sums stays one: no levels, no choice of an epoch, no choice of rho.
CONTINUOUS: Settings = {
    "quantize": "none", "patience": "none", "unlabelled": 0,
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """One fault: when ``share`` of the epochs are done, or ``delay`` seconds after the start if that is given."""

    kind: str
    workers: int
    victim: int
    share: float
    delay: float | None = None
    #: Each with so many workers; the victim is one of all of them.
    shards: int = 1


@dataclass(frozen=True)
class Case:
    """One run of the soak: the settings of the model, what happens to it, the workers and shards that finish it.

    The undisturbed run has as many shards.
    """

    seed: int
    settings: Settings
    faults: tuple[Fault, ...]
    workers: int
    shards: int = 1

    @property
    def exact(self) -> bool:
        """Must it end with the same bits? Not where the number of shards changes, and with it the order of sums."""
        return all(fault.shards == self.shards for fault in self.faults)


def draw(seed: int) -> Case:
    """The run of this seed."""
    rng = random.Random(seed)
    layers = rng.randint(2, 6)
    most = min(layers, MOST)
    stages = sorted({*rng.sample(range(2, layers + 1), rng.randint(0, min(2, layers - 1))), layers})
    eval_every = rng.choice((1, 1, 2, 3))
    settings: Settings = {
        "dataset": rng.choice((GRAPH, WEIGHTED, SHARDED)),
        "seed": rng.randrange(1000),
        "layers": layers,
        "stages": ",".join(map(str, stages)),
        "hidden": rng.randint(8, 24),
        "augment": rng.choice(("none", "hops", "average")),
        "hops": rng.randint(1, 3),
        "normalize": rng.choice(("unit", "centered")),
        "activation": rng.choice(("relu", "leaky-relu", "tanh", "sigmoid")),
        "risk": rng.choice(("cross-entropy", "squared-error")),
        "solver": rng.choice(("exact", "linearized")),
        "weight-decay": rng.choice((0, 0.01, 0.1)),
        "quantize": rng.choice(("none", "p", "pq")),
        "epochs": rng.randint(40, 80) // len(stages),
        "patience": rng.choice(("none", 15)),
        "tolerance": 0,
        "eval-every": eval_every,
        "checkpoint-every": eval_every * rng.randint(1, 3),
    }
    if settings["quantize"] != "none":
        settings["bits"] = rng.randint(2, 8)
    faults = tuple(_draw_fault(rng, most) for _ in range(rng.randint(1, 2)))
    workers = rng.randint(1, most)
    # All that a race would decide is given, so that the time is spent on training.
    settings["unlabelled"] = rng.choice((0, 0, 60, 300))
    settings |= {"rounds": rng.randint(1, 6), "copies": rng.randint(1, 3), "drop": rng.choice((0, 0.5))}
    settings |= {"sharpness": rng.choice((2, 3)), "trust": rng.choice((0, 1, 10)), "teleport": rng.choice((0.05, 0.25))}
    settings["drop-entries"] = 0
    if rng.random() < 0.5:
        settings["class-weight"] = "balanced"
    return _with_shards(Case(seed, settings, faults, workers))


def _with_shards(case: Case) -> Case:
    """The run with its rows over some shards: as many throughout, or in one of five others after every fault.

    There nothing is left in the settings that makes more of a rounding error than it is.
    """
    rng = random.Random(f"shards of {case.seed}")
    varied, shards = rng.random() < 0.2, rng.choice((1, 1, 2, 2, 3, 4))
    settings = case.settings | (CONTINUOUS if varied else {})
    if varied:
        settings.pop("bits", None)
    faults = []
    for fault in case.faults:
        number = rng.randint(1, MOST) if varied else shards
        kind, delay, workers = fault.kind, fault.delay, min(fault.workers, MOST_PROCESSES // number)
        if workers == 1 and number > 1 and rng.random() < 0.7:
            kind, delay = rng.choice(("kill worker", "stop worker")), None
        victim = rng.randrange(workers * number) if number > 1 else fault.victim
        faults.append(replace(fault, kind=kind, delay=delay, workers=workers, victim=victim, shards=number))
    workers = min(case.workers, MOST_PROCESSES // shards)
    return replace(case, settings=settings, faults=tuple(faults), workers=workers, shards=shards)


def _draw_fault(rng: random.Random, most: int) -> Fault:
    workers = rng.randint(1, most)
    # A run on one worker has no processes but the parent.
    kinds = [kind for kind in FAULTS if workers > 1 or "parent" in kind]
    kind = rng.choices(kinds, [1 if kind == "interrupt parent" else 3 for kind in kinds])[0]
    victim, share, delay = rng.randrange(workers), rng.uniform(0, 0.9), rng.uniform(0, 8)
    # An interrupt before the first epoch has no result to keep; a worker that hangs there has two minutes to start.
    early = kind not in ("interrupt parent", "stop worker") and rng.random() < 0.15
    return Fault(kind, workers, victim, share, delay if early else None)


def write_data(name: str, folder: Path) -> None:
    """The data set of a run: a made graph of 4 classes, with an edge between two nodes of a class twice as likely."""
    rng = np.random.default_rng(0)
    nodes, classes = 120, 4
    y = np.arange(nodes) % classes
    x = rng.normal(size=(nodes, 20)) + rng.normal(size=(classes, 20))[y]
    linked = rng.random((nodes, nodes)) < np.where(y[:, None] == y, 0.08, 0.04)
    part = np.arange(nodes) // classes % 3
    arrays = {
        "x": x.astype(np.float32), "edge_index": np.stack(np.nonzero(linked)), "y": y,
        "train_mask": part == 0, "val_mask": part == 1, "test_mask": part == 2,
    }  # fmt: skip
    if name == WEIGHTED:
        arrays["edge_weight"] = rng.uniform(0.5, 2.0, linked.sum()).astype(np.float32)
    file = folder / (GRAPH if name == SHARDED else name)
    np.savez(file, **arrays)
    if name == SHARDED:
        shard_graph(open_source(str(file), None), SHARDS, folder / SHARDED)
