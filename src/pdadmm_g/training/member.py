"""One worker of a run: what it has in every stage, and what the first worker tells the others of the data."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..admm.rows import Rows
from ..admm.targets import Targets
from ..config import ModelConfig
from ..data.examples import Examples, part_of
from ..engine.plan import Plan
from ..engine.row_sums import RowSums
from ..engine.team import Line, Team
from .checkpoint import Checkpointing


class Sizes(NamedTuple):
    """What every worker must know of the data that only the first ones have."""

    nodes: int
    validation_nodes: int
    features: int
    classes: int


class Outline(NamedTuple):
    """The data as they look from afar."""

    #: Those of all rows together, and of the rows of this worker.
    sizes: Sizes
    part: Sizes
    #: The number of the first of its training rows among all of them.
    first: int
    #: An empty tensor of the type and on the device that everything is computed with.
    like: Tensor
    #: Are the targets of the training rows probabilities, or numbers, and not classes?
    soft: bool
    #: The training rows, with their weights.
    rows: Rows
    #: How many rows here the training scores are of, which are others than those that train where nodes without labels
    #: teach; None where they are the same.
    scored: int | None


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
    """One worker of a run. The first one of a chain alone has examples, those of its part of the rows."""

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
        sizes, part, _, _, soft, rows, _ = self.outline
        shape = (part.nodes, sizes.classes) if soft else (part.nodes,)
        t = self._pass_on(None if self.training is None else self.training.y, shape, plan.last)
        weights = None if rows.weights is None else rows.weights[:, 0]
        training = None if t is None else Targets(t, weights)
        if not sizes.validation_nodes:
            return training, None
        columns = self.config.target != "classification"
        shape = (part.validation_nodes, sizes.classes) if columns else (part.validation_nodes,)
        t = self._pass_on(None if self.validation is None else self.validation.y, shape, plan.last)
        return training, None if t is None else Targets(t)

    def share_scored_targets(self, plan: Plan) -> Targets | None:
        """Likewise those that the training scores are of, as classes; None on a worker that does not need them."""
        if self.outline.scored is None:
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
    team: Team,
    training: Examples | None,
    validation: Examples | None,
    num_classes: int,
    device: str,
    scored: Examples | None = None,
) -> Outline:
    """What the first worker of a chain sees of its data, on every worker of it, and what they are all together."""
    numbers = torch.zeros(8, dtype=torch.int64)
    if training is not None:
        nodes, features = training.X.shape
        double, soft = training.X.dtype == torch.float64, training.y.is_floating_point()
        assert validation is None or validation.weights is None
        validation_nodes, weighted = len(validation.y) if validation else 0, training.weights is not None
        seen = -1 if scored is None else len(scored.y)
        numbers = torch.tensor([nodes, validation_nodes, features, num_classes, double, soft, weighted, seen])
    *sizes, double, soft, weighted, seen = team.chain.broadcast(numbers, 0).tolist()
    part = Sizes(*sizes)
    counts = torch.tensor([[part.nodes, part.validation_nodes]])
    everywhere = team.rows.concat(counts, [1] * team.rows.size)
    nodes, validation_nodes = everywhere.sum(0).tolist()
    part = part._replace(classes=int(team.rows.largest(torch.tensor(part.classes))))  # the first worker alone knows
    kind = torch.float64 if double else torch.float32
    like = torch.empty(0, dtype=kind, device=torch.device(device)) if training is None else training.X.new_empty(0)
    number, weights = float(nodes), None
    if weighted:
        own = None if training is None else training.weights
        weights = team.chain.broadcast(like.new_empty(part.nodes) if own is None else own, 0)
        number = float(team.rows.sum(weights.double().sum()))
        weights = weights[:, None]
    rows = Rows(number, weights, RowSums(team.rows) if team.rows.size > 1 else None)
    return Outline(
        part._replace(nodes=nodes, validation_nodes=validation_nodes),
        part,
        int(everywhere[: team.rows.rank, 0].sum()),
        like,
        bool(soft),
        rows,
        None if seen < 0 else seen,
    )


def dealt(team: Team, examples: Examples | None, device: str) -> Examples | None:
    """The part of the examples that belongs to this worker, from the first worker of all; None if it has none.

    The first worker of every chain gets some; nobody does where there are none.
    """
    line = team.rows
    if line.size == 1 or team.chain.rank > 0:
        return examples
    header = torch.zeros(6, dtype=torch.int64)
    if examples is not None:
        soft = examples.y.shape[1] if examples.y.is_floating_point() else 0
        double, weighted = examples.X.dtype == torch.float64, examples.weights is not None
        header = torch.tensor([1, *examples.X.shape, double, soft, weighted])
    present, number, features, double, soft, weighted = line.broadcast(header, 0).tolist()
    if not present:
        return None
    mine = part_of(number, line.rank, line.size)
    if examples is not None:
        for place in range(1, line.size):
            part = part_of(number, place, line.size)
            for rows in examples:
                if rows is not None:
                    line.send(rows[part.start : part.stop], place)
        return Examples(*(None if rows is None else rows[mine.start : mine.stop].clone() for rows in examples))  # type: ignore[arg-type]
    kind = torch.float64 if double else torch.float32
    empty = functools.partial(torch.empty, dtype=kind, device=torch.device(device))
    y = empty(len(mine), soft) if soft else torch.empty(len(mine), dtype=torch.int64, device=torch.device(device))
    X, y = line.receive(empty(len(mine), features), 0), line.receive(y, 0)
    return Examples(X, y, line.receive(empty(len(mine)), 0) if weighted else None)


def counts_of(line: Line, number: int) -> list[int]:
    """How many each process of a line has, on all of them."""
    return line.concat(torch.tensor([number]), [1] * line.size).tolist()


def spread_evenly(examples: Examples, line: Line) -> Examples | None:
    """The part of all examples, in the order of the processes, that this one has to have for all to have as many.

    None where there are none at all.
    """
    counts = counts_of(line, len(examples.y))
    total, before = sum(counts), np.cumsum([0, *counts]).tolist()
    if total == 0:
        return None
    mine = part_of(total, line.rank, line.size)
    own = Examples(*(None if x is None else x.new_empty(len(mine), *x.shape[1:]) for x in examples))  # type: ignore[arg-type]
    for source in range(line.size):
        for target in range(line.size):  # in the same order for all, so that nobody waits in a circle
            part = part_of(total, target, line.size)
            first, last = max(part.start, before[source]), min(part.stop, before[source + 1])
            if first >= last or line.rank not in (source, target):
                continue
            for given, taken in zip(examples, own, strict=True):
                if given is None or taken is None:
                    continue
                there = taken[first - part.start : last - part.start]
                here = given[first - before[source] : last - before[source]]
                if source == target:
                    there.copy_(here)
                elif line.rank == source:
                    line.send(here, target)
                else:
                    line.receive(there, source)
    return own
