"""How many workers and shards, where that was left open: by the size of the problem and what the processes can do."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from pathlib import Path

import torch

from ..config import ModelConfig
from ..engine.mesh import Job, Machine, Mesh, choose, expected
from ..engine.team import Team
from ..utils import usable_cores
from .growth import widths


def choose_mesh(
    config: ModelConfig, shape: tuple[int, ...], classes: int, team: Team | None = None
) -> tuple[ModelConfig, tuple[str, ...]]:
    """``config`` with numbers of workers and shards for rows of that ``shape``, and a sentence if they were chosen.

    On a ``team`` the processes are there already, and the mesh has all of them.
    """
    if config.workers != "auto":
        return config, ()
    rows, features = shape
    if config.unlabelled:
        rows = config.copies * (rows + config.unlabelled)
    elif rows < features:
        features = rows  # the network is trained in coordinates of the rows
    stages = config.stages or (config.layers,)
    job = Job(
        rows,
        widths(features, config.hidden, classes, config.layers),
        config.solver,
        _bits(config),
        config.epochs * (config.rounds + 1 if config.unlabelled else len(stages)),
    )
    machine = this_machine(config.threads)
    if team is not None:
        local = int(os.environ.get("LOCAL_WORLD_SIZE", team.size))
        machine = dataclasses.replace(
            machine, bandwidth=team.bandwidth, latency=team.latency, processes=min(local, team.size)
        )
    mesh = choose(job, machine, processes=None if team is None else team.size, shards=config.shards)
    alone = expected(job, machine, 1, 1)
    chosen = dataclasses.replace(config, workers=mesh.workers, shards=mesh.shards)
    return chosen, (_sentence(mesh, alone),)


def _bits(config: ModelConfig) -> float:
    """Of an entry of p and q on the wire, on average."""
    bits = config.bits or 8
    return {"none": 32, "p": (bits + 32) / 2, "pq": bits}[config.quantize]


def _sentence(mesh: Mesh, alone: Mesh) -> str:
    if mesh.processes == 1:
        return f"one process, in which an epoch should take {alone.seconds:.2g} s: more would not end sooner"
    shape = f"{mesh.workers} worker{'s' * (mesh.workers > 1)} x {mesh.shards} shard{'s' * (mesh.shards > 1)}"
    return (
        f"{shape}: an epoch should take {mesh.seconds:.2g} s, and {alone.seconds:.2g} s in one process; "
        f"each sends {mesh.sent / 1e6:.2g} MB an epoch"
    )


def this_machine(threads: int) -> Machine:
    """Of processes with so many threads each on this machine."""
    return Machine(_speed(), memory=_free_memory(), processes=max(1, usable_cores() // threads))


def _speed() -> float:
    """Multiply-adds in a second of a product like those of an epoch, with the threads of this process."""
    size = 512
    a, b = torch.randn(size, size), torch.randn(size, size)
    times = []
    for _ in range(4):
        start = time.perf_counter()
        torch.mm(a, b)
        times.append(time.perf_counter() - start)
    return float(size**3 / min(times))


def _free_memory() -> float:
    """Bytes; infinite where the system does not tell."""
    path = Path("/proc/meminfo")
    lines = path.read_text().splitlines() if path.exists() else []
    free = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return float(free[0]) * 1024 if free else math.inf
