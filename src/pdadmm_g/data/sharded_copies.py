"""Random copies of the features of a graph in shards, as :mod:`.copies` of one in memory.

What is random about a node follows from a seed and its number alone, so that it is the same for any number of shards
and processes, and nobody has to draw for all nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..admm.risks import Targets
from .sharded_augmentation import ShardedAugment


def uniform(seed: int, numbers: NDArray[Any]) -> NDArray[np.float64]:
    """A number from 0 to 1, without 1, for each of some numbers: random to the eye, and the same for a seed.

    By SplitMix64 (Steele, Lea and Flood, 2014): a value of its sequence is had without those before it.
    """
    z = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class ShardedCopies:
    """Copies of the nodes of a part: of those that train and of others. All processes call its methods together."""

    sharded: ShardedAugment
    #: The probability with which the features of a node are left out.
    drop: float
    #: The nodes that train, in order, counted from the first of the part; and what they should become.
    training: NDArray[Any]
    labelled: Targets

    def sample(self, number: int, seed: int) -> NDArray[Any]:
        """Those of the part, in order, among so many at the most that are chosen of all nodes that do not train."""
        part, across = self.sharded.part, self.sharded.across
        other = np.ones(part.count, dtype=bool)
        other[self.training] = False
        others = np.flatnonzero(other)
        lots = uniform(seed, part.first + others)
        # The smallest of all are among the smallest of each process.
        smallest = np.partition(lots, number - 1)[:number] if len(lots) > number else lots
        counts = across.concat(torch.tensor([len(smallest)]), [1] * across.size).tolist()
        everywhere = across.concat(torch.from_numpy(smallest), counts)
        return others[lots <= float(everywhere.kthvalue(min(number, len(everywhere))).values)]

    def draw(self, nodes: NDArray[Any], number: int, seed: int) -> Tensor:
        """So many copies of the rows of ``nodes`` of the part (copies, nodes, features)."""
        part = self.sharded.part
        everyone = part.first + np.arange(part.count)
        seeds = np.random.SeedSequence(seed).generate_state(number, np.uint64).tolist()
        kept = np.stack([uniform(each, everyone) >= self.drop for each in seeds])
        return self.sharded.copies(nodes, torch.from_numpy(kept).float() / (1 - self.drop))
