"""Which worker owns which layers: contiguous runs, dealt so that the slowest worker is as fast as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise


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


#: All elementwise work of a layer takes about as long as a product with this many columns (two x86-64 cores).
ELEMENTWISE = 60


def widths(features: int, hidden: int, classes: int, depth: int) -> list[int]:
    """Input features, hidden widths and classes of a network with ``depth`` layers."""
    return [features, *[hidden] * (depth - 1), classes]


def layer_costs(nodes: int, widths: Sequence[int], solver: str) -> list[float]:
    """Relative time of each layer's share of an epoch, in multiply-adds.

    A hidden layer makes four products nodes x in x out, the first layer two of them. An elementwise pass over the
    activations counts like a product with ELEMENTWISE columns. The exact solver adds two factorisations and solves.
    """
    (features, hidden), *others = pairwise(widths)
    costs = [float(nodes * hidden * (2 * features + ELEMENTWISE))]
    for into, out in others:
        cost = nodes * (4 * into * out + ELEMENTWISE * (into + out))
        exact = 2 * (into**3 / 3 + into**2 * out) + nodes * into**2
        costs.append(float(cost + exact if solver == "exact" else cost))
    return costs


def deal(costs: Sequence[float], workers: int) -> Plan:
    """The contiguous partition with the smallest maximum, found by dynamic programming; ties go to the left."""
    until, used = [0.0, *accumulate(costs)], min(workers, len(costs))

    @cache
    def best(layers: int, used: int) -> tuple[float, int, tuple[int, ...]]:
        """Of the first layers on so many workers: the slowest, where the run of the last one starts, and all counts."""
        if used == 1:
            return until[layers], 0, (layers,)
        found = ((start, *best(start, used - 1)) for start in range(used - 1, layers))
        return min((max(slowest, until[layers] - until[start]), start, (*counts, layers - start))
                   for start, slowest, _, counts in found)  # fmt: skip

    return Plan((*best(len(costs), used)[2], *[0] * (workers - used)))
