"""One worker of a run: what it has in every stage, and what the first worker tells the others of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..admm.rows import Rows
from ..admm.targets import Targets
from ..config import ModelConfig
from ..data.examples import Examples
from ..engine.plan import Plan
from ..engine.team import Line, Team
from .checkpoint import Checkpointing


class Sizes(NamedTuple):
    """What every worker must know of the data that only the first one has."""

    nodes: int
    validation_nodes: int
    features: int
    classes: int


class Outline(NamedTuple):
    """The data as they look from afar."""

    sizes: Sizes
    #: An empty tensor of the type and on the device that everything is computed with.
    like: Tensor
    #: Are the targets of the training rows probabilities?
    soft: bool
    #: The training rows, with their weights.
    rows: Rows
    #: How many rows the training scores are of; those that train are others where nodes without labels teach.
    scored: int


class Lesson(NamedTuple):
    """One renewal of what nodes without labels should become."""

    #: Counted over the whole run; before the first one, labelled nodes train alone.
    round: int
    #: Share of the nodes on whose class all copies agree, and of those whose class is another than when last asked.
    agreement: float | None = None
    changed: float | None = None
    #: The mean over the copies, and the last known class of every node; the first worker has them.
    tensors: dict[str, Tensor] | None = None


@dataclass(frozen=True)
class Member:
    """One worker of a run. The first one alone has examples."""

    team: Team
    config: ModelConfig
    outline: Outline
    training: Examples | None
    validation: Examples | None
    checkpointing: Checkpointing | None
    #: Rows with labels that the training scores are of; None where those that train are.
    scored: Examples | None = None
    #: What every record says of the round that it is of, and what a checkpoint must hold to go on in it.
    lesson: Lesson | None = None

    def share_targets(self, plan: Plan) -> tuple[Targets | None, Targets | None]:
        """The targets of training and validation go from the first worker to the last, and to nobody else."""
        sizes, _, soft, rows, _ = self.outline
        whole = (sizes.nodes, sizes.classes) if soft else (sizes.nodes,)
        t = self._pass_on(None if self.training is None else self.training.y, whole, plan.last)
        weights = None if rows.weights is None else rows.weights[:, 0]
        training = None if t is None else Targets(t, weights)
        if not sizes.validation_nodes:
            return training, None
        t = self._pass_on(None if self.validation is None else self.validation.y, (sizes.validation_nodes,), plan.last)
        return training, None if t is None else Targets(t)

    def share_scored_targets(self, plan: Plan) -> Targets | None:
        """Likewise those that the training scores are of, as classes; None on a worker that does not need them."""
        if self.outline.scored == self.outline.sizes.nodes:
            return None
        labels = None if self.scored is None else self.scored.targets.labels
        t = self._pass_on(labels, (self.outline.scored,), plan.last)
        return None if t is None else Targets(t)

    def _pass_on(self, t: Tensor | None, shape: tuple[int, ...], last: int) -> Tensor | None:
        chain = self.team.chain
        if chain.rank != last:
            if t is not None:
                chain.send(t, last)
            return None
        if t is not None:
            return t
        like = self.outline.like
        return chain.receive(like.new_empty(shape, dtype=like.dtype if len(shape) > 1 else torch.int64), 0)


def share_outline(
    chain: Line,
    training: Examples | None,
    validation: Examples | None,
    num_classes: int,
    device: str,
    scored: Examples | None = None,
) -> Outline:
    """What the first worker sees of its data, on every worker."""
    numbers = torch.zeros(8, dtype=torch.int64)
    if training is not None:
        nodes, features = training.X.shape
        double, soft = training.X.dtype == torch.float64, training.y.is_floating_point()
        assert validation is None or (validation.weights is None and not validation.y.is_floating_point())
        validation_nodes, weighted = len(validation.y) if validation else 0, training.weights is not None
        seen = nodes if scored is None else len(scored.y)
        numbers = torch.tensor([nodes, validation_nodes, features, num_classes, double, soft, weighted, seen])
    *sizes, double, soft, weighted, seen = chain.broadcast(numbers, 0).tolist()
    kind = torch.float64 if double else torch.float32
    like = torch.empty(0, dtype=kind, device=torch.device(device)) if training is None else training.X.new_empty(0)
    rows = Rows(sizes[0])
    if weighted:
        own = None if training is None else training.weights
        rows = Rows.of_weights(chain.broadcast(like.new_empty(sizes[0]) if own is None else own, 0))
    return Outline(Sizes(*sizes), like, bool(soft), rows, seen)
