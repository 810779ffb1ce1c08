r"""Learning from unlabelled nodes, in rounds: pseudo-labels are what the network says of random augmentations.

In each round, for a sample of unlabelled nodes and :math:`S` copies of the features (:class:`.Copies`),

.. math:: t_i \propto \Big( \tfrac1S \sum_s \mathrm{softmax}\, f(x_i^{(s)}) \Big)^{\gamma}

with the best weights so far, and then some epochs on the copies of all nodes: those with labels weigh :math:`1/S` each,
the others together :math:`\lambda` times as much as these. Within a round the objective falls as always; a new round
is a new problem.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..admm.activations import ACTIVATIONS
from ..admm.risks import Targets
from ..admm.state import Weights
from ..config import ModelConfig
from ..engine.layout import Plan
from ..engine.team import Line, Team
from ..graph.augmentation import Copies
from ..graph.examples import Examples
from .checkpoint import Checkpoint
from .member import Member, Round, counts_of, dealt, spread_evenly
from .records import Record, judged

if TYPE_CHECKING:  # a worker process starts faster without graphs
    from ..graph.sharded_augmentation import ShardedCopies

#: Most epochs of a round, and of labelled nodes alone before the first one.
ROUND_EPOCHS, FIRST_EPOCHS = 10, 30
#: Rounds at each depth beyond the first, and the validation score that a depth must gain to be kept.
GROWN_ROUNDS, GAIN = 2, 0.005


class Step(NamedTuple):
    """A part of the schedule: one stage, or one round of it."""

    stage: int
    depth: int
    #: Zero where no round is meant.
    round: int = 0


def schedule(config: ModelConfig) -> list[Step]:
    """The stages of growth in order, with the rounds of each where unlabelled nodes are learned from."""
    assert config.stages is not None
    if not config.unlabelled:
        return [Step(number, depth) for number, depth in enumerate(config.stages, start=1)]
    first, *others = config.stages
    steps = [Step(1, first, round) for round in range(config.rounds + 1)]
    for number, depth in enumerate(others, start=2):
        steps += [Step(number, depth, steps[-1].round + extra) for extra in range(1, GROWN_ROUNDS + 1)]
    return steps


def epochs_of(round: int) -> int:
    """The most epochs of a round."""
    return ROUND_EPOCHS if round else FIRST_EPOCHS


def is_over(step: Step, history: list[Record], config: ModelConfig) -> bool:
    """Is a step not worth while, since rounds no longer help on validation, or since the depth before gained nothing?

    Nor is a second round at a depth whose first one gained nothing. Without validation there is no telling what a
    further depth is worth: with labelled nodes alone all are gone through, else none.
    """
    assert config.patience != "auto"
    scored = [record for record in history if record["val_loss"] is not None]
    if config.growth == "gain" and step.stage > 1:
        last = scored[-1]["stage"] if scored else 1
        if (not scored and config.unlabelled) or (last > 1 and margin(last, history, config)):
            return True
    if step.round == 0 or config.patience is None:
        return False
    own = [record for record in scored if record["stage"] == step.stage]
    if not any(record.get("round") for record in own):
        return False
    scores = [judged(record) or (-math.inf, -math.inf) for record in own]
    before = max((record["epoch"] for record in own if not record.get("round")), default=0)
    best = max(before, own[scores.index(max(scores))]["epoch"])
    return bool(own[-1]["epoch"] - best >= config.patience)


def margin(stage: int, history: list[Record], config: ModelConfig) -> float:
    """The validation score that a depth beyond the first still has to gain before it counts as better."""
    if stage == 1 or config.growth == "all":
        return 0.0
    scores = [(record["stage"] == stage, score[0]) for record in history if (score := judged(record))]
    own, before = (max((score for new, score in scores if new is kind), default=None) for kind in (True, False))
    return 0.0 if own is not None and before is not None and own >= before + GAIN else GAIN


def in_round(
    base: Member,
    rows: DealtRows | SpreadRows,
    step: Step,
    plan: Plan,
    weights: list[Weights],
    saved: Checkpoint | None,
) -> Member:
    """The member in a round that starts from these weights of its layers, or goes on from a checkpoint."""
    config = dataclasses.replace(base.config, epochs=min(base.config.epochs, epochs_of(step.round)))
    if step.round == 0:  # labelled nodes train alone
        alone = copy.copy(base)
        alone.config, alone.round = config, Round(0)
        return alone
    drawn = rows.draw(step.round)
    if saved is not None:
        mean = rows.restored(drawn, saved, base.like)
        agreement, changed = (saved.history[-1][name] for name in ("agreement", "changed"))
    else:
        mean, agreement = _asked(base, plan, weights, drawn.asked)
        mean, changed = rows.compared(drawn, mean)
    training, tensors = rows.examples(drawn, mean)
    round = Round(step.round, agreement, changed, tensors)
    return Member(base.team, config, training, base.validation, base.classes, base.checkpointing, base.training, round)


def _asked(base: Member, plan: Plan, weights: list[Weights], x: Tensor | None) -> tuple[Tensor, float]:
    """The mean of the probabilities over the copies ``x`` of nodes, and the share of nodes on which all copies agree.

    The chain's first worker has the copies and gets the mean: activations pass down the chain.
    """
    chain, copies, layers = base.team.chain, base.config.copies, plan.layers(base.team.chain.rank)
    number = int(chain.broadcast(torch.tensor([0 if x is None else len(x)]), 0))
    if x is None and layers:
        x = chain.receive(base.like.new_empty(number, base.config.width), chain.rank - 1)
    for index, own in zip(layers, weights, strict=True):
        assert x is not None
        x = torch.addmm(own.b, x, own.W.T)
        if index < plan.depth - 1:
            x = ACTIVATIONS[base.config.activation](x)
    agreeing, mean = torch.zeros(1, dtype=torch.float64), base.like
    if x is not None and chain.rank == plan.last:
        each = torch.softmax(x, dim=1).view(copies, number // copies, base.classes)
        mean, found = each.mean(0), each.argmax(2)
        agreeing[0] = float((found == found[0]).all(0).sum())
    elif x is not None and layers:
        chain.send(x, chain.rank + 1)
    agreeing = chain.broadcast(agreeing, plan.last)
    if plan.last != 0 and chain.rank == plan.last:
        chain.send(mean, 0)
    elif plan.last != 0 and chain.rank == 0:
        mean = chain.receive(base.like.new_empty(number // copies, base.classes), plan.last)
    agreed, nodes = base.team.rows.sum(torch.cat([agreeing, agreeing.new_tensor([number // copies])])).tolist()
    return mean, agreed / nodes


class Drawn(NamedTuple):
    """What a process has drawn for a round; nothing on one that has no nodes."""

    #: The copies, one after the other, of the nodes that the own chain asks, on its first worker.
    asked: Tensor | None = None
    #: Copies of nodes with labels and then of others (copies, nodes, features), and who these are.
    X: Tensor | None = None
    others: Tensor | None = None


class DealtRows:
    """Rows of a graph that the first process of all has: the others get theirs from it.

    All workers call its methods together, as those of :class:`SpreadRows`.
    """

    def __init__(
        self, team: Team, config: ModelConfig, copies: Copies | None, labelled: Targets | None, seed: int
    ) -> None:
        self.team, self.config, self.copies, self.labelled, self.seed = team, config, copies, labelled, seed
        #: The last known class of every node of the pool, -1 where none is known.
        self.known = torch.empty(0) if copies is None else torch.full_like(copies.others, -1)

    def draw(self, round: int) -> Drawn:
        """Copies of nodes for a round, always the same ones. Others are places in the pool."""
        X = sample = nodes = None
        if self.copies is not None:
            assert self.config.unlabelled is not None
            labelled, pool = self.copies.training, self.copies.others
            order, noise = _seeds(self.seed, round)
            sample = self.copies.sample(self.config.unlabelled, torch.Generator().manual_seed(order))
            X = self.copies.rows(torch.cat([labelled, pool[sample]]), self.config.copies, noise)
            nodes = Examples(X[:, len(labelled) :].transpose(0, 1).flatten(1), sample)
        nodes = dealt(self.team, nodes, self.config.device)
        if nodes is None:
            return Drawn()
        number, columns = nodes.X.shape
        asked = nodes.X.view(number, self.config.copies, columns // self.config.copies)
        return Drawn(asked.transpose(0, 1).flatten(0, 1), X, sample)

    def compared(self, drawn: Drawn, mean: Tensor) -> tuple[Tensor, float | None]:
        """What the network says on average of all nodes that were asked, given what it says of those of the own chain.

        And the share of those that were asked before whose class is another now.
        """
        if drawn.asked is not None:
            mean = self.team.rows.concat(mean, counts_of(self.team.rows, len(mean)))
        if drawn.others is None:
            return mean, None
        return mean, _share(_count_changes(self.known, drawn.others, mean))

    def restored(self, drawn: Drawn, saved: Checkpoint, like: Tensor) -> Tensor:
        """That of the round of a checkpoint."""
        if self.copies is None:
            return like
        tensors = saved.pseudo_labels(like)
        self.known = tensors["known"]
        return tensors["mean"]

    def examples(self, drawn: Drawn, mean: Tensor) -> tuple[Examples | None, dict[str, Tensor] | None]:
        """The rows that the own chain trains on, on its first worker.

        And what a checkpoint must hold to go on in the round, on the first worker of all.
        """
        training = tensors = None
        if drawn.X is not None:
            assert self.labelled is not None
            training = examples_of(drawn.X, self.labelled, mean, self.config)
            tensors = {"mean": mean, "known": self.known}
        return dealt(self.team, training, self.config.device), tensors


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

    def compared(self, drawn: Drawn, mean: Tensor) -> tuple[Tensor, float | None]:
        """What the network says on average of the own nodes, and the share of all whose class changed."""
        if drawn.others is None:
            return mean, None
        return mean.cpu(), _share(self.team.rows.sum(_count_changes(self.known, drawn.others, mean.cpu())))

    def restored(self, drawn: Drawn, saved: Checkpoint, like: Tensor) -> Tensor:
        """What the network said of the own nodes in the round of a checkpoint."""
        if drawn.others is None or self.copies is None:
            return like
        line, part, tensors = self.team.rows, self.copies.sharded.part, saved.pseudo_labels(like.cpu())
        node, known = (tensors["known"] - torch.tensor([part.first, 0])).unbind(1)
        own = (node >= 0) & (node < part.count)
        self.known[node[own]] = known[own]
        return tensors["mean"].split(counts_of(line, len(drawn.others)))[line.rank]

    def examples(self, drawn: Drawn, mean: Tensor) -> tuple[Examples | None, dict[str, Tensor] | None]:
        """The rows that the own chain trains on, and what a checkpoint must hold."""
        if drawn.X is None or drawn.others is None or self.copies is None:
            return None, None
        line, copies = self.team.rows, self.config.copies
        examples = examples_of(drawn.X, self.copies.labelled, mean, self.config, line)
        number = len(examples.y) // copies
        nodes = torch.cat([torch.from_numpy(self.copies.training), drawn.others])[:number]
        order = (nodes.argsort()[:, None] + number * torch.arange(copies)).flatten()
        training = spread_evenly(Examples(*(rows[order] for rows in examples if rows is not None)), line)
        assert training is not None
        seen = (self.known >= 0).nonzero().view(-1)
        pairs = torch.stack([self.copies.sharded.part.first + seen, self.known[seen]], 1)
        tensors = {
            name: line.concat(rows, counts_of(line, len(rows))) for name, rows in (("mean", mean), ("known", pairs))
        }
        return training.to(self.config.device), tensors if self.team.rank == 0 else None


def _seeds(seed: int, round: int) -> tuple[int, int]:
    """Those of the sample and of the copies of a round."""
    order, noise = np.random.SeedSequence([seed, round]).generate_state(2, np.uint64).tolist()
    return order, noise


def _count_changes(known: Tensor, nodes: Tensor, mean: Tensor) -> Tensor:
    """Of how many ``nodes`` a class was known, and of how many of these it is another now; notes what it is now."""
    now, before = mean.argmax(1), known[nodes]
    known[nodes] = now
    return torch.tensor([int((before >= 0).sum()), int(((before >= 0) & (now != before)).sum())])


def _share(counts: Tensor) -> float | None:
    seen, changed = counts.tolist()
    return changed / seen if seen else None


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
