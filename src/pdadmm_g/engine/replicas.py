"""Processes along the rows have the same W and b, bit for bit: each decides by its own. Here they compare them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..admm.state import Weights
from .layout import Plan
from .team import Team
from .watchdog import WorkerLostError

#: Words of a tensor that are summed at a time, which bounds the memory that a fingerprint takes.
BLOCK = 1 << 20


class ReplicasDifferError(WorkerLostError):
    """Processes with the same layers have different weights; the message says which, where and since when."""


def fingerprint(layer: Weights) -> Tensor:
    r"""One number of the bits of W and b, :math:`\sum_i i x_i \bmod 2^{64}` over their words of 32 bits.

    One word that differs always changes it. Whole numbers, so that the order of the sum does not matter.
    """
    total = torch.zeros((), dtype=torch.int64, device=layer.W.device)
    first = 1
    for tensor in (layer.W, layer.b):
        for words in tensor.contiguous().view(-1).view(torch.int32).split(BLOCK):
            total += (words * torch.arange(first, first + len(words), device=words.device)).sum()
            first += len(words)
    return total.cpu()


def check_replicas(team: Team, plan: Plan, layers: Sequence[Weights], epoch: int) -> None:
    """Raise unless processes with the same layers have the same bits of W and b. All of the team call it together.

    All learn the same and so end together: nobody goes on to write a checkpoint, or waits for one who does not.
    """
    shards = team.rows.size
    if shards == 1:
        return
    own = torch.zeros(1, max(plan.counts), dtype=torch.int64)
    for place, layer in enumerate(layers):
        own[0, place] = fingerprint(layer)
    by_layer = team.rows.concat(own, [1] * shards).T[: len(layers)].contiguous()
    prints: list[list[int]] = team.chain.concat(by_layer, plan.counts).tolist()
    if message := difference(prints, plan):
        raise ReplicasDifferError(
            f"epoch {epoch}, {message}; memory is faulty or this is a bug: report it if it comes again"
        )


def difference(prints: Sequence[Sequence[int]], plan: Plan) -> str:
    """Which layers have other fingerprints on some shards than on others, and which shards; empty if none have."""
    found = []
    for place in range(len(plan.counts)):
        layers = [layer for layer in plan.layers(place) if len(set(prints[layer])) > 1]
        if layers:
            numbers = ", ".join(str(layer + 1) for layer in layers)
            where = f"place {place + 1} of {len(plan.counts)} in the chain"
            found.append(f"W or b of layer {numbers} ({where}) differ: {_camps(prints[layers[0]])}")
    return "; ".join(found)


def _camps(prints: Sequence[int]) -> str:
    """``shard 2 against 1, 3``: shards with the same fingerprint together, the fewest first."""
    camps = [[shard for shard, one in enumerate(prints, start=1) if one == each] for each in dict.fromkeys(prints)]
    return "shard " + " against ".join(", ".join(map(str, camp)) for camp in sorted(camps, key=len))
