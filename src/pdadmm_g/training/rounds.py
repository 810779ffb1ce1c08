r"""Rounds in which nodes without labels teach: what they should become is what the network says of random copies.

In each round, for a sample of nodes without labels and :math:`S` copies of the features (:class:`.Copies`),

.. math:: t_i \propto \Big( \tfrac1S \sum_s \mathrm{softmax}\, f(x_i^{(s)}) \Big)^{\gamma}

with the best weights so far, and then some epochs on the copies of all nodes: those with labels weigh :math:`1/S` each,
the others together :math:`\lambda` times as much as these. Within a round the objective falls as always; a new round
is a new problem.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..admm.activations import ACTIVATIONS
from ..admm.state import Weights
from ..config import ModelConfig
from ..data.copies import NodeCopies
from ..data.examples import Examples, part_of
from ..engine.plan import Plan
from .checkpoint import Checkpoint
from .member import Lesson, Member, dealt, share_outline
from .records import Record, judged

#: Most epochs of a round, and of labelled nodes alone before the first one.
ROUND_EPOCHS, FIRST_EPOCHS = 10, 60
#: Rounds at each depth beyond the first, and the validation score that a depth must gain to be kept.
GROWN_ROUNDS, GAIN = 2, 0.005


class Step(NamedTuple):
    """A part of the schedule: one stage, or one round of it."""

    stage: int
    depth: int
    #: Zero where no round is meant.
    round: int = 0


def schedule(config: ModelConfig) -> list[Step]:
    """The stages of growth in order, with the rounds of each where nodes without labels teach."""
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
    """Is a round not worth while, since rounds no longer help on validation, or since the depth before gained nothing?

    Without validation there is no telling what a further depth is worth.
    """
    if not config.unlabelled or step.round == 0:
        return False
    scored = [record for record in history if record["val_accuracy"] is not None]
    if step.stage > 1 and not scored:
        return True
    if step.stage > 2 and margin(Step(step.stage - 1, step.depth, step.round), history):
        return True
    own = [record for record in scored if record["stage"] == step.stage]
    if config.patience is None or not any(record["round"] for record in own):
        return False
    scores = [judged(record) or (-math.inf, -math.inf) for record in own]
    before = max((record["epoch"] for record in own if not record["round"]), default=0)
    best = max(before, own[scores.index(max(scores))]["epoch"])
    return bool(own[-1]["epoch"] - best >= config.patience)


def margin(step: Step, history: list[Record]) -> float:
    """The validation score that a depth beyond the first still has to gain before it counts as better."""
    if step.stage == 1 or step.round == 0:
        return 0.0
    scores = [(record["stage"] == step.stage, score[0]) for record in history if (score := judged(record))]
    own, before = (max((score for new, score in scores if new is kind), default=None) for kind in (True, False))
    return 0.0 if own is not None and before is not None and own >= before + GAIN else GAIN


class Rounds:
    """What a member of the team knows of the rounds: the first one has the nodes, all have the schedule."""

    def __init__(self, member: Member, copies: NodeCopies | None, labelled: Examples | None, seed: int) -> None:
        self.base = member
        self.copies = copies
        #: All nodes with labels, where the copies are.
        self.labelled = labelled
        self.seed = seed
        #: The last known class of every node that may teach, -1 where none is known.
        self.known: Tensor | None = None
        if copies is not None:
            self.known = torch.full((len(copies.others),), -1, device=copies.others.device)

    def member(self, step: Step, plan: Plan, weights: list[Weights]) -> Member:
        """The member as it takes part in a round that starts from these weights of its layers."""
        config = self._config(step)
        if step.round == 0:
            return dataclasses.replace(self.base, config=config, lesson=Lesson(0))
        X, place, sample = self._draw(step)
        asked = self._asked(None if X is None else X[:, place:], sample)
        rows = int(self.base.team.chain.broadcast(torch.tensor([0 if asked is None else len(asked)]), 0))
        mean, agreement = self._mean(self._logits(plan, weights, asked, rows), plan)
        changed = None
        if sample is not None:
            assert self.known is not None
            now, before = mean.argmax(1), self.known[sample]
            seen = before >= 0
            changed = float((now != before)[seen].double().mean()) if bool(seen.any()) else None
            self.known[sample] = now
        return self._taught(config, X, mean, Lesson(step.round, agreement, changed))

    def resumed(self, step: Step, saved: Checkpoint) -> Member:
        """The member as it was in the round of a checkpoint."""
        config = self._config(step)
        if step.round == 0:
            return dataclasses.replace(self.base, config=config, lesson=Lesson(0))
        X, _, _ = self._draw(step)
        mean = self.base.outline.like
        if self.copies is not None:
            tensors = saved.lesson(mean)
            mean, self.known = tensors["mean"], tensors["known"]
        last = saved.history[-1]
        return self._taught(config, X, mean, Lesson(step.round, last["agreement"], last["changed"]))

    def _config(self, step: Step) -> ModelConfig:
        return dataclasses.replace(self.base.config, epochs=min(self.base.config.epochs, epochs_of(step.round)))

    def _draw(self, step: Step) -> tuple[Tensor | None, int, Tensor | None]:
        """Copies of the rows of nodes, how many of these have labels, and the places of the others in the pool."""
        if self.copies is None:
            return None, 0, None
        config, labelled, pool = self.base.config, self.copies.training, self.copies.others
        assert config.unlabelled is not None
        order, noise = np.random.SeedSequence([self.seed, step.round]).generate_state(2, np.uint64).tolist()
        generator = torch.Generator().manual_seed(order)
        sample = torch.randperm(len(pool), generator=generator)[: config.unlabelled].to(pool.device)
        nodes = torch.cat([labelled, pool[sample]])
        return self.copies.copies.draw(nodes, config.copies, noise), len(labelled), sample

    def _asked(self, X: Tensor | None, sample: Tensor | None) -> Tensor | None:
        """The copies, one after the other, of the nodes that this shard asks, on the first worker of its chain."""
        config = self.base.config
        nodes = None
        if X is not None and sample is not None:
            nodes = Examples(X.transpose(0, 1).flatten(1), sample)
        nodes = dealt(self.base.team, nodes, config.device)
        if nodes is None:
            return None
        number, columns = nodes.X.shape
        return nodes.X.view(number, config.copies, columns // config.copies).transpose(0, 1).flatten(0, 1)

    def _logits(self, plan: Plan, weights: list[Weights], x: Tensor | None, rows: int) -> Tensor | None:
        """Logits of rows that the first worker has, on the last one: activations pass down the chain."""
        base, chain = self.base, self.base.team.chain
        layers = plan.layers(chain.rank)
        if not layers:
            return None
        if x is None:
            x = chain.receive(base.outline.like.new_empty(rows, base.config.hidden), chain.rank - 1)
        for index, own in zip(layers, weights, strict=True):
            x = torch.addmm(own.b, x, own.W.T)
            if index < plan.depth - 1:
                x = ACTIVATIONS[base.config.activation](x)
        if chain.rank == plan.last:
            return x
        chain.send(x, chain.rank + 1)
        return None

    def _mean(self, logits: Tensor | None, plan: Plan) -> tuple[Tensor, float]:
        """The mean of the probabilities over the copies, on the first worker, and on how many all agree, everywhere."""
        team, outline, copies = self.base.team, self.base.outline, self.base.config.copies
        chain, shards = team.chain, team.rows.size
        agreement = torch.zeros(2, dtype=torch.float64)  # nodes on whose class all copies agree, and nodes
        mean = outline.like
        if logits is not None:
            each = torch.softmax(logits, dim=1).view(copies, len(logits) // copies, outline.sizes.classes)
            mean = each.mean(0)
            classes = each.argmax(2)
            agreement[0] = float((classes == classes[0]).all(0).sum())
            agreement[1] = mean.shape[0]
        agreement = chain.broadcast(agreement, plan.last)
        number = int(agreement[1])
        agreement = team.rows.sum(agreement)
        if plan.last != 0:
            if chain.rank == plan.last:
                chain.send(mean, 0)
            elif chain.rank == 0:
                mean = chain.receive(outline.like.new_empty(number, outline.sizes.classes), plan.last)
        if chain.rank == 0:
            mean = team.rows.concat(mean, [len(part_of(int(agreement[1]), place, shards)) for place in range(shards)])
        return mean, float(agreement[0] / agreement[1])

    def _taught(self, config: ModelConfig, X: Tensor | None, mean: Tensor, lesson: Lesson) -> Member:
        """The member with the rows of a round."""
        base, training = self.base, None
        if X is not None:
            assert self.labelled is not None
            assert config.sharpness is not None
            assert self.known is not None
            training = _examples(X, self.labelled, _sharpened(mean, config.sharpness), config.trust)
            lesson = lesson._replace(tensors={"mean": mean, "known": self.known})
        training = dealt(base.team, training, config.device)
        outline = share_outline(
            base.team, training, base.validation, base.outline.sizes.classes, config.device, base.training
        )
        return dataclasses.replace(
            base, config=config, outline=outline, training=training, scored=base.training, lesson=lesson
        )


def _sharpened(mean: Tensor, power: float) -> Tensor:
    """Each row to this power; one of which nothing is left in its precision, in relation to its largest entry."""
    sharp = mean**power
    return torch.where(sharp.sum(1, keepdim=True) > 0, sharp, (mean / mean.amax(1, keepdim=True)) ** power)


def _examples(X: Tensor, labelled: Examples, sharp: Tensor, trust: float) -> Examples:
    """The rows of a round: each copy of the nodes with labels, then of those without if they weigh anything."""
    t = labelled.targets.distribution(sharp.new_empty(len(labelled.y), sharp.shape[1]))
    weights = sharp.new_ones(len(t)) if labelled.weights is None else labelled.weights
    if trust and len(sharp):
        others = weights.sum() * (trust / len(sharp))
        weights = torch.cat([weights, others.expand(len(sharp))])
        t = torch.cat([t, sharp / sharp.sum(1, keepdim=True)])
    copies = len(X)
    return Examples(X[:, : len(t)].flatten(0, 1), t.repeat(copies, 1), (weights / copies).repeat(copies))
