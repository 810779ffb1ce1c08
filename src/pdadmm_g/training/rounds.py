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

import torch
from torch import Tensor

from ..admm.activations import ACTIVATIONS
from ..admm.state import Weights
from ..config import ModelConfig
from ..engine.plan import Plan
from .checkpoint import Checkpoint
from .member import Lesson, Member, share_outline
from .records import Record, judged
from .round_rows import RoundRows, Taught

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
    """Is a step not worth while, since rounds no longer help on validation, or since the depth before gained nothing?

    Nor is a second round at a depth whose first one gained nothing. Without validation there is no telling what a
    further depth is worth: with labelled nodes alone all are gone through, else none.
    """
    assert config.patience != "auto"
    scored = [record for record in history if record["val_loss"] is not None]
    if config.growth == "gain" and step.stage > 1:
        tried = [record["stage"] for record in scored]
        if (not scored and config.unlabelled) or (tried and tried[-1] > 1 and margin(tried[-1], history, config)):
            return True
    if not config.unlabelled or step.round == 0:
        return False
    own = [record for record in scored if record["stage"] == step.stage]
    if config.patience is None or not any(record.get("round") for record in own):
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


class Rounds:
    """What a member of the team knows of the rounds."""

    def __init__(self, member: Member, rows: RoundRows) -> None:
        self.base = member
        self.rows = rows

    def member(self, step: Step, plan: Plan, weights: list[Weights]) -> Member:
        """The member as it takes part in a round that starts from these weights of its layers."""
        if step.round == 0:
            return self._alone(step)
        drawn = self.rows.draw(step.round)
        asked = () if drawn.asked is None else drawn.asked
        number = int(self.base.team.chain.broadcast(torch.tensor([len(asked)]), 0))
        mean, agreement = self._mean(self._logits(plan, weights, drawn.asked, number), plan)
        taught = self.rows.taught(drawn, mean)
        return self._taught(step, taught, agreement, taught.changed)

    def resumed(self, step: Step, saved: Checkpoint) -> Member:
        """The member as it was in the round of a checkpoint."""
        if step.round == 0:
            return self._alone(step)
        taught = self.rows.resumed(self.rows.draw(step.round), saved, self.base.outline.like)
        last = saved.history[-1]
        return self._taught(step, taught, last["agreement"], last["changed"])

    def _config(self, step: Step) -> ModelConfig:
        return dataclasses.replace(self.base.config, epochs=min(self.base.config.epochs, epochs_of(step.round)))

    def _alone(self, step: Step) -> Member:
        """The member before the first round, in which labelled nodes train alone."""
        return dataclasses.replace(self.base, config=self._config(step), lesson=Lesson(0))

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
        """The mean of the probabilities over the copies, on the chain's first worker, and on how many all agree."""
        team, outline, copies = self.base.team, self.base.outline, self.base.config.copies
        chain = team.chain
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
        return mean, float(agreement[0] / agreement[1])

    def _taught(self, step: Step, taught: Taught, agreement: float | None, changed: float | None) -> Member:
        """The member with the rows of a round."""
        base, config = self.base, self._config(step)
        outline = share_outline(
            base.team, taught.training, base.validation, base.outline.sizes.classes, config.device, base.training
        )
        lesson = Lesson(step.round, agreement, changed, taught.tensors)
        return dataclasses.replace(
            base, config=config, outline=outline, training=taught.training, scored=base.training, lesson=lesson
        )
