"""Which worker owns which layers: contiguous runs, dealt so that the slowest worker is as fast as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Plan:
    """``counts[rank]`` layers for each worker, in order of the chain; workers at the end may have none."""

    counts: tuple[int, ...]

    @property
    def depth(self) -> int:
        """Number of layers."""
        return sum(self.counts)

    @property
    def last(self) -> int:
        """The worker with the last layer of the chain."""
        return max(rank for rank, count in enumerate(self.counts) if count)

    def layers(self, rank: int) -> range:
        """The layers of a worker, counted from 0."""
        start = sum(self.counts[:rank])
        return range(start, start + self.counts[rank])

    def owner(self, layer: int) -> int:
        """The worker of a layer."""
        return next(rank for rank in range(len(self.counts)) if layer in self.layers(rank))

    def __str__(self) -> str:
        return ", ".join(
            f"worker {rank}: {describe(self.layers(rank))}" for rank, count in enumerate(self.counts) if count
        )


def describe(layers: range) -> str:
    """``layers 3-5``, counted from 1 as people do."""
    if len(layers) == 0:
        return "no layers"
    return f"layer {layers[0] + 1}" if len(layers) == 1 else f"layers {layers[0] + 1}-{layers[-1] + 1}"


def layer_costs(nodes: int, widths: Sequence[int], solver: str) -> list[float]:
    """Relative time of each layer's share of an epoch, in multiply-adds.

    A hidden layer makes four products nodes x in x out, the first layer two of them. An elementwise pass over the
    activations counts like a product with ELEMENTWISE columns. The exact solver adds two factorisations and solves.
    """
    costs = []
    for index, (into, out) in enumerate(pairwise(widths)):
        first = index == 0
        cost: float = (2 if first else 4) * nodes * into * out + ELEMENTWISE * nodes * (out if first else into + out)
        if solver == "exact" and not first:
            cost += 2 * (into**3 / 3 + into**2 * out) + nodes * into**2
        costs.append(float(cost))
    return costs


#: All elementwise work of a layer takes about as long as a product with this many columns (two x86-64 cores).
ELEMENTWISE = 60


def deal(costs: Sequence[float], workers: int) -> Plan:
    """The contiguous partition with the smallest maximum, found by dynamic programming; ties go to the left."""
    depth = len(costs)
    used = min(workers, depth)
    prefix = [0.0]
    for cost in costs:
        prefix.append(prefix[-1] + cost)
    # best[k][i]: (slowest worker, start of the last run) for the first i layers on k workers.
    best = [[(0.0, 0)] + [(float("inf"), 0)] * depth]
    for k in range(1, used + 1):
        row = [(float("inf"), 0)] * (depth + 1)
        for i in range(k, depth + 1):
            row[i] = min((max(best[k - 1][j][0], prefix[i] - prefix[j]), j) for j in range(k - 1, i))
        best.append(row)
    counts, end = [], depth
    for k in range(used, 0, -1):
        start = best[k][end][1]
        counts.append(end - start)
        end = start
    return Plan((*reversed(counts), *[0] * (workers - used)))
