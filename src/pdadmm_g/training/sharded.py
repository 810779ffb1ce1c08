"""Training and scoring on a folder of shards: every chain's first process has its own rows, nobody all of them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import resource
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config import ModelConfig
from ..data.augmentation import GraphAugment
from ..data.augmentation_choice import DEFAULT_HOPS, DEFAULT_TELEPORT, augmentation
from ..data.examples import Examples
from ..data.graph import MASKS
from ..data.sharded_augmentation import ShardedAugment, ShardedCopies
from ..data.shards import Description, Part, ShardFolder, shard_name
from ..data.targets import class_factors
from ..engine.gathering import Gatherer
from ..engine.team import Line, Team, agreed, same
from ..errors import InputError
from ..model import GAMLP, decisions, finite, outputs
from ..utils import compute_threads
from .checkpoint import Checkpointing
from .choose import DECAYS_PER_LABEL, MOST_ROWS, NORMALIZATIONS, OPERATORS, SHARPNESSES, UNLABELLED, choose_weight_decay
from .member import counts_of, spread_evenly
from .records import OnEpoch, Say
from .train import TrainingResult, train

#: Which masks a node is in, for each number that :func:`memberships` may give it.
IN = torch.tensor([[number >> place & 1 for place in range(len(MASKS))] for number in range(1 << len(MASKS))])


@dataclass(frozen=True)
class ShardedResult:
    """What comes of training on shards, on the first process."""

    training: TrainingResult
    config: ModelConfig
    classes: NDArray[Any]
    augmentation: GraphAugment
    #: What was decided for want of a setting, a sentence each.
    reasons: tuple[str, ...]
    #: None as long as it is not scored.
    scores: Scores | None = None
    #: For each process what it took: seconds, bytes, peak memory.
    processes: list[dict[str, float]] = field(default_factory=list)


def open_part(dataset: str, team: Team) -> tuple[Description, Part | None]:
    """The description of a folder that all processes see alike, and the part of this one if it is to have one."""
    folder = agreed(team, lambda: ShardFolder(dataset))
    same(team, folder.whole.fingerprint, str(folder.path / "description.json"))
    line = team.rows
    part = agreed(team, lambda: folder.part(line.rank, line.size) if team.chain.rank == 0 else None)
    return folder.whole, part


def with_defaults(config: ModelConfig, whole: Description) -> tuple[ModelConfig, tuple[str, ...]]:
    """``config`` with what otherwise is chosen by trying on all data, and a sentence on each such default."""
    if config.augment == "apart" or config.directed not in ("auto", "symmetric"):
        asked = "augment = apart" if config.augment == "apart" else f"directed = {config.directed}"
        raise InputError(f"{asked} is for one file: in a sharded folder edges count both ways alike, with self-loops")
    if config.refit or config.split is not None:
        raise InputError("refit and split are for one file, not for a sharded folder")
    if config.calibrate:
        raise InputError("calibrate must be off on a sharded folder: probabilities are calibrated on one file only")
    if config.unlabelled and config.drop_entries:
        raise InputError("drop_entries must be 0 on a sharded folder, where copies leave out whole nodes only")
    # With learning from unlabelled nodes, the first of what would be tried otherwise.
    usual, own_share = OPERATORS[0] if config.unlabelled else (DEFAULT_HOPS, DEFAULT_TELEPORT)
    augment, normalize, hops = config.augment, config.normalize, config.hops
    if augment == "auto":
        augment, hops = ("average", hops or usual) if whole.edges else ("none", 1)
    teleport = own_share if config.teleport is None else config.teleport
    if normalize == "auto":
        normalize = NORMALIZATIONS[0] if config.unlabelled else "centered"
    taken = []
    if "auto" in (config.augment, config.normalize):
        of = f" of {hops} hops" if augment != "none" else ""
        taken.append(f"features: {augment}{of}, {normalize}: the default for a sharded folder, where none are tried")
    if config.directed == "auto" and augment != "none":
        taken.append("edges count both ways alike: a sharded folder does not keep their directions; one file does")
    if config.unlabelled is None:
        taken.append(
            "nodes without labels do not teach: whether they help is not tried on a sharded folder; set unlabelled, to "
            f"{UNLABELLED} for instance, if they should"
        )
    settings: dict[str, Any] = {"augment": augment, "hops": hops, "normalize": normalize, "teleport": teleport}
    settings |= {"directed": "symmetric", "unlabelled": config.unlabelled or 0}
    if config.unlabelled:
        settings |= {"drop_entries": 0.0, "sharpness": config.sharpness or SHARPNESSES[0]}
    return dataclasses.replace(config, **settings), tuple(taken)


def fit_sharded(
    dataset: str,
    config: ModelConfig,
    *,
    seed: int,
    team: Team | None = None,
    on_epoch: OnEpoch | None = None,
    checkpointing: Checkpointing | None = None,
    say: Say | None = None,
    on_trained: Callable[[ShardedResult], None],
) -> ShardedResult | None:
    """Augment, train and score, all over shards. Every process of the team calls this; the first gets the result.

    It is told ``on_trained`` what there is before that is scored.
    """
    team, say = team or Team(), say or (lambda _: None)
    config = (checkpointing.decided(config.resolved()) if checkpointing else config).resolved("classification")
    whole, part = open_part(dataset, team)
    config, reasons = agreed(team, lambda: with_defaults(config, whole))
    reasons = checkpointing.explained(reasons) if checkpointing else reasons
    with compute_threads(config.threads):
        rows = agreed(team, lambda: OwnNodes.of(part, dataset) if part else None)
        classes, weights, number = _classes(rows, team, whole, config, dataset)
        if number == whole.nodes:
            config = dataclasses.replace(config, unlabelled=0)  # no node is without a label
        augment = augmentation(config)
        sharded, figures = augmented(team, part, augment, say)
        training = validation = copies = None
        if rows is not None and sharded is not None:
            own = rows.examples(sharded, classes, weights)
            training, validation = (spread_evenly(part, team.rows) for part in own)
            assert training is not None
            config = _with_weight_decay(training, validation, len(classes), config, seed, team.rows)
            if config.unlabelled:
                copies = ShardedCopies(sharded, config.drop, np.flatnonzero(rows.masks[MASKS[0]]), own[0].targets)
            training = training.to(config.device)
            validation = None if validation is None else validation.to(config.device)
        result = train(
            training, validation, len(classes), config, seed=seed, on_epoch=on_epoch if team.rank == 0 else None,
            team=team, checkpointing=checkpointing, copies=copies, spread=True,
        )  # fmt: skip
        found = scores = None
        if team.rank == 0:
            assert result is not None
            found = ShardedResult(result, config, classes, augment, reasons)
            on_trained(found)
        if result is not None and sharded is not None and rows is not None:
            scores = score(result.model.cpu().eval(), sharded, rows.hard, rows.masks, classes, team.rows)
    processes = all_figures(team, figures)
    return None if found is None else dataclasses.replace(found, scores=scores, processes=processes)


def augmented(
    team: Team, part: Part | None, augment: GraphAugment, say: Say
) -> tuple[ShardedAugment | None, dict[str, float]]:
    """The features of the own part, made by the first processes of all chains together; the others wait."""
    chain, line = team.chain, team.rows

    def on_block(done: int, total: int) -> None:
        stop = line.broadcast(torch.tensor([int(team.stop_requested())]), 0)
        chain.broadcast(torch.tensor([done, total, int(stop)]), 0)
        if int(stop):
            raise KeyboardInterrupt
        if team.rank == 0:
            say(f"augmentation: block {done} of {total}" if done < total else "augmentation: done")

    if part is None:
        done, total = 0, 1
        while done < total:
            done, total, stop = chain.broadcast(torch.zeros(3, dtype=torch.int64), 0).tolist()
            if stop:
                raise KeyboardInterrupt
        return None, {}
    sharded = ShardedAugment(part, augment, line, functools.partial(Gatherer, line))
    return sharded, sharded.prepare(on_block)


def all_figures(team: Team, figures: dict[str, float]) -> list[dict[str, float]]:
    """What each process took, on all of them."""
    names = ("augment_seconds", "multiply_seconds", "gather_seconds", "entries", "columns", "sent", "shared")
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    own = torch.tensor([[float(figures.get(name, 0.0)) for name in names] + [float(peak)]], dtype=torch.float64)
    found = team.concat(own, [1] * team.size).tolist()
    return [dict(zip((*names, "peak_bytes"), row, strict=True)) for row in found]


class OwnNodes(NamedTuple):
    """The labels and masks of the nodes of a part."""

    #: Classes, -1 where none is known; probabilities where there are such (nodes, classes).
    y: NDArray[Any]
    hard: NDArray[Any]
    masks: dict[str, NDArray[Any]]

    @staticmethod
    def of(part: Part, dataset: str) -> OwnNodes:
        """Those of a part that can be trained on, as far as one part tells."""
        y = part.column("y")
        if y is None:
            raise InputError(f"{dataset}: labels 'y' are missing")
        if "train_mask" not in part.whole.arrays:
            raise InputError(f"{dataset}: 'train_mask' is missing: mark the nodes to train on")
        hard = hard_classes(y)
        masks = {name: mask for name in MASKS if (mask := part.column(name)) is not None}
        for name, mask in masks.items():
            for bad in np.flatnonzero(mask & (hard < 0))[:1].tolist():
                shard = int(np.searchsorted(part.whole.starts, part.first + bad, side="right")) - 1
                place = part.shards[0].folder.parent / shard_name(shard, part.whole.shards)
                raise InputError(f"{place}: node {part.first + bad} of {name} has no label (y = -1)")
        return OwnNodes(y, hard, masks)

    def examples(self, sharded: ShardedAugment, classes: NDArray[Any], weights: Tensor | None) -> list[Examples]:
        """The own nodes that train, and those that validate."""
        train, val = (np.flatnonzero(self.masks.get(name, np.zeros(0, dtype=bool))) for name in MASKS[:2])
        labels, known = (torch.from_numpy(np.searchsorted(classes, self.hard[nodes])) for nodes in (train, val))
        y = torch.from_numpy(self.y[train]).float() if self.y.ndim == 2 else labels
        own = Examples(sharded.rows(train), y, None if weights is None else weights[labels])
        return [own, Examples(sharded.rows(val), known)]


def memberships(masks: dict[str, NDArray[Any]], nodes: int) -> NDArray[Any]:
    """For each of so many nodes a number, in which each mask that it is in is a bit."""
    sets = np.zeros(nodes, dtype=np.int64)
    for place, name in enumerate(MASKS):
        if name in masks:
            sets |= masks[name].astype(np.int64) << place
    return sets


def hard_classes(y: NDArray[Any]) -> NDArray[Any]:
    """The class of every node, the most probable one where there are probabilities; -1 for a node without label."""
    return y if y.ndim == 1 else np.where(np.isnan(y).any(1), -1, y.argmax(1))


def _classes(
    rows: OwnNodes | None, team: Team, whole: Description, config: ModelConfig, dataset: str
) -> tuple[NDArray[Any], Tensor | None, int]:
    """The classes that some training row has, in order, what a row of each weighs, and the number of training rows.

    The weights are None if each is one. They follow from sums over all parts, on every process.
    """
    size, soft = max(whole.classes, 1), str(whole.arrays.get("y")).startswith("float")
    table = torch.zeros(len(IN), size, dtype=torch.int64)  # how many nodes are in which masks and of which class
    if rows is not None:
        known = rows.hard >= 0
        places = memberships(rows.masks, len(known))[known] * size + rows.hard[known]
        table = team.rows.sum(torch.bincount(torch.from_numpy(places), minlength=table.numel()).view_as(table))
    table = team.chain.broadcast(table, 0)
    counts = table[IN[:, 0] > 0].sum(0)
    number = int(counts.sum())
    if number == 0:
        raise InputError(f"{dataset}: train_mask is empty: mark at least one node per class")
    if number < team.rows.size:
        raise InputError(f"shards = {team.rows.size}, but there are {number} training rows: set shards to {number}")
    present = torch.ones(size, dtype=torch.bool) if soft else counts > 0
    for absent in ((table[1:].sum(0) > 0) & ~present).nonzero().view(-1).tolist():
        raise InputError(f"{dataset}: class {absent} has no training node")
    classes = present.nonzero().view(-1).numpy()
    if len(classes) == 1:
        raise InputError(f"{dataset}: all training nodes are of class {classes[0]}: there is nothing to tell apart")
    for a, b in itertools.combinations(range(len(MASKS)), 2):
        nodes = int(table[IN[:, [a, b]].all(1)].sum())
        if nodes and team.rank == 0:
            warnings.warn(f"{MASKS[a]} and {MASKS[b]} share {nodes} nodes", stacklevel=2)
    if config.class_weight is None:
        return classes, None, number
    if soft:
        raise InputError("class_weight needs classes as labels on a sharded folder, not probabilities")
    factors = class_factors(torch.arange(len(classes)), classes, config.class_weight, counts[classes].double())
    if bool((factors <= 0).any()):
        raise InputError("class_weight must be positive for every class on a sharded folder")
    return classes, None if bool((factors == 1).all()) else factors.float(), number


def _with_weight_decay(
    training: Examples, validation: Examples | None, classes: int, config: ModelConfig, seed: int, line: Line
) -> ModelConfig:
    """``config`` with the weight decay that the first process finds best on a sample of all rows, see there.

    When learning from unlabelled nodes, the first of what would be tried otherwise.
    """
    if config.weight_decay is not None:
        return config
    number = float(line.sum(torch.tensor(training.targets.rows().number, dtype=torch.float64)))
    if config.unlabelled:
        return dataclasses.replace(config, weight_decay=DECAYS_PER_LABEL[0] * number)
    some, other = _sample(training, line), None if validation is None else _sample(validation, line)
    if line.rank > 0:
        return config
    chosen, _ = choose_weight_decay(some, other, classes, config, seed=seed)
    if validation is None:
        return chosen
    assert chosen.weight_decay is not None
    # The risk is a sum over rows: with more of them the same pull needs a larger weight.
    return dataclasses.replace(chosen, weight_decay=chosen.weight_decay * (number / some.targets.rows().number))


def _sample(examples: Examples, line: Line) -> Examples:
    """Evenly spaced ones of the examples of all processes, on each, as many as a choice looks at."""
    counts = counts_of(line, len(examples.y))
    step = -(-sum(counts) // MOST_ROWS)
    before = np.cumsum([0, *counts]).tolist()
    sizes = [len(range(-first % step, count, step)) for first, count in zip(before, counts, strict=False)]
    own = slice(-before[line.rank] % step, None, step)
    return Examples(*(None if x is None else line.concat(x[own].contiguous(), sizes) for x in examples))  # type: ignore[arg-type]


# Scores

#: Rows that go through the network at a time.
ROWS = 1 << 16
#: A confusion matrix of more classes than this would outgrow the rest of a summary.
MAX_CONFUSION = 200


class Scores(NamedTuple):
    """How a network does on all nodes with labels, of all processes."""

    #: ``train_accuracy`` and so on, None where there is no such node.
    accuracies: dict[str, float | None]
    #: On all nodes that have a label, whatever mask they are in; None unless no mask has any.
    everywhere: float | None
    #: As in a summary, see :func:`~pdadmm_g.runs.scoring.confusion`.
    confusion: dict[str, Any] | None
    #: Labels that some node has and the network does not know.
    unseen: list[int]


class Predictions(NamedTuple):
    """What the network says of a block of nodes."""

    #: Their places among those of the part.
    nodes: NDArray[Any]
    #: The most probable class of each, as its place among the classes, and its probability.
    best: NDArray[Any]
    probability: NDArray[Any]


@torch.no_grad()
def predictions(model: GAMLP, sharded: ShardedAugment, nodes: NDArray[Any] | None = None) -> Iterator[Predictions]:
    """Of all nodes of a part, or of some, in order."""
    nodes = np.arange(sharded.part.count) if nodes is None else nodes
    for start in range(0, len(nodes), ROWS):
        own = nodes[start : start + ROWS]
        logits = finite(model(sharded.rows(own)), torch.from_numpy(own + sharded.part.first))
        best = decisions(logits, "classification")
        yield Predictions(own, best.numpy(), outputs(logits, "classification").amax(1).numpy())


def score(
    model: GAMLP,
    sharded: ShardedAugment,
    hard: NDArray[Any],
    masks: dict[str, NDArray[Any]],
    classes: NDArray[Any],
    line: Line,
) -> Scores:
    """Accuracies on the masks, and the confusion of the test nodes, or else of those that validate."""
    sets, labelled = memberships(masks, len(hard)), hard >= 0
    numbers = (line.sum(torch.bincount(torch.from_numpy(sets), minlength=len(IN))) @ IN).tolist()
    counted = next((place for place in (2, 1) if numbers[place]), None)
    size = 1 + int(line.largest(torch.tensor([max(int(hard.max(initial=-1)), int(classes.max()))])))
    hits = torch.zeros(len(IN), dtype=torch.int64)
    counts = torch.zeros(size if counted and size <= MAX_CONFUSION else 0, size, dtype=torch.int64)
    for block in predictions(model, sharded, np.flatnonzero(labelled & ((sets > 0) | (not any(numbers))))):
        true, said, own = hard[block.nodes], classes[block.best], sets[block.nodes]
        hits += torch.bincount(torch.from_numpy(own[true == said]), minlength=len(IN))
        if counted and len(counts):
            is_counted = own >> counted & 1 > 0
            pairs = torch.from_numpy(true[is_counted].astype(np.int64) * size + said[is_counted])
            counts += torch.bincount(pairs, minlength=size * size).view(size, size)
    hits, counts = line.sum(hits), line.sum(counts)
    known = line.sum(torch.bincount(torch.from_numpy(hard[labelled].astype(np.int64)), minlength=size))
    labels = known.nonzero().view(-1).numpy()
    names, confusion = np.union1d(classes, labels).astype(np.int64), None
    if counted and len(counts):
        table = counts.numpy()[np.ix_(names, names)].tolist()
        confusion = {"nodes": MASKS[counted].removesuffix("_mask"), "classes": names.tolist(), "counts": table}
    shares = [hit / number if number else None for hit, number in zip((hits @ IN).tolist(), numbers, strict=True)]
    return Scores(
        dict(zip([name.replace("_mask", "_accuracy") for name in MASKS], shares, strict=True)),
        None if any(numbers) or not len(labels) else int(hits.sum()) / int(known.sum()),
        confusion,
        sorted({*labels.tolist()} - {*classes.tolist()}),
    )
