"""One worker of a run: its part of the data, what it knows of the rest, and how rows are spread over processes."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from ..admm.risks import Targets
from ..admm.rows import Rows
from ..config import ModelConfig
from ..engine.layout import widths
from ..engine.team import ProcessLine, RowSums, Team
from ..errors import InputError
from ..graph.examples import Examples, shares
from .checkpoint import Checkpointing


class Round(NamedTuple):
    """One renewal of the pseudo-labels."""

    #: Counted over the whole run; before the first one, labelled nodes train alone.
    number: int
    #: Share of the nodes on whose class all copies agree, and of those whose class is another than when last asked.
    agreement: float | None = None
    changed: float | None = None
    #: What a checkpoint must hold to go on in it; the first worker has it.
    tensors: dict[str, Tensor] | None = None


class Member:
    """One worker of a run. The first one of a chain alone has examples, those of its part of the rows.

    It shares with all others what they need to know of them. The training scores are of the rows ``scored``, or else of
    those that train.
    """

    def __init__(
        self,
        team: Team,
        config: ModelConfig,
        training: Examples | None,
        validation: Examples | None,
        classes: int,
        checkpointing: Checkpointing | None = None,
        scored: Examples | None = None,
        round: Round | None = None,
    ) -> None:
        self.team, self.config, self.checkpointing, self.round = team, config, checkpointing, round
        self.training, self.validation, self.scored = training, validation, scored or training
        line, about = team.rows, None
        if training is not None:
            others = [0 if validation is None else len(validation.y), -1 if scored is None else len(scored.y)]
            kinds = [training.X.dtype == torch.float64, training.y.is_floating_point(), training.weights is not None]
            about = [*training.X.shape, *others, classes, *kinds]
        nodes, self.features, validating, scoring, classes, double, soft, weighted = team.chain.told(about)
        counts = line.concat(torch.tensor([[nodes, validating]]), [1] * line.size)
        #: Training rows of all shards, and the numbers of those of this one among them.
        self.all_nodes, all_validating = counts.sum(0).tolist()
        if line.size > self.all_nodes:
            many = f"shards = {line.size}, but there are {self.all_nodes} training rows"
            raise InputError(f"{many}: set shards to {self.all_nodes} at most")
        first = int(counts[: line.rank, 0].sum())
        self.nodes = range(first, first + nodes)
        self.validates = all_validating > 0
        self.classes = int(line.largest(torch.tensor(classes)))  # where rows are dealt, the first worker alone knows
        self.config = config = config.resolved(classes=self.classes)
        kind = torch.float64 if double else torch.float32
        #: An empty tensor of the type and on the device that everything is computed with.
        self.like = torch.empty(0, dtype=kind, device=config.device) if training is None else training.X.new_empty(0)

        def known(own: Tensor | None, *shape: int, kind: torch.dtype = kind) -> Tensor:
            empty = self.like.new_empty(shape, dtype=kind)
            return team.chain.broadcast(empty if own is None else own.contiguous(), 0)

        def targets(y: Tensor | None, rows: int, columns: bool, weights: Tensor | None = None) -> Targets:
            return Targets(known(y, rows, self.classes) if columns else known(y, rows, kind=torch.int64), weights)

        number, weights = float(self.all_nodes), None
        if weighted:
            weights = known(training.weights if training else None, nodes)
            number = float(line.sum(weights.double().sum()))
        #: Of the training rows, of the validation rows, and of those that the training scores are of.
        self.targets = self.scored_targets = targets(training.y if training else None, nodes, soft, weights)
        self.validation_targets = None
        if self.validates:
            columns = config.target != "classification"
            self.validation_targets = targets(validation.y if validation else None, validating, columns)
        if scoring >= 0:
            self.scored_targets = targets(scored.targets.labels if scored else None, scoring, False)
        sums = RowSums(line) if isinstance(line, ProcessLine) else None
        #: The training rows, with their weights.
        self.rows = Rows(number, None if weights is None else weights[:, None], sums)

    def widths(self, depth: int) -> list[int]:
        """Those of a network with so many layers."""
        return widths(self.features, self.config.width, self.classes, depth)


def dealt(team: Team, examples: Examples | None, device: str, places: Tensor | None = None) -> Examples | None:
    """The part of all examples that belongs to this worker: as many for each chain, in their order.

    Who has some brings them, with their ``places`` among all, or else in the order of the processes; the first worker
    of all has some if anybody has. The first worker of every chain gets a part; nobody does where there are none.
    """
    line = team.rows
    if line.size == 1 or team.chain.rank > 0:
        return examples
    about = None
    if examples is not None:
        soft = examples.y.shape[1] if examples.y.is_floating_point() else 0
        about = (examples.X.shape[1], examples.X.dtype == torch.float64, soft)
    about = line.told(about)
    weighted = examples is not None and examples.weights is not None
    weighted = bool(line.largest(torch.tensor(int(weighted))))  # those of some may be one
    if about is None:
        return None
    if examples is None:
        features, double, soft = about
        empty = functools.partial(torch.empty, dtype=torch.float64 if double else torch.float32, device=device)
        y = empty(0, soft) if soft else empty(0, dtype=torch.int64)
        examples = Examples(empty(0, features), y)
    if weighted and examples.weights is None:
        examples = examples._replace(weights=examples.X.new_ones(len(examples.y)))
    counts = line.counts(len(examples.y))
    if places is None:
        places = sum(counts[: line.rank]) + torch.arange(len(examples.y))
    everyone = line.concat(places.cpu(), counts)
    parts = shares(len(everyone), line.size)
    own = Examples(*(None if x is None else x.new_empty(len(parts[line.rank]), *x.shape[1:]) for x in examples))  # type: ignore[arg-type]
    for source, theirs in enumerate(everyone.split(counts)):
        for target, part in enumerate(parts):  # in the same order for all, so that nobody waits in a circle
            if line.rank not in (source, target):
                continue
            sent = ((theirs >= part.start) & (theirs < part.stop)).nonzero().view(-1)
            if not len(sent):
                continue
            here, there = _span(sent), _span(theirs[sent] - part.start)
            for given, taken in zip(examples, own, strict=True):
                if given is None or taken is None:
                    continue
                if source == target:
                    taken[there] = given[here]
                elif line.rank == source:
                    line.send(given[here], target)
                else:
                    taken[there] = line.receive(taken.new_empty(len(sent), *taken.shape[1:]), source)
    return own


def _span(places: Tensor) -> Tensor | slice:
    """Consecutive places as a slice, of which no copy is made."""
    first, last = int(places[0]), int(places[-1])
    return slice(first, last + 1) if bool((places.diff() == 1).all()) else places
