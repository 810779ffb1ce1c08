r"""How many processes share the layers, and how many the rows: a model of what an epoch costs.

A process computes while its messages travel, so that an epoch takes

.. math:: T = \max\left( \frac{C}{F} + s\,t_s,\; \frac{B}{V} \right),

with C the multiply-adds of the slowest process (:func:`~pdadmm_g.engine.plan.layer_costs`), F how many it makes in a
second, s the sums over rows that it waits for, t_s how long one takes, B the bytes that a process sends and V how many
travel in a second. Of :math:`n` rows and layers of :math:`h` neurons a chain of N workers and M shards sends

.. math:: B = 2 \tfrac{n}{M} h \tfrac{bits}{8} + 2 \tfrac{M - 1}{M} \tfrac{L}{N} 4 h^2 .
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..errors import InputError
from .plan import deal, layer_costs

#: Sums over rows that the steps of a layer wait for: the length of the p-step, r^T p, the length of the W-step.
SUMS = 3
#: Seconds that calling the operations of a layer takes, however small it is.
CALLS = 1e-3
#: Seconds until processes of their own have started.
START = 5.0
#: A mesh with fewer processes, or fewer shards, is as good if it takes no longer than by this factor.
ALIKE = 1.05


@dataclass(frozen=True)
class Machine:
    """What a process can do."""

    #: Multiply-adds in a second.
    speed: float
    #: Bytes that it can send in a second while all others do too.
    bandwidth: float = 1e9
    #: Seconds that a sum of a few numbers over all processes takes.
    latency: float = 2e-4
    #: Bytes of memory for all processes on a machine, and how many of them there are at the most.
    memory: float = math.inf
    processes: int = 1


@dataclass(frozen=True)
class Job:
    """What is to be computed."""

    rows: int
    #: From the features to the classes.
    widths: Sequence[int]
    solver: str
    #: Bits of an entry of p and q on the wire.
    bits: float
    #: In all.
    epochs: int


@dataclass(frozen=True)
class Mesh:
    """So many workers for each of so many shards, and what that is expected to cost."""

    workers: int
    shards: int
    #: For an epoch, and for all of them from the start.
    seconds: float
    total: float
    #: Bytes that a process sends in an epoch, and its memory.
    sent: float
    memory: float

    @property
    def processes(self) -> int:
        """Of all shards."""
        return self.workers * self.shards


def expected(job: Job, machine: Machine, workers: int, shards: int) -> Mesh:
    """What a mesh is expected to cost, see above."""
    rows = -(-job.rows // shards)
    costs = layer_costs(rows, job.widths, job.solver)
    plan = deal(costs, workers)
    seconds = sent = memory = 0.0
    for place in range(workers):
        own = plan.layers(place)
        pairs = list(pairwise(job.widths[own.start : own.stop + 1]))
        waits = SUMS * len(own) * machine.latency if shards > 1 else 0.0
        compute = sum(costs[layer] for layer in own) / machine.speed + CALLS * len(own) + waits
        neighbours = (place > 0) * job.widths[own.start] + (own.stop < plan.depth) * job.widths[own.stop]
        products = sum(into * out + (into**2 if job.solver == "exact" else 0) for into, out in pairs)
        bytes_sent = rows * neighbours * job.bits / 8 + 2 * (shards - 1) / shards * 4 * products
        seconds = max(seconds, compute, bytes_sent / machine.bandwidth)
        sent = max(sent, bytes_sent)
        memory = max(memory, 4 * rows * sum(ARRAYS * out for _, out in pairs) + 4 * rows * WORK * max(job.widths))
    start = START if workers * shards > 1 else 0.0
    return Mesh(workers, shards, seconds, start + job.epochs * seconds, sent, memory)


#: Of the size rows x neurons a layer has p (or X), q, u, z and r; beside them all layers share the memory of a few.
ARRAYS, WORK = 5, 4


def choose(job: Job, machine: Machine, *, processes: int | None = None, shards: int | None = None) -> Mesh:
    """The mesh that is expected to end first; of those that are nearly alike, the one with fewest processes and shards.

    It has exactly so many ``processes`` where they are there already, and so many ``shards`` where these are given.
    """
    meshes = [
        expected(job, machine, workers, parts)
        for parts in ([shards] if shards is not None else range(1, min(job.rows, processes or machine.processes) + 1))
        for workers in range(1, len(job.widths))
        if (processes is None and (workers == 1 or workers * parts <= machine.processes))
        or workers * parts == processes
    ]
    if not meshes:
        raise InputError(
            f"{processes} processes cannot be dealt to {len(job.widths) - 1} layers and {job.rows} rows: "
            "say how many with --workers and --shards, or start fewer"
        )
    roomy = [mesh for mesh in meshes if mesh.memory * min(mesh.processes, machine.processes) <= machine.memory]
    meshes = roomy or [min(meshes, key=lambda mesh: mesh.memory)]
    best = min(mesh.total for mesh in meshes)
    return min((mesh for mesh in meshes if mesh.total <= ALIKE * best), key=lambda mesh: (mesh.processes, mesh.shards))
