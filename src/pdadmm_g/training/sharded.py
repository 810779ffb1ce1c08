"""Training on a folder of shards: every chain's first process brings its own rows, and nothing of the size of all."""

from __future__ import annotations

import dataclasses
import functools
import resource
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..admm.risks import Targets
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
from ..utils import compute_threads
from .checkpoint import Checkpointing
from .choose import DECAYS_PER_LABEL, MOST_ROWS, NORMALIZATIONS, OPERATORS, SHARPNESSES, UNLABELLED, choose_weight_decay
from .member import counts_of, spread_evenly
from .records import OnEpoch, Say
from .sharded_scores import Scores, score
from .train import TrainingResult, train

#: Masks that should not share nodes.
PAIRS = ((0, 1), (0, 2), (1, 2))


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
    # Where nodes without labels teach, the first of what would be tried otherwise.
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
        soft = str(whole.arrays.get("y")).startswith("float")
        census = _census(rows, team, whole)
        classes, weights = _classes(census, team, config, dataset, soft=soft)
        if census.number == whole.nodes:
            config = dataclasses.replace(config, unlabelled=0)  # nobody is left to teach
        augment = augmentation(config)
        sharded, figures = augmented(team, part, augment, say)
        training = validation = copies = None
        if rows is not None and sharded is not None:
            training, validation, labelled = _spread_examples(rows, sharded, team.rows, classes, weights)
            config = _with_weight_decay(training, validation, len(classes), config, seed, team.rows)
            if config.unlabelled:
                copies = ShardedCopies(sharded, config.drop, np.flatnonzero(rows.masks[MASKS[0]]), labelled)
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
            bad = np.flatnonzero(mask & (hard < 0))
            if len(bad):
                raise InputError(f"{place_of(part, int(bad[0]))} of {name} has no label (y = -1)")
        return OwnNodes(y, hard, masks)


def hard_classes(y: NDArray[Any]) -> NDArray[Any]:
    """The class of every node, the most probable one where there are probabilities; -1 for a node without label."""
    return y if y.ndim == 1 else np.where(np.isnan(y).any(1), -1, y.argmax(1))


def place_of(part: Part, node: int) -> str:
    """Where a node of a part is, for people: the folder of its shard, and its number among all nodes."""
    number = part.first + node
    shard = int(np.searchsorted(part.whole.starts, number, side="right")) - 1
    return f"{part.shards[0].folder.parent / shard_name(shard, part.whole.shards)}: node {number}"


class Census(NamedTuple):
    """What all rows of all processes are together."""

    #: Training rows, and those of each class; nodes of each class in any mask; nodes that two masks share.
    number: int
    counts: Tensor
    used: Tensor
    shared: list[int]


def _census(rows: OwnNodes | None, team: Team, whole: Description) -> Census:
    """Sums over the parts, on every process."""
    size, found = max(whole.classes, 1), torch.zeros(4 + 2 * max(whole.classes, 1), dtype=torch.float64)
    if rows is not None:
        train = rows.masks["train_mask"]
        own = rows.y[train]
        counts = (
            torch.from_numpy(own).sum(0) if own.ndim == 2 else torch.bincount(torch.from_numpy(own), minlength=size)
        )
        anywhere = np.logical_or.reduce(list(rows.masks.values()))
        used = torch.bincount(torch.from_numpy(rows.hard[anywhere].astype(np.int64)), minlength=size)
        masks = [rows.masks.get(name, np.zeros(1, dtype=bool)) for name in MASKS]
        numbers = [float(train.sum()), *(float((masks[a] & masks[b]).sum()) for a, b in PAIRS)]
        found = team.rows.sum(torch.cat([torch.tensor(numbers), counts, used]).double())
    found = team.chain.broadcast(found, 0)
    number, *shared = [int(value) for value in found[:4].tolist()]
    return Census(number, found[4 : 4 + size], found[4 + size :], shared)


