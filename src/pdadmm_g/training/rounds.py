r"""Learning from unlabelled nodes, in rounds: pseudo-labels are what the network says of random augmentations.

In each round, for a sample of unlabelled nodes and :math:`S` copies of the features (:class:`.Copies`),

.. math:: t_i \propto \Big( \tfrac1S \sum_s \mathrm{softmax}\, f(x_i^{(s)}) \Big)^{\gamma}

with the best weights so far, and then some epochs on the copies of all nodes: those with labels weigh :math:`1/S` each,
the others together :math:`\lambda` times as much as these. Within a round the objective falls as always; a new round
is a new problem.
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..admm.activations import ACTIVATIONS
from ..admm.risks import Targets
from ..admm.state import Weights
from ..config import ModelConfig
from ..engine.layout import Plan
from ..engine.team import Team
from ..graph.augmentation import Copies
from ..graph.examples import Examples
from .checkpoint import Checkpoint
from .member import Member, Round, dealt
from .records import Record, judged

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
    rows: RoundRows,
    step: Step,
    plan: Plan,
    weights: list[Weights],
    saved: Checkpoint | None,
) -> Member:
    """The member in a round that starts from these weights of its layers, or goes on from a checkpoint."""
    config = base.config.but(epochs=min(base.config.epochs, epochs_of(step.round)))
    if step.round == 0:  # labelled nodes train alone
        alone = copy.copy(base)
        alone.config, alone.round = config, Round(0)
        return alone
    drawn = rows.draw(step.round)
    if saved is not None:
        mean = rows.restored(saved, base.like)
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
    """The nodes of a round: those with labels, then others; the same on all processes that have copies."""

    #: The copies, one after the other, of the other nodes that the own chain asks, on its first worker.
    asked: Tensor | None = None
    #: The copies of all nodes that are here (copies, nodes, features), their places among those of the round, and the
    #: places of the others in the pool.
    X: Tensor | None = None
    places: Tensor | None = None
    others: Tensor | None = None


class RoundRows:
    """The rows of rounds: who has a part of the graph makes copies of its nodes, which are dealt to all chains.

    All workers call its methods together.
    """

    def __init__(self, team: Team, config: ModelConfig, copies: Copies | None, seed: int) -> None:
        self.team, self.config, self.copies, self.seed = team, config, copies, seed
        #: The last known class of every node of the pool, -1 where none is known.
        self.known = torch.empty(0) if copies is None else torch.full_like(copies.others, -1)

    def draw(self, round: int) -> Drawn:
        """Copies of nodes for a round, always the same ones."""
        X = places = sample = nodes = None
        if self.copies is not None:
            assert self.config.unlabelled is not None
            labelled, pool = self.copies.training, self.copies.others
            order, noise = _seeds(self.seed, round)
            sample = self.copies.sample(self.config.unlabelled, torch.Generator().manual_seed(order))
            everyone = torch.cat([labelled, pool[sample]])
            X = self.copies.rows(everyone, self.config.copies, noise)
            places = self.copies.is_own(everyone).nonzero().view(-1)
            first = int((places < len(labelled)).sum())
            nodes = Examples(X[:, first:].transpose(0, 1).flatten(1), places[first:])
        at = None if nodes is None or places is None or self.copies is None else nodes.y - len(self.copies.training)
        nodes = dealt(self.team, nodes, self.config.device, at)
        if nodes is None:
            return Drawn()
        number, columns = nodes.X.shape
        asked = nodes.X.view(number, self.config.copies, columns // self.config.copies)
        return Drawn(asked.transpose(0, 1).flatten(0, 1), X, places, sample)

    def compared(self, drawn: Drawn, mean: Tensor) -> tuple[Tensor, float | None]:
        """What the network says on average of all nodes that were asked, given what it says of those of the own chain.

        And the share of those that were asked before whose class is another now.
        """
        if drawn.asked is not None:
            mean = self.team.rows.concat(mean, self.team.rows.counts(len(mean)))
        if drawn.others is None:
            return mean, None
        now, before = mean.argmax(1), self.known[drawn.others]
        self.known[drawn.others] = now
        seen = before >= 0
        return mean, float((now != before)[seen].double().mean()) if bool(seen.any()) else None

    def restored(self, saved: Checkpoint, like: Tensor) -> Tensor:
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
        training = places = tensors = None
        if drawn.X is not None and drawn.places is not None:
            assert self.copies is not None
            t, weights = targets_of(self.copies.targets, mean, self.config)
            own = drawn.places[drawn.places < len(t)]
            copies = len(drawn.X)
            X = drawn.X[:, : len(own)].flatten(0, 1)
            training = Examples(X, t[own].repeat(copies, 1), (weights[own] / copies).repeat(copies))
            places = (len(t) * torch.arange(copies, device=own.device)[:, None] + own).flatten()
            tensors = {"mean": mean, "known": self.known} if self.team.rank == 0 else None
        return dealt(self.team, training, self.config.device, places), tensors


def _seeds(seed: int, round: int) -> tuple[int, int]:
    """Those of the sample and of the copies of a round."""
    order, noise = np.random.SeedSequence([seed, round]).generate_state(2, np.uint64).tolist()
    return order, noise


def sharpened(mean: Tensor, power: float) -> Tensor:
    """Each row to this power; one of which nothing is left in its precision, in relation to its largest entry."""
    sharp = mean**power
    return torch.where(sharp.sum(1, keepdim=True) > 0, sharp, (mean / mean.amax(1, keepdim=True)) ** power)


def targets_of(labelled: Targets, mean: Tensor, config: ModelConfig) -> tuple[Tensor, Tensor]:
    """What the nodes of a round should become and what each weighs: those with labels, then others if these count."""
    assert config.sharpness is not None
    sharp = sharpened(mean, config.sharpness)
    t = labelled.distribution(sharp.new_empty(len(labelled.t), sharp.shape[1]))
    weights = sharp.new_ones(len(t)) if labelled.weights is None else labelled.weights
    if config.trust and len(sharp):
        others = weights.sum() * (config.trust / len(sharp))
        weights = torch.cat([weights, others.expand(len(sharp))])
        t = torch.cat([t, sharp / sharp.sum(1, keepdim=True)])
    return t, weights
