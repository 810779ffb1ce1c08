"""The runs of the soak as they are drawn: settings, and what happens to them."""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pdadmm_g.graph.shards import open_source, shard_graph

Settings = dict[str, Any]
#: What is done to a run: the signal, and the exit code that it must end with.
FAULTS = {
    "kill worker": (signal.SIGKILL, 4),
    "stop worker": (signal.SIGSTOP, 4),
    "kill parent": (signal.SIGKILL, -signal.SIGKILL),
    "terminate parent": (signal.SIGTERM, 130),
    "interrupt parent": (signal.SIGINT, 130),
}
#: Workers of a chain, and shards; so many processes at most, since each takes seconds to start.
MOST, MOST_PROCESSES = 4, 8
#: A graph of 120 nodes, one whose edges have weights, and the former in as many shards as all numbers of them divide.
GRAPH, WEIGHTED, SHARDED, SHARDS = "graph.npz", "weighted.npz", "sharded", 12
#: Settings with which a small change of the sums stays one: no levels, no choice of an epoch.
CONTINUOUS: Settings = {"quantize": "none", "patience": "none", "unlabelled": 0}


@dataclass(frozen=True)
class Fault:
    """One fault: when ``share`` of the epochs are done, or ``delay`` seconds after the start if that is given."""

    kind: str
    workers: int
    #: The rank that it happens to, if it happens to a worker.
    victim: int
    share: float
    delay: float | None = None
    shards: int = 1


@dataclass(frozen=True)
class Case:
    """One run of the soak: its settings, what happens to it, the workers and shards that finish it.

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
    """The run of this seed. Its rows go over as many shards throughout, or in one of five over others in each attempt.

    All that a race would decide is given, so that the time is spent on training.
    """
    rng = random.Random(seed)
    layers, eval_every = rng.randint(2, 6), rng.choice((1, 1, 2, 3))
    stages = sorted({*rng.sample(range(2, layers + 1), rng.randint(0, min(2, layers - 1))), layers})
    settings: Settings = {
        "dataset": rng.choice((GRAPH, WEIGHTED, SHARDED)), "seed": rng.randrange(1000), "layers": layers,
        "stages": ",".join(map(str, stages)), "hidden": rng.randint(8, 24),
        "augment": rng.choice(("none", "hops", "average")), "hops": rng.randint(1, 3),
        "normalize": rng.choice(("unit", "centered")),
        "activation": rng.choice(("relu", "leaky-relu", "tanh", "sigmoid")),
        "risk": rng.choice(("cross-entropy", "squared-error")), "solver": rng.choice(("exact", "linearized")),
        "weight-decay": rng.choice((0, 0.01, 0.1)), "quantize": rng.choice(("none", "p", "pq")),
        "epochs": rng.randint(40, 80) // len(stages), "patience": rng.choice(("none", 15)), "tolerance": 0,
        "eval-every": eval_every, "checkpoint-every": eval_every * rng.randint(1, 3),
        "unlabelled": rng.choice((0, 0, 60, 300)), "rounds": rng.randint(1, 6), "copies": rng.randint(1, 3),
        "drop": rng.choice((0, 0.5)), "drop-entries": 0, "sharpness": rng.choice((2, 3)),
        "trust": rng.choice((0, 1, 10)), "teleport": rng.choice((0.05, 0.25)),
        "class-weight": rng.choice(("none", "balanced")),
    }  # fmt: skip
    varied, shards = rng.random() < 0.2, rng.choice((1, 1, 2, 2, 3, 4))
    if varied:
        settings |= CONTINUOUS
    if settings["quantize"] != "none":
        settings["bits"] = rng.randint(2, 8)

    def workers(shards: int) -> int:
        return rng.randint(1, min(layers, MOST, MOST_PROCESSES // shards))

    faults = []
    for _ in range(rng.randint(1, 2)):
        parts = rng.randint(1, MOST) if varied else shards
        chain = workers(parts)
        # A run on one worker has no processes but the parent.
        kinds = [kind for kind in FAULTS if chain * parts > 1 or "parent" in kind]
        kind = rng.choices(kinds, [1 if kind == "interrupt parent" else 3 for kind in kinds])[0]
        # An interrupt before the first epoch has no result to keep; a worker that hangs there has two minutes to start.
        early = kind not in ("interrupt parent", "stop worker") and rng.random() < 0.15
        delay = rng.uniform(0, 8) if early else None
        faults.append(Fault(kind, chain, rng.randrange(chain * parts), rng.uniform(0, 0.9), delay, parts))
    return Case(seed, settings, tuple(faults), workers(shards), shards)


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
