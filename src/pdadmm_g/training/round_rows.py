"""The rows of a round in which nodes without labels teach: who draws them, and how every chain gets its part.

Either one process has all nodes and deals rows out, or the first process of every chain has nodes of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ..admm.targets import Targets
from ..config import ModelConfig
from ..data.copies import NodeCopies
from ..data.examples import Examples
from ..engine.team import Line, Team
from .checkpoint import Checkpoint
from .member import counts_of, dealt, spread_evenly

if TYPE_CHECKING:  # a worker process starts faster without graphs
    from ..data.sharded_copies import ShardedCopies


class Drawn(NamedTuple):
    """What a process has drawn for a round; nothing on one that has no nodes."""

    #: The copies, one after the other, of the nodes that the own chain asks, on its first worker.
    asked: Tensor | None = None
    #: Copies of nodes with labels and then of others (copies, nodes, features), and who these are.
    X: Tensor | None = None
    others: Tensor | None = None


class Taught(NamedTuple):
    """What comes of the answers."""

    #: The rows that the own chain trains on, on its first worker.
    training: Examples | None
    #: The share of the nodes that were asked before whose class is another now.
    changed: float | None
    #: What a checkpoint must hold to go on in the round; the first worker of all has it.
    tensors: dict[str, Tensor] | None


class RoundRows(Protocol):
    """Where the rows of rounds come from. All workers call its methods together."""

    def draw(self, round: int) -> Drawn:
        """Copies of nodes for a round, always the same ones."""

    def taught(self, drawn: Drawn, mean: Tensor) -> Taught:
        """The rows of a round, given what the network says on average of the nodes that the own chain asked."""

    def resumed(self, drawn: Drawn, saved: Checkpoint, like: Tensor) -> Taught:
        """Likewise in the round of a checkpoint."""


class DealtRows:
    """Rows of a graph that the first process of all has: the others get theirs from it."""

    def __init__(
        self, team: Team, config: ModelConfig, copies: NodeCopies | None, labelled: Targets | None, seed: int
    ) -> None:
        self.team, self.config, self.copies, self.labelled, self.seed = team, config, copies, labelled, seed
        #: The last known class of every node that may teach, -1 where none is known.
        self.known: Tensor | None = None
        if copies is not None:
            self.known = torch.full((len(copies.others),), -1, device=copies.others.device)

    def draw(self, round: int) -> Drawn:
        """Others are places in the pool."""
        X = sample = nodes = None
        if self.copies is not None:
            assert self.config.unlabelled is not None
            labelled, pool = self.copies.training, self.copies.others
            order, noise = _seeds(self.seed, round)
            sample = self.copies.sample(self.config.unlabelled, torch.Generator().manual_seed(order))
            X = self.copies.copies.draw(torch.cat([labelled, pool[sample]]), self.config.copies, noise)
            nodes = Examples(X[:, len(labelled) :].transpose(0, 1).flatten(1), sample)
        nodes = dealt(self.team, nodes, self.config.device)
        if nodes is None:
            return Drawn()
        number, columns = nodes.X.shape
        asked = nodes.X.view(number, self.config.copies, columns // self.config.copies)
        return Drawn(asked.transpose(0, 1).flatten(0, 1), X, sample)

    def taught(self, drawn: Drawn, mean: Tensor) -> Taught:
        if drawn.asked is not None:
            line = self.team.rows
            mean = line.concat(mean, counts_of(line, len(mean)))
        changed = None
        if drawn.others is not None:
            assert self.known is not None
            changed = _changed(_compared(self.known, drawn.others, mean))
        return self._dealt(drawn, mean, changed)

    def resumed(self, drawn: Drawn, saved: Checkpoint, like: Tensor) -> Taught:
        mean = like
        if self.copies is not None:
            tensors = saved.lesson(like)
            mean, self.known = tensors["mean"], tensors["known"]
        return self._dealt(drawn, mean)

    def _dealt(self, drawn: Drawn, mean: Tensor, changed: float | None = None) -> Taught:
        training = tensors = None
        if drawn.X is not None:
            assert self.labelled is not None
            assert self.known is not None
            training = examples_of(drawn.X, self.labelled, mean, self.config)
            tensors = {"mean": mean, "known": self.known}
        return Taught(dealt(self.team, training, self.config.device), changed, tensors)


class SpreadRows:
    """Rows of nodes that the first processes of all chains have, each its own, as of a folder of shards.

    In the order of nodes, the copies of each one after the other, they are dealt evenly to the chains: the order is the
    same for any number of these, so that a checkpoint is one for any other number.
    """

    def __init__(self, team: Team, config: ModelConfig, copies: ShardedCopies | None, seed: int) -> None:
        self.team, self.config, self.copies, self.seed = team, config, copies, seed
        #: The last known class of every own node, -1 where none is known.
        self.known = torch.full((0 if copies is None else copies.sharded.part.count,), -1)

    def draw(self, round: int) -> Drawn:
        """Others are counted from the first own node."""
        if self.copies is None:
            return Drawn()
        assert self.config.unlabelled is not None
        order, noise = _seeds(self.seed, round)
        training, sample = self.copies.training, self.copies.sample(self.config.unlabelled, order)
        X = self.copies.draw(np.concatenate([training, sample]), self.config.copies, noise)
        asked = X[:, len(training) :].flatten(0, 1).to(self.config.device)
        return Drawn(asked, X, torch.from_numpy(sample))

    def taught(self, drawn: Drawn, mean: Tensor) -> Taught:
        if drawn.others is None:
            return Taught(None, None, None)
        changed = _changed(self.team.rows.sum(_compared(self.known, drawn.others, mean.cpu())))
        return self._spread(drawn, mean.cpu(), changed)

    def resumed(self, drawn: Drawn, saved: Checkpoint, like: Tensor) -> Taught:
        if drawn.others is None or self.copies is None:
            return Taught(None, None, None)
        line, part, tensors = self.team.rows, self.copies.sharded.part, saved.lesson(like.cpu())
        node, known = (tensors["known"] - torch.tensor([part.first, 0])).unbind(1)
        own = (node >= 0) & (node < part.count)
        self.known[node[own]] = known[own]
        return self._spread(drawn, tensors["mean"].split(counts_of(line, len(drawn.others)))[line.rank])

    def _spread(self, drawn: Drawn, mean: Tensor, changed: float | None = None) -> Taught:
        assert drawn.X is not None
        assert drawn.others is not None
        assert self.copies is not None
        line, device = self.team.rows, self.config.device
        examples = examples_of(drawn.X, self.copies.labelled, mean, self.config, line)
        copies, number = self.config.copies, len(examples.y) // self.config.copies
        nodes = torch.cat([torch.from_numpy(self.copies.training), drawn.others])[:number]
        order = (nodes.argsort()[:, None] + number * torch.arange(copies)).flatten()
        training = spread_evenly(Examples(*(rows[order] for rows in examples if rows is not None)), line)
        assert training is not None
        seen = (self.known >= 0).nonzero().view(-1)
        pairs = torch.stack([self.copies.sharded.part.first + seen, self.known[seen]], 1)
        tensors = {
            name: line.concat(rows, counts_of(line, len(rows))) for name, rows in (("mean", mean), ("known", pairs))
        }
        return Taught(training.to(device), changed, tensors if self.team.rank == 0 else None)


def _seeds(seed: int, round: int) -> tuple[int, int]:
    """Those of the sample and of the copies of a round."""
    order, noise = np.random.SeedSequence([seed, round]).generate_state(2, np.uint64).tolist()
    return order, noise


def _compared(known: Tensor, nodes: Tensor, mean: Tensor) -> Tensor:
    """Of how many ``nodes`` a class was known, and of how many of these it is another now; notes what it is now."""
    now, before = mean.argmax(1), known[nodes]
    known[nodes] = now
    return torch.tensor([int((before >= 0).sum()), int(((before >= 0) & (now != before)).sum())])


def _changed(compared: Tensor) -> float | None:
    seen, other = compared.tolist()
    return other / seen if seen else None


def sharpened(mean: Tensor, power: float) -> Tensor:
    """Each row to this power; one of which nothing is left in its precision, in relation to its largest entry."""
    sharp = mean**power
    return torch.where(sharp.sum(1, keepdim=True) > 0, sharp, (mean / mean.amax(1, keepdim=True)) ** power)


def examples_of(X: Tensor, labelled: Targets, mean: Tensor, config: ModelConfig, line: Line | None = None) -> Examples:
    """The rows of a round: each copy of the nodes with labels, then of those without if they weigh anything.

    On a ``line`` of processes with nodes of their own the weights are of all of them together.
    """
    assert config.sharpness is not None
    line, sharp = line or Line(), sharpened(mean, config.sharpness)
    t = labelled.distribution(sharp.new_empty(len(labelled.t), sharp.shape[1]))
    weights = sharp.new_ones(len(t)) if labelled.weights is None else labelled.weights
    number = int(line.sum(torch.tensor(len(sharp))))
    if config.trust and number:
        others = line.sum(weights.sum()) * (config.trust / number)
        weights = torch.cat([weights, others.expand(len(sharp))])
        t = torch.cat([t, sharp / sharp.sum(1, keepdim=True)])
    copies = len(X)
    return Examples(X[:, : len(t)].flatten(0, 1), t.repeat(copies, 1), (weights / copies).repeat(copies))
