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


def _asked(base: Member, plan: Plan, weights: list[Weights], x: Tensor | None) -> tuple[Tensor, float]:
    """The mean of the probabilities over the copies ``x`` of nodes, and the share of nodes on which all copies agree.

    The chain's first worker has the copies and gets the mean: activations pass down the chain.
    """
    chain, copies, layers = base.team.chain, base.config.copies, plan.layers(base.team.chain.rank)
    number = chain.told(0 if x is None else len(x))
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


class RoundRows:
    """The rows of rounds: who has a part of the graph makes copies of its nodes, which are dealt to all chains."""

    def __init__(self, copies: Copies | None, seed: int) -> None:
        self.copies, self.seed = copies, seed
        #: The last known class of every node of the pool, -1 where none is known.
        self.known = torch.empty(0) if copies is None else torch.full_like(copies.others, -1)

    def member(self, base: Member, step: Step, plan: Plan, weights: list[Weights], saved: Checkpoint | None) -> Member:
        """The member in a round that starts from these weights of its layers, or goes on from a checkpoint.

        All workers call this together. A round has the labelled nodes first and then a sample of the others, always
        the same one.
        """
        team, copies = base.team, self.copies
        config = base.config.but(epochs=min(base.config.epochs, epochs_of(step.round)))
        if step.round == 0:  # labelled nodes train alone
            alone = copy.copy(base)
            alone.config, alone.round = config, Round(0)
            return alone
        # Copies of the nodes that are here (copies, nodes, features), and their places among those of the round.
        X = places = asked = nodes = sample = changed = tensors = training = None
        if copies is not None:
            number = len(copies.training)
            order, noise = np.random.SeedSequence([self.seed, step.round]).generate_state(2, np.uint64).tolist()
            sample = copies.sample(config.unlabelled or 0, torch.Generator().manual_seed(order))
            everyone = torch.cat([copies.training, copies.others[sample]])
            X, places = copies.rows(everyone, config.copies, noise), copies.is_own(everyone).nonzero().view(-1)
            first = int((places < number).sum())
            asked = places[first:] - number
            nodes = Examples(X[:, first:].transpose(0, 1).flatten(1), asked)
        nodes = dealt(team, nodes, config.device, asked)
        if saved is not None:
            agreement, changed = (saved.history[-1][name] for name in ("agreement", "changed"))
            mean = base.like
            if copies is not None:
                tensors = saved.pseudo_labels(mean)
                mean, self.known = tensors["mean"], tensors["known"]
        else:
            x = None
            if nodes is not None:
                x = nodes.X.view(len(nodes.X), config.copies, nodes.X.shape[1] // config.copies)
                x = x.transpose(0, 1).flatten(0, 1)  # the copies, one after the other
            mean, agreement = _asked(base, plan, weights, x)
            if nodes is not None:
                mean = team.rows.concat(mean, team.rows.counts(len(mean)))
            if sample is not None:
                now, before = mean.argmax(1), self.known[sample]
                self.known[sample] = now
                changed = float((now != before)[before >= 0].double().mean()) if bool((before >= 0).any()) else None
        if copies is not None and X is not None and places is not None:
            t, w = targets_of(copies.targets, mean, config)
            own = places[places < len(t)]
            X = X[:, : len(own)].flatten(0, 1)
            training = Examples(X, t[own].repeat(config.copies, 1), (w[own] / config.copies).repeat(config.copies))
            places = (len(t) * torch.arange(config.copies, device=own.device)[:, None] + own).flatten()
            tensors = {"mean": mean, "known": self.known} if team.rank == 0 else None
        training = dealt(team, training, config.device, places)
        round = Round(step.round, agreement, changed, tensors)
        return Member(team, config, training, base.validation, base.classes, base.checkpointing, base.training, round)


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
