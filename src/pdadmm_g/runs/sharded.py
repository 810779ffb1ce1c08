"""Runs on a folder of shards: train and score, each in as many processes as are wanted, and predict.

Every chain's first process has its own rows, nobody all of them. The processes are started here, or are those of
another launcher: the same task, given a team.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import resource
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config import ModelConfig, RunConfig
from ..engine.gathering import Gatherer
from ..engine.team import Line, Team, agreed, same
from ..errors import InputError
from ..estimator import Estimator, GAMLPClassifier, load_estimator, parameters
from ..graph.augmentation import GraphAugment
from ..graph.candidates import AVERAGES, DEFAULT_HOPS, DEFAULT_TELEPORT, augmentation
from ..graph.columns import standardized
from ..graph.examples import Examples
from ..graph.graph import MASKS, order
from ..graph.sharded_augmentation import ShardedAugment, ShardedCopies
from ..graph.shards import Description, Part, ShardFolder, shard_name
from ..graph.targets import check_kind, class_factors
from ..model import GAMLP, decisions, finite, outputs
from ..training.checkpoint import Checkpointing
from ..training.choose import (
    DECAYS_PER_LABEL,
    MOST_ROWS,
    SHARPNESSES,
    UNLABELLED,
    choose_mesh,
    choose_weight_decay,
)
from ..training.finish import TrainedModel
from ..training.fit import heard, run_processes, tell, tell_epoch
from ..training.member import counts_of, spread_evenly
from ..training.records import OnEpoch, Record, Say
from ..training.train import train
from ..utils import check_folder, compute_threads, task, temporary_folder, usable_cores, writing
from .folder import DIGEST, MODEL, RunFolder
from .scoring import MAX_CONFUSION

#: Which masks a node is in, for each number that :meth:`OwnNodes.sets` may give it.
IN = torch.tensor([[number >> place & 1 for place in range(len(MASKS))] for number in range(1 << len(MASKS))])
#: Rows that go through the network at a time.
ROWS = 1 << 16


# ----------------------------------------------------------------------------------------------------- a run folder


def arranged(config: RunConfig, team: Team | None) -> RunConfig:
    """The resolved ``config`` with numbers of workers and shards, by which the ``team`` is arranged."""
    if config.workers == "auto":
        config = _with_mesh(config, team) if team is None else agreed(team, lambda: _with_mesh(config, team))
    if team is not None:
        team.arrange(config.shards or 1)
    return config


def _with_mesh(config: RunConfig, team: Team | None) -> RunConfig:
    """``config`` with numbers of workers and shards: as many shards as the folder's can be dealt to."""
    folder = ShardFolder(config.dataset)
    processes = max(1, usable_cores() // config.threads) if team is None else team.size
    dealt = processes if team is not None else 0  # of a team no process is left over
    shards = config.shards or max(
        each for each in range(1, processes + 1) if folder.whole.shards % each == dealt % each == 0
    )
    if team is not None:
        return dataclasses.replace(config, workers=processes // shards, shards=shards)
    rows = max(shards, folder.marked("train_mask"))
    given = dataclasses.replace(config, shards=shards, unlabelled=config.unlabelled or 0)
    chosen, _ = choose_mesh(given, (rows, folder.whole.features), folder.whole.classes)
    return dataclasses.replace(config, workers=chosen.workers, shards=shards)


class Shards:
    """The data of a run on a folder of shards, as :class:`~.run.OneGraph` are those of one process."""

    def __init__(self, config: RunConfig, say: Say, team: Team | None) -> None:
        self.config, self.say, self.team = config, say, team

    @functools.cached_property
    def folder(self) -> ShardFolder:
        """The data set."""
        return ShardFolder(self.config.dataset)

    def check(self) -> None:
        """Raise unless it can be trained on with these settings."""
        config = self.config
        if config.asked_target in ("multilabel", "regression"):
            raise InputError(f"{config.dataset}: a folder of shards is for classes, not for {config.asked_target}")
        if config.init is not None:
            raise InputError("init is not for a folder of shards yet: leave it out, or train on one file")
        self.folder.check_parts(config.shards or 1)
        with_defaults(config, self.folder.whole)

    def digest(self) -> str:
        """By which a run knows its data."""
        return self.folder.whole.digest

    def facts(self) -> dict[str, Any]:
        """What a summary says of the data before the model is scored."""
        facts = {name: getattr(self.folder.whole, name) for name in ("nodes", "edges", "features", "classes")}
        return {"confusion": None, "data": facts, DIGEST: self.digest()}

    def train(
        self, checkpointing: Checkpointing, on_epoch: OnEpoch, keep: Callable[[Estimator], None]
    ) -> dict[str, Any]:
        """Train, ``keep`` the estimator, and score it; nothing on a member of a team that is not the first."""
        config, team, history = self.config, self.team, checkpointing.history

        def trained(note: dict[str, Any]) -> None:
            estimator = load_estimator(folder / MODEL)
            estimator.config_ = ModelConfig(**note["config"]).resolved()
            estimator.set_params(**parameters(estimator.config_))
            estimator.history_, estimator.message_ = history, note["message"]
            estimator.plan_, estimator.choices_ = tuple(note["plan"]), tuple(note["choices"])
            estimator.seed_ = estimator.random_state = config.seed
            keep(estimator)

        with task("augmentation and training"):
            if team is not None or config.processes == 1:
                found = fit_sharded(config, checkpointing, team or Team(), on_epoch, self.say, keep)
            else:
                with temporary_folder() as folder:
                    found = _in_processes(
                        fit_as_process, config, folder, self.say, on_epoch, history, trained,
                        checkpointing=checkpointing.for_others(),
                    )  # fmt: skip
        return _in_summary(found) if found else {}

    def scores(self, folder: RunFolder) -> dict[str, Any]:
        """Those of the model of a run."""
        # Of a team the first member does it alone: the others may have nothing to do with it but layers.
        shards = 1 if self.team else self.config.shards or 1
        return _in_summary(apply_shards(str(folder.model), self.config.dataset, shards, say=self.say) or {})


def _in_summary(found: dict[str, Any]) -> dict[str, Any]:
    """What scoring adds to a summary."""
    return found["accuracies"] | {name: found[name] for name in ("confusion", "processes")}


def _in_processes(
    work: Callable[..., None],
    config: RunConfig,
    folder: Path,
    say: Say,
    on_epoch: OnEpoch | None = None,
    history: list[Record] | None = None,
    on_trained: Callable[[dict[str, Any]], None] | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """Do a task in processes on this machine; the result, which the first of them tells."""
    results, records = list[dict[str, Any]](), [] if history is None else history

    def on_note(rank: int, note: dict[str, Any]) -> object:
        if "progress" in note:
            say(note["progress"])
        elif "trained" in note and on_trained is not None:
            on_trained(note["trained"])
        elif "result" in note:
            results.append(note["result"])
        return heard(rank, note, records, on_epoch)

    run_processes(work, config, folder, on_note, **arguments)
    return results[0]


def fit_as_process(team: Team, folder: Path, settings: dict[str, Any], *, checkpointing: dict[str, Any]) -> None:
    """Train and score as one of several processes: the first tells the model, its epochs and the scores."""

    def on_trained(estimator: GAMLPClassifier) -> None:
        estimator.save(folder / MODEL)
        about = {"plan": estimator.plan_, "message": estimator.message_, "choices": estimator.choices_}
        tell({"trained": about | {"config": dataclasses.asdict(estimator.config_)}})

    found = fit_sharded(
        RunConfig(**settings), Checkpointing.joined(**checkpointing), team, tell_epoch,
        lambda line: tell({"progress": line}), on_trained,
    )  # fmt: skip
    if found is not None:
        tell({"result": found})


# ---------------------------------------------------------------------------------------------------------- training


def open_part(dataset: str, team: Team) -> tuple[Description, Part | None]:
    """The description of a folder that all processes see alike, and the part of this one if it is to have one."""
    folder = agreed(team, lambda: ShardFolder(dataset))
    same(team, folder.whole.fingerprint, str(folder.path / "description.json"))
    line = team.rows
    part = agreed(team, lambda: folder.part(line.rank, line.size) if team.chain.rank == 0 else None)
    return folder.whole, part


def with_defaults(config: ModelConfig, whole: Description) -> tuple[ModelConfig, tuple[str, ...]]:
    """``config`` with what otherwise is chosen by trying on all data, and a sentence on each such default."""
    asked = {
        "augment = apart": config.augment == "apart",
        f"directed = {config.directed}": config.directed not in ("auto", "symmetric"),
        "refit": config.refit, "split": config.split is not None, "calibrate": config.calibrate,
        "label_hops": config.label_hops, "drop_entries": config.unlabelled and config.drop_entries,
    }  # fmt: skip
    for name in asked:
        if asked[name]:
            raise InputError(f"{name} is for a graph in one file, not for a sharded folder: leave it out")
    # With learning from unlabelled nodes, the first of what would be tried otherwise.
    usual, own_share = AVERAGES[0] if config.unlabelled else (DEFAULT_HOPS, DEFAULT_TELEPORT)
    augment, normalize, hops = config.augment, config.normalize, config.hops
    if augment == "auto":
        augment, hops = ("average", hops or usual) if whole.edges else ("none", 1)
    teleport = own_share if config.teleport is None else config.teleport
    if normalize == "auto":
        normalize = "unit" if config.unlabelled else "centered"
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
    run: RunConfig,
    checkpointing: Checkpointing,
    team: Team,
    on_epoch: OnEpoch | None,
    say: Say,
    on_trained: Callable[[GAMLPClassifier], None],
) -> dict[str, Any] | None:
    """Augment, train and score, all over shards. Every process of the team calls this; the first gets the scores.

    It is told ``on_trained`` what there is before that is scored.
    """
    config = checkpointing.decided(ModelConfig(**run.model_settings()).resolved()).resolved("classification")
    whole, part = open_part(run.dataset, team)
    config, reasons = agreed(team, lambda: with_defaults(config, whole))
    reasons = checkpointing.explained(reasons)
    with compute_threads(config.threads):
        rows = agreed(team, lambda: _to_train(part, run.dataset) if part else None)
        classes, weights, number = _classes(rows, team, whole, config, run.dataset)
        if number == whole.nodes:
            config = dataclasses.replace(config, unlabelled=0)  # no node is without a label
        augment = augmentation(config)
        sharded, figures = augmented(team, part, augment, say)
        training = validation = copies = None
        if rows is not None and sharded is not None:
            own = rows.examples(sharded, classes, weights)
            training, validation = (spread_evenly(part, team.rows) for part in own)
            assert training is not None
            config = _with_weight_decay(training, validation, len(classes), config, run.seed, team.rows)
            if config.unlabelled:
                copies = ShardedCopies(sharded, config.drop, np.flatnonzero(rows.masks[MASKS[0]]), own[0].targets)
            training = training.to(config.device)
            validation = None if validation is None else validation.to(config.device)
        result = train(
            training, validation, len(classes), config, seed=run.seed, on_epoch=on_epoch if team.rank == 0 else None,
            team=team, checkpointing=checkpointing, copies=copies, spread=True,
        )  # fmt: skip
        found = None
        if result is not None and sharded is not None and rows is not None:
            model = result.model.cpu().eval()
            if team.rank == 0:
                names = None if whole.feature_names is None else np.asarray(whole.feature_names, dtype=object)
                estimator = GAMLPClassifier.of(
                    TrainedModel(model, config, augment, classes, whole.features, names, result.status)
                )
                estimator.history_, estimator.message_, estimator.choices_ = result.history, result.message, reasons
                estimator.plan_, estimator.seed_ = result.plan.counts, run.seed
                estimator.random_state = run.seed
                on_trained(estimator)
            found = score(model, sharded, rows, classes, team.rows)
    processes = all_figures(team, figures)
    return found | {"processes": processes} if found is not None and team.rank == 0 else None


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
    #: The class of every node, the most probable one where there are probabilities; -1 for a node without label.
    hard: NDArray[Any]
    masks: dict[str, NDArray[Any]]

    @staticmethod
    def of(part: Part, why: str) -> OwnNodes:
        """Those of a part; an error says ``why`` there must be labels."""
        y = part.column("y")
        if y is None:  # on all processes alike
            raise InputError(why)
        hard = y if y.ndim == 1 else np.where(np.isnan(y).any(1), -1, y.argmax(1))
        return OwnNodes(y, hard, {name: mask for name in MASKS if (mask := part.column(name)) is not None})

    def examples(self, sharded: ShardedAugment, classes: NDArray[Any], weights: Tensor | None) -> list[Examples]:
        """The own nodes that train, and those that validate."""
        train, val = (np.flatnonzero(self.masks.get(name, np.zeros(0, dtype=bool))) for name in MASKS[:2])
        labels, known = (torch.from_numpy(np.searchsorted(classes, self.hard[nodes])) for nodes in (train, val))
        y = torch.from_numpy(self.y[train]).float() if self.y.ndim == 2 else labels
        own = Examples(sharded.rows(train), y, None if weights is None else weights[labels])
        return [own, Examples(sharded.rows(val), known)]

    def sets(self) -> NDArray[Any]:
        """For each node a number, in which each mask that it is in is a bit."""
        sets = np.zeros(len(self.hard), dtype=np.int64)
        for place, name in enumerate(MASKS):
            if name in self.masks:
                sets |= self.masks[name].astype(np.int64) << place
        return sets


def _to_train(part: Part, dataset: str) -> OwnNodes:
    """The nodes of a part that can be trained on, as far as one part tells."""
    rows = OwnNodes.of(part, f"{dataset}: labels 'y' are missing")
    if "train_mask" not in part.whole.arrays:
        raise InputError(f"{dataset}: 'train_mask' is missing: mark the nodes to train on")
    for name, mask in rows.masks.items():
        for bad in np.flatnonzero(mask & (rows.hard < 0))[:1].tolist():
            shard = int(np.searchsorted(part.whole.starts, part.first + bad, side="right")) - 1
            place = part.shards[0].folder.parent / shard_name(shard, part.whole.shards)
            raise InputError(f"{place}: node {part.first + bad} of {name} has no label (y = -1)")
    return rows


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
        places = rows.sets()[known] * size + rows.hard[known]
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


# ---------------------------------------------------------------------------------------------- predicting and scoring


@torch.no_grad()
def predictions(
    model: GAMLP, sharded: ShardedAugment, nodes: NDArray[Any] | None = None
) -> Iterator[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
    """What the network says of all nodes of a part, or of some, in order and in blocks.

    Their places in the part, the most probable class of each as its place among the classes, and its probability.
    """
    nodes = np.arange(sharded.part.count) if nodes is None else nodes
    for start in range(0, len(nodes), ROWS):
        own = nodes[start : start + ROWS]
        logits = finite(model(sharded.rows(own)), torch.from_numpy(own + sharded.part.first))
        best = decisions(logits, "classification")
        yield own, best.numpy(), outputs(logits, "classification").amax(1).numpy()


def score(
    model: GAMLP,
    sharded: ShardedAugment,
    rows: OwnNodes,
    classes: NDArray[Any],
    line: Line,
) -> dict[str, Any]:
    """How a network does on all nodes with labels, of all processes.

    ``accuracies`` on the masks, None where there is no such node; ``everywhere`` that on all nodes, None unless no mask
    has any; ``confusion`` of the test nodes, or else of those that validate; ``unseen``, labels that are not known.
    """

    def tally(values: NDArray[Any], size: int) -> Tensor:
        return line.sum(torch.bincount(torch.from_numpy(values.astype(np.int64)), minlength=size))

    hard, sets, labelled = rows.hard, rows.sets(), rows.hard >= 0
    numbers = (tally(sets, len(IN)) @ IN).tolist()
    asked = np.flatnonzero(labelled & ((sets > 0) | (not any(numbers))))
    blocks = [classes[best] for _, best, _ in predictions(model, sharded, asked)]
    true, said, own = hard[asked], np.concatenate([classes[:0], *blocks]), sets[asked]
    hits = tally(own[true == said], len(IN))
    shares = [hit / number if number else None for hit, number in zip((hits @ IN).tolist(), numbers, strict=True)]
    size = 1 + int(line.largest(torch.tensor([max(int(hard.max(initial=-1)), int(classes.max()))])))
    known = tally(hard[labelled], size)
    labels = known.nonzero().view(-1).numpy()
    counted, confusion = next((place for place in (2, 1) if numbers[place]), None), None
    if counted and size <= MAX_CONFUSION:
        is_counted, names = own >> counted & 1 > 0, np.union1d(classes, labels).astype(np.int64)
        counts = tally(true[is_counted] * size + said[is_counted], size * size).view(size, size).numpy()
        table = counts[np.ix_(names, names)].tolist()
        confusion = {"nodes": MASKS[counted].removesuffix("_mask"), "classes": names.tolist(), "counts": table}
    return {
        "accuracies": dict(zip([name.replace("_mask", "_accuracy") for name in MASKS], shares, strict=True)),
        "everywhere": None if any(numbers) or not len(labels) else int(hits.sum()) / int(known.sum()),
        "confusion": confusion,
        "unseen": sorted({*labels.tolist()} - {*classes.tolist()}),
    }


def apply_shards(
    model: str, dataset: str, shards: int, *, out: str = "", team: Team | None = None, say: Say | None = None
) -> dict[str, Any] | None:
    """What the model of a file says of a folder of shards, by so many processes or a ``team``.

    With ``out`` a table with a label for every node, of which each process writes its rows and the first joins them;
    else the accuracies, see :func:`score`. And ``processes``, what each took.
    None on a member of a team that is not the first.
    """
    config, say, model = RunConfig(dataset=dataset, shards=shards), say or (lambda _: None), str(Path(model).resolve())
    try:
        if team is not None or shards == 1:
            return _apply(team or Team(), dataset, model, out, say)
        with temporary_folder() as folder:
            return _in_processes(apply_as_process, config, folder, say, model=model, out=out)
    except BaseException:
        for rank in range(shards) if out else ():
            with suppress(OSError):
                _piece(Path(out), rank).unlink()
        raise


def apply_as_process(team: Team, _: Path, settings: dict[str, Any], *, model: str, out: str) -> None:
    """Predict or score as one of several processes: the first tells the result."""
    found = _apply(team, settings["dataset"], model, out, lambda line: tell({"progress": line}))
    if found is not None:
        tell({"result": found})


def _apply(team: Team, dataset: str, model: str, to: str, say: Say) -> dict[str, Any] | None:
    """The part of one process in :func:`apply_shards`."""
    out, found = Path(to), dict[str, Any]()
    with compute_threads(1):
        classifier, part, sharded, figures = _opened(team, dataset, model, say)
        if to:
            agreed(team, lambda: check_folder(out) if team.rank == 0 else None)
            agreed(team, lambda: _write(out, classifier, part, sharded, team, say))
        else:
            why = "the data set has no labels 'y' to evaluate against; use 'pdadmm-g predict'"
            rows = OwnNodes.of(part, why)
            check_kind(rows.y, classifier.classes_)
            found = score(classifier.model_, sharded, rows, classifier.classes_, team.rows)
    found["processes"] = all_figures(team, figures)  # by now all have written theirs
    if team.rank > 0:
        return None
    if to:
        with writing(out):
            with _piece(out, 0).open("ab") as joined:
                for rank in range(1, team.size):
                    with _piece(out, rank).open("rb") as piece:
                        shutil.copyfileobj(piece, joined, 1 << 22)
                    _piece(out, rank).unlink()
            _piece(out, 0).replace(out)
        found |= {"predictions": part.whole.nodes, "file": to}
    return found


def _opened(
    team: Team, dataset: str, model: str, say: Say
) -> tuple[GAMLPClassifier, Part, ShardedAugment, dict[str, float]]:
    """The model, the part of this process and its features, and what these took."""
    classifier = agreed(team, lambda: load_estimator(model))
    if not isinstance(classifier, GAMLPClassifier) or classifier.config_.target != "classification":
        raise InputError(f"{model}: is for {classifier.config_.target}, a folder of shards is for classes alone")
    if standardized(classifier.columns_):
        raise InputError(f"{model}: was trained on a table, and shards have numbers as they are: predict from tables")
    whole, part = open_part(dataset, team)
    if whole.features != classifier.n_features_in_:
        expected = f"the model was trained with {classifier.n_features_in_}"
        raise InputError(f"{dataset} has {whole.features} features, {expected}")
    if order(whole.feature_names, getattr(classifier, "feature_names_in_", None)) is not None:
        why = "the features stand in another order than those of the model"
        raise InputError(f"{dataset}: {why}: make the folder anew in its order")
    augment = classifier.augmentation_ or GraphAugment("none", row_normalize=False, normalize="none")
    sharded, figures = augmented(team, part, augment, say)
    assert part is not None
    assert sharded is not None
    return classifier, part, sharded, figures


def _write(out: Path, classifier: GAMLPClassifier, part: Part, sharded: ShardedAugment, team: Team, say: Say) -> None:
    """The rows of the table for the nodes of this process."""
    import pandas as pd

    blocks, shown = [], 0
    for block in predictions(classifier.model_, sharded):
        blocks.append(block)
        tenths = 10 * (int(block[0][-1]) + 1) // part.count
        if team.rank == 0 and tenths > shown:
            shown = tenths
            say(f"predictions: {tenths * 10}%")
    _, best, probability = map(np.concatenate, zip(*blocks, strict=True))
    ids = part.column("id")
    if ids is None:
        ids = np.arange(part.first, part.first + part.count)
    elif ids.dtype.kind == "S":
        ids = np.char.decode(ids, "utf-8")
    table = pd.DataFrame({"node": ids, "label": classifier.classes_[best], "probability": probability})
    with writing(out):
        table.to_csv(
            _piece(out, team.rank), header=team.rank == 0, index=False, float_format="%.6f", lineterminator="\n"
        )


def _piece(out: Path, rank: int) -> Path:
    return out.with_name(f"{out.name}.part-{rank}")