def _classes(
    census: Census, team: Team, config: ModelConfig, dataset: str, *, soft: bool
) -> tuple[NDArray[Any], Tensor | None]:
    """The classes that some training row has, in order, and what a row of each weighs; None if each weighs one."""
    number, counts, used, shared = census
    if number == 0:
        raise InputError(f"{dataset}: train_mask is empty: mark at least one node per class")
    if number < team.rows.size:
        raise InputError(f"shards = {team.rows.size}, but there are {number} training rows: set shards to {number}")
    present = counts > 0
    for absent in ((used > 0) & ~present).nonzero().view(-1).tolist():
        raise InputError(f"{dataset}: class {absent} has no training node")
    if int(present.sum()) == 1:
        only = int(present.nonzero())
        raise InputError(f"{dataset}: all training nodes are of class {only}: there is nothing to tell apart")
    if team.rank == 0:
        for (a, b), nodes in zip(PAIRS, shared, strict=True):
            if nodes:
                warnings.warn(f"{MASKS[a]} and {MASKS[b]} share {nodes} nodes", stacklevel=2)
    classes = np.arange(len(counts)) if soft else present.nonzero().view(-1).numpy()
    if config.class_weight is None:
        return classes, None
    if soft:
        raise InputError("class_weight needs classes as labels on a sharded folder, not probabilities")
    factors = class_factors(torch.arange(len(classes)), classes, config.class_weight, counts[classes])
    if bool((factors <= 0).any()):
        raise InputError("class_weight must be positive for every class on a sharded folder")
    return classes, None if bool((factors == 1).all()) else factors.float()


def _spread_examples(
    rows: OwnNodes, sharded: ShardedAugment, line: Line, classes: NDArray[Any], weights: Tensor | None
) -> tuple[Examples, Examples | None, Targets]:
    """The rows that train and validate here: all processes have as many, whatever nodes they read.

    And what the own nodes that train should become.
    """
    own = _examples(rows, sharded, MASKS[0], classes, weights)
    training = spread_evenly(own, line)
    assert training is not None
    return training, spread_evenly(_examples(rows, sharded, MASKS[1], classes, weights), line), own.targets


def _examples(
    rows: OwnNodes, sharded: ShardedAugment, name: str, classes: NDArray[Any], weights: Tensor | None
) -> Examples:
    """The own nodes that train or validate, as the mask of this name says."""
    index = np.flatnonzero(rows.masks.get(name, np.zeros(0, dtype=bool)))
    labels = torch.from_numpy(np.searchsorted(classes, rows.hard[index]))
    training = name == MASKS[0]
    y = torch.from_numpy(rows.y[index]).float() if training and rows.y.ndim == 2 else labels
    return Examples(sharded.rows(index), y, None if weights is None or not training else weights[labels])


def _with_weight_decay(
    training: Examples, validation: Examples | None, classes: int, config: ModelConfig, seed: int, line: Line
) -> ModelConfig:
    """``config`` with the weight decay that the first process finds best on a sample of all rows, see there.

    Where nodes without labels teach, the first of what would be tried otherwise.
    """
    if config.weight_decay is not None:
        return config
    number = float(line.sum(torch.tensor(training.targets.rows().number, dtype=torch.float64)))
    if config.unlabelled:
        return dataclasses.replace(config, weight_decay=DECAYS_PER_LABEL[0] * number)
    samples = [None if rows is None else _sample(rows, line) for rows in (training, validation)]
    assert samples[0] is not None
    if line.rank > 0:
        return config
    chosen, _ = choose_weight_decay(samples[0], samples[1], classes, config, seed=seed)
    if validation is None:
        return chosen
    assert chosen.weight_decay is not None
    # The risk is a sum over rows: with more of them the same pull needs a larger weight.
    scale = number / samples[0].targets.rows().number
    return dataclasses.replace(chosen, weight_decay=chosen.weight_decay * scale)


def _sample(examples: Examples, line: Line) -> Examples:
    """Evenly spaced ones of the examples of all processes, on each, as many as a choice looks at."""
    counts = counts_of(line, len(examples.y))
    step = -(-sum(counts) // MOST_ROWS)
    before = np.cumsum([0, *counts]).tolist()
    sizes = [len(range(-first % step, count, step)) for first, count in zip(before, counts, strict=False)]
    own = slice(-before[line.rank] % step, None, step)
    return Examples(*(None if x is None else line.concat(x[own].contiguous(), sizes) for x in examples))  # type: ignore[arg-type]
