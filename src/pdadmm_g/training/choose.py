"""What is left open and chosen: weight decay, learning from unlabelled nodes, workers and shards."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config import ModelConfig
from ..engine.layout import layer_costs
from ..engine.team import Team
from ..errors import InputError
from ..graph.augmentation import GraphAugment
from ..graph.augmentation_choice import COMPONENTS, Choice, augmentation, described, linear_score
from ..graph.examples import Examples, some_examples
from ..graph.facts import join_unlike
from ..graph.graph import Graph
from ..graph.propagation import quiet
from ..metrics import scoring_name, shown
from ..utils import compute_threads, task, usable_cores
from .growth import widths
from .records import judged
from .rounds import FIRST_EPOCHS
from .train import train

Found = TypeVar("Found")


def short_runs(name: str, run: Callable[[ModelConfig], Found], configs: Sequence[ModelConfig]) -> list[Found]:
    """What ``run`` gives for each, as many at a time as there are cores, each on threads of its own; a task by name.

    Each is as it would be alone, bit for bit. On a GPU one after the other: they would wait for each other there.
    """
    threads, on_cpu = max((config.threads for config in configs), default=1), all(c.device == "cpu" for c in configs)
    at_a_time = max(1, usable_cores() // threads) if on_cpu else 1
    with (
        quiet(),
        task(name, len(configs)) as step,
        ThreadPoolExecutor(at_a_time, initializer=torch.set_num_threads, initargs=(threads,)) as pool,
    ):
        try:
            found = []
            for each in pool.map(run, configs):
                found.append(each)
                step()
            return found
        except BaseException:
            pool.shutdown(cancel_futures=True)  # an interrupt does not wait for those that have not begun
            raise


def _pilot(config: ModelConfig, **changes: Any) -> ModelConfig:
    """The settings of a short run: the first stage, in one process."""
    assert config.stages is not None
    depth = config.stages[0]
    return dataclasses.replace(
        config, layers=depth, stages=(depth,), plan=None, workers=1, shards=1, eval_every=EVAL_EVERY, **changes
    )


#: From one evaluation of a short run to the next.
EVAL_EVERY = 5

# Weight decay

#: Taken where there is no validation node.
DEFAULT_WEIGHT_DECAY = 0.1
WEIGHT_DECAYS = (0.03, 0.1, 0.3, 1.0, 3.0)
#: More rows of a kind than this are not looked at.
MOST_ROWS = 1000
#: Of a short run.
EPOCHS = 100


def choose_weight_decay(
    training: Examples, validation: Examples | None, num_classes: int, config: ModelConfig, *, seed: int
) -> tuple[ModelConfig, tuple[str, ...]]:
    """``config`` with the weight decay filled in, the best by validation score of the first stage; and the reason."""
    if config.weight_decay is not None:
        return config, ()
    if validation is None:
        reason = f"weight decay {DEFAULT_WEIGHT_DECAY}, the default without validation nodes"
        return dataclasses.replace(config, weight_decay=DEFAULT_WEIGHT_DECAY), (reason,)
    some, other = (some_examples(MOST_ROWS, part) for part in (training, validation))

    def score(pilot: ModelConfig) -> tuple[float, float]:
        result = train(some, other, num_classes, pilot, seed=seed)
        assert result is not None
        return max(filter(None, map(judged, result.uninterrupted().history)), default=(-math.inf, -math.inf))

    pilots = [_pilot(config, weight_decay=weight_decay, epochs=EPOCHS) for weight_decay in WEIGHT_DECAYS]
    scores = short_runs("weight decay", score, pilots)
    best = max(scores)
    choice = WEIGHT_DECAYS[scores.index(best)] if best[0] > -math.inf else DEFAULT_WEIGHT_DECAY
    # The risk is a sum over rows: with more of them the same pull needs a larger weight.
    number, tried = training.targets.rows().number, some.targets.rows().number
    chosen = choice * number / tried
    reason = f"weight decay {chosen:.3g} (validation {shown(best[0])})"
    return dataclasses.replace(config, weight_decay=chosen), (reason,)


# Learning from unlabelled nodes

#: What is not given and not chosen either.
UNLABELLED = 1000
#: Features are averages of so many hops with such a share of the node's own, each with each normalisation. Those that
#: suit a linear model best take part in the race, with each weight decay for each labelled node, since features of
#: larger spread need less of it; then whether single entries of the features are dropped, if most of these are zero,
#: and sharpness, each from the first one on.
OPERATORS = ((2, 0.25), (4, 0.05), (8, 0.2))
#: Tried too where a graph has no features: random projections of far hops tell who is near whom.
FAR = ((16, 0.05),)
NORMALIZATIONS: tuple[Literal["unit"], Literal["centered"]] = ("unit", "centered")
DECAYS_PER_LABEL = (0.002, 0.0007)
DROP_ENTRIES = (0.6, 0.0)
SHARPNESSES = (3.0, 2.0, 5.0)
#: So many features take part.
KEPT = 3
#: A short run: its rounds, most unlabelled nodes, and how many of its last evaluations count together.
ROUNDS, NODES, LAST = 3, 1000, 2
#: With more labels than this share of all nodes the others are not asked.
MOST_LABELLED = 0.2


class Rows(NamedTuple):
    """The nodes of a graph that train and validate, with what they should become."""

    training: Tensor
    validation: Tensor | None
    y: Tensor
    y_val: Tensor | None
    weights: Tensor | None
    classes: NDArray[Any]


def choose_unlabelled(data: Graph, rows: Rows, config: ModelConfig, *, seed: int) -> Choice:
    """``config`` with ``unlabelled`` filled in, and with all that else is left to the data where it is not 0."""
    config = config.resolved("classification")
    without = dataclasses.replace(config, unlabelled=0)
    if config.unlabelled == 0 or len(rows.training) == data.num_nodes:
        return Choice(without)
    asked = config.unlabelled is not None
    if asked and config.directed not in ("auto", "symmetric"):
        raise InputError(f"unlabelled must be 0 with directed = {config.directed}: edges must count both ways alike")
    against = "" if asked else _reason_against(data, rows, config)
    if against:
        return Choice(without, reasons=(f"nodes without labels do not teach: {against}",))
    components = COMPONENTS if config.components is None else config.components
    config = dataclasses.replace(config, components=components, unlabelled=config.unlabelled or UNLABELLED)
    with compute_threads(config.threads):
        choice = Race(data, rows, config, seed).run(forced=asked)
    return choice if choice.config.unlabelled else Choice(without, reasons=choice.reasons)


def _reason_against(data: Graph, rows: Rows, config: ModelConfig) -> str:
    """Why unlabelled nodes cannot be expected to help, without trying; empty if they may."""
    if rows.validation is None:
        return "there are no validation nodes to tell whether they help"
    if config.augment not in ("auto", "average"):
        return f"the features are not averages over hops but {config.augment}"
    if data.edge_index is None or data.edge_index.numel() == 0:
        return "there are no edges"
    if config.directed not in ("auto", "symmetric"):
        return f"edges do not count both ways alike but {config.directed}"
    share = len(rows.training) / data.num_nodes
    if share > MOST_LABELLED:
        return f"{share:.0%} of all nodes train"
    same = join_unlike(data, torch.cat([rows.training, rows.validation]))
    if same is not None:
        return f"edges join nodes of one class hardly more often than chance ({same:.2f} of 1)"
    return ""


class Entry(NamedTuple):
    """A short run: its settings, mean validation score at its end, and the negative of its loss."""

    config: ModelConfig
    score: tuple[float, float]
    #: The score before the first round, of labelled nodes alone.
    alone: float


class Race:
    """Short runs: first features and weight decay, then with the best of these what is left."""

    def __init__(self, data: Graph, rows: Rows, config: ModelConfig, seed: int) -> None:
        self.data, self.rows, self.config, self.seed = data, rows, config, seed
        like = augmentation(dataclasses.replace(config, augment="average", hops=1, normalize="unit"))
        self.source = like.source(data)
        self.basis = like.basis
        self.entries: list[Entry] = []
        #: How its scores are named.
        self._judge = "validation" if config.scoring == "accuracy" else f"validation {scoring_name(config.scoring)}"
        self._known: dict[Any, tuple[Examples, Examples, GraphAugment]] = {}

    def run(self, *, forced: bool) -> Choice:
        """The winner; unless ``forced``, without unlabelled nodes where labelled ones alone are as accurate."""
        given, known = self.config, self.rows.validation is not None
        sparse = self.source.raw is not None
        features = self._features()
        if known and len(features) > KEPT:
            with task("choosing features", len(features)) as step:
                features = sorted(features, key=lambda each: (self._suits(each), step())[0], reverse=True)[:KEPT]
        decays: list[dict[str, Any]] = [{}]
        if given.weight_decay is None:
            weight = float(len(self.rows.training) if self.rows.weights is None else self.rows.weights.sum())
            decays = [{"weight_decay": each * weight} for each in DECAYS_PER_LABEL]
        both = [each | decay for each in features for decay in decays]
        candidates = self._variants(given, both, DROP_ENTRIES[:1] if sparse else (0.0,), SHARPNESSES[:1])
        decided = len(candidates) == 1 and None not in (given.drop_entries if sparse else 0.0, given.sharpness)
        if not known or (decided and forced):
            return Choice(candidates[0], self.source, self.basis)
        best = self._best(candidates)
        if sparse:
            best = self._best(self._variants(best.config, [{}], DROP_ENTRIES[1:], ()))
        best = self._best(self._variants(best.config, [{}], (), SHARPNESSES[1:]))
        alone = max(entry.alone for entry in self.entries)
        scores = f"{self._judge} {shown(best.score[0])} with them, {shown(alone)} without (short runs)"
        if best.score[0] <= alone and not forced:
            without = dataclasses.replace(given, unlabelled=0)
            return Choice(without, reasons=(f"nodes without labels do not teach: {scores}",))
        reasons = (f"nodes without labels teach: {scores}", *self._reasons(best))
        return Choice(best.config, self.source, self.basis, reasons)

    def _suits(self, features: dict[str, Any]) -> tuple[float, float]:
        """What a linear model makes of these features."""
        training, validation, _ = self._rows_with(dataclasses.replace(self.config, **features))
        labels = [training.targets.labels.cpu(), validation.y.cpu()]
        return linear_score(torch.cat([training.X, validation.X]), labels, training.weights, self.config.scoring)

    def _features(self) -> list[dict[str, Any]]:
        """What features may be, as far as that is left open."""
        given = self.config
        if given.augment not in ("auto", "average"):
            operators = [{"augment": given.augment, "hops": given.hops, "teleport": given.teleport}]
        else:
            tried = OPERATORS + FAR if self.data.get("structural") else OPERATORS
            found = {(given.hops or k, own if given.teleport is None else given.teleport): None for k, own in tried}
            operators = [{"augment": "average", "hops": k, "teleport": own} for k, own in found]
        kinds = NORMALIZATIONS if given.normalize == "auto" else (given.normalize,)
        return [operator | {"normalize": kind} for operator in operators for kind in kinds]

    def _variants(
        self, config: ModelConfig, features: Iterable[dict[str, Any]], drops: Sequence[float], sharp: Sequence[float]
    ) -> list[ModelConfig]:
        """Variants of ``config``, in what was not given."""
        others: list[dict[str, Any]] = [{}]
        for name, values in (("drop_entries", drops), ("sharpness", sharp)):
            if values and getattr(self.config, name) is None:
                others = [other | {name: value} for other in others for value in values]
        return [dataclasses.replace(config, **feature, **other) for feature in features for other in others]

    def _best(self, candidates: Iterable[ModelConfig]) -> Entry:
        """The best of all entries after these candidates have run too."""
        known = [entry.config for entry in self.entries]
        configs = [config for config in candidates if config not in known]
        for config in configs:
            self._rows_with(config)  # here, so that no two runs make the same
        self.entries += short_runs("short runs", self._entry, configs)
        return max(self.entries, key=_score)

    def _entry(self, config: ModelConfig) -> Entry:
        assert config.unlabelled is not None
        epochs, unlabelled = min(config.epochs, FIRST_EPOCHS), min(NODES, config.unlabelled)
        pilot = _pilot(config, rounds=ROUNDS, epochs=epochs, unlabelled=unlabelled)
        training, validation, augment = self._rows_with(pilot)
        source = self.source.to(pilot.device)
        copies = augment.copies(source, self.rows.training, pilot.drop, pilot.drop_entries)
        result = train(training, validation, len(self.rows.classes), pilot, seed=self.seed, copies=copies)
        assert result is not None
        history = result.uninterrupted().history
        parts = [
            list(filter(None, (judged(record) for record in history if bool(record["round"]) is in_rounds)))
            for in_rounds in (False, True)
        ]
        if not all(parts) or result.status.is_failure:
            return Entry(config, (-math.inf, 0.0), -math.inf)
        (alone, _), (score, loss) = (np.mean(scores[-LAST:], axis=0).tolist() for scores in parts)
        return Entry(config, (score, loss), alone)

    def _rows_with(self, config: ModelConfig) -> tuple[Examples, Examples, GraphAugment]:
        """Rows that train and validate under these settings, and what made their features."""
        rows, features = self.rows, _features_of(config)
        if features not in self._known:
            assert rows.validation is not None
            assert rows.y_val is not None
            augment = augmentation(config)
            augment.basis = self.basis
            both = augment.fit_transform(self.data, torch.cat([rows.training, rows.validation]), source=self.source)
            X, X_val = both.to(config.device).split([len(rows.training), len(rows.validation)])
            validation = Examples(X_val, rows.y_val.to(config.device))
            self._known[features] = Examples(X, rows.y, rows.weights), validation, augment
        return self._known[features]

    def _reasons(self, best: Entry) -> Iterable[str]:
        config, own = best.config, _features_of(best.config)
        others = [entry.score[0] for entry in self.entries if _features_of(entry.config) != own]
        next_best = f" ({self._judge} {shown(best.score[0])}, next best {shown(max(others))})" if others else ""
        yield f"features: {described(config)}{next_best}"
        dropped = f", single features dropped with probability {config.drop_entries:g}" if config.drop_entries else ""
        yield f"weight decay {config.weight_decay:.3g}, sharpness {config.sharpness:g}{dropped}"


def _features_of(config: ModelConfig) -> tuple[Any, ...]:
    return config.augment, config.hops, config.teleport, config.normalize


def _score(entry: Entry) -> tuple[float, float]:
    return entry.score


# Workers and shards

#: Multiply-adds of a training that is worth processes of its own, which take seconds to start: a minute of one core.
WORTH_PROCESSES = 2e12


def choose_mesh(
    config: ModelConfig, shape: tuple[int, ...], classes: int, team: Team | None = None
) -> tuple[ModelConfig, tuple[str, ...]]:
    """``config`` with numbers of workers and shards for rows of that ``shape``, and a sentence if they were chosen.

    A chain first, as long as there are layers for it: its weights have the bits of one process, and its messages are
    the shortest. On a ``team`` the processes are there already, and those that the chain has no layers for share the
    rows. Otherwise there are as many as there are cores for, and one for a training of less than a minute.
    """
    if config.workers != "auto":
        return config, ()
    rows, features = shape
    if config.unlabelled:
        rows = config.copies * (rows + config.unlabelled)
    if team is None:
        shards, processes = config.shards or 1, usable_cores() // config.threads
        epochs = config.epochs * (config.rounds + 1 if config.unlabelled else len(config.stages or (config.layers,)))
        costs = layer_costs(rows, widths(min(rows, features), config.hidden, classes, config.layers), config.solver)
        is_worth = epochs * sum(costs) > WORTH_PROCESSES
        workers = max(1, min(processes // shards, config.layers)) if is_worth else 1
    else:
        chains = [
            length
            for length in range(1, config.layers + 1)
            if team.size % length == 0 and team.size // length <= rows and config.shards in (None, team.size // length)
        ]
        if not chains:
            raise InputError(
                f"{team.size} processes cannot be dealt to {config.layers} layers and {rows} rows: "
                "say how many with --workers and --shards, or start fewer"
            )
        workers, shards = max(chains), team.size // max(chains)
    mesh = "one process" if workers * shards == 1 else f"workers x shards: {workers} x {shards}"
    return dataclasses.replace(config, workers=workers, shards=shards), (f"{mesh}, which should take the least time",)
