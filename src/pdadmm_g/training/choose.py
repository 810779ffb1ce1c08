"""What is left open and chosen: features, network, learning from unlabelled nodes, workers and shards."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config import ModelConfig
from ..engine.layout import layer_costs, widths
from ..engine.team import Team
from ..errors import InputError
from ..graph.augmentation import Copies, GraphAugment, Source, is_mostly_zero
from ..graph.candidates import (
    COMPONENTS,
    Propagated,
    augmentation,
    candidates,
    described,
    open_normalizations,
    propagated,
    with_defaults,
)
from ..graph.examples import Examples, at_most
from ..graph.graph import Graph
from ..graph.parts import are_directed, has_edges, join_unlike, part_of
from ..graph.propagation import KnownLabels, Normalization, quiet
from ..metrics import optimism_of, scoring_name, shown, standard_error
from ..metrics import score as metric
from ..model import GAMLP
from ..model import outputs as network_outputs
from ..utils import compute_threads, task, usable_cores
from . import linear
from .records import judged
from .rounds import FIRST_EPOCHS
from .train import TrainingResult, train

Found = TypeVar("Found")


def _pilot(config: ModelConfig, **changes: Any) -> ModelConfig:
    """The settings of a short run: the first stage, in one process."""
    assert config.stages is not None
    depth = config.stages[0]
    return config.but(layers=depth, stages=(depth,), plan=None, workers=1, shards=1, eval_every=EVAL_EVERY, **changes)


#: From one evaluation of a short run to the next.
EVAL_EVERY = 5

#: More rows of a kind than this are not looked at, before the finals.
MOST_ROWS = 1000

# Features, network and learning from unlabelled nodes

#: What is not given and not chosen either.
UNLABELLED, LABEL_HOPS = 1000, 4
#: Said where a score that is lower counts as better.
LUCK = "which is within the luck of the best of many"
#: Features of several blocks, which are the widest.
BLOCKS = ("hops", "apart")
#: A network is tried on so many of the best features and on the best of each normalization, with these weight decays a
#: row, larger ones where columns are standardized; the best with other decays, so many times as large, and wider.
FEATURES, DECAYS, FURTHER, WIDE = 3, ((0.001, 0.01), (0.01, 0.1)), (0.3, 3.0), 400
#: So many of the best on some rows are tried on all, with decays a row by so much smaller; of more rows linear models
#: are not tried, nor are rows given by their coordinates.
FINALISTS, FALLING, MOST_COORDINATES = 2, (1.0, 0.3, 0.1), 2500
#: It trains for so many epochs; the mean of so many evaluations in a row counts.
SHORT, SMOOTHED = 60, 3
#: With unlabelled nodes: so many of the best features with each normalization; weight decays a row; whether single
#: entries of the features are dropped, if most of them are zero; and sharpness, each from the first one on.
OF_EACH, DECAYS_PER_LABEL = 2, (0.002, 0.0007)
DROP_ENTRIES = (0.6, 0.0)
SHARPNESSES = (3.0, 2.0, 5.0)
#: A short run: its rounds, most unlabelled nodes, folds, and how many of its last evaluations count.
ROUNDS, NODES, FOLDS, LAST = 3, 1000, 2, 2
#: A short run that is behind labelled nodes alone by less than the first may be ahead after all rounds; what is behind
#: by more than the second is not looked at more closely.
CLOSE, BEHIND = 0.05, 0.02
#: The mean of the best models on so many different features is kept, unless one model is ahead by more than a standard
#: error of its score; their rows have no more numbers together than this.
MEMBERS, MOST_NUMBERS = 5, 100_000_000
#: With more labels than this share of all nodes the others are not asked.
MOST_LABELLED = 0.2
#: So many times more rows are looked at where there are no more columns than this.
NARROW, MORE = 100, 5


class Rows(NamedTuple):
    """The nodes of a graph whose labels decide, with what they should become."""

    nodes: Tensor
    #: For training: class indices, probabilities, or a column a label or number.
    y: Tensor
    #: For scores: class indices, or the same columns.
    t: Tensor
    weights: Tensor | None
    classes: NDArray[Any]
    #: Places among the nodes of those that train and of those that are asked.
    folds: tuple[tuple[Tensor, Tensor], ...]
    #: Is every node asked in one of several folds, and trains in the end?
    crossed: bool
    #: What is known of those that train in the end.
    known: KnownLabels

    @property
    def training(self) -> Tensor:
        """The places of the nodes that train in the end."""
        return torch.arange(len(self.nodes)) if self.crossed or not self.folds else self.folds[0][0]

    def weight(self, places: Tensor) -> float:
        """How many training rows some nodes count as."""
        return float(len(places) if self.weights is None else self.weights[places].sum())

    def indicators(self, places: Tensor, target: str) -> Tensor:
        """What linear models learn: a column a class, label or number."""
        t = self.t[places]
        return torch.nn.functional.one_hot(t, len(self.classes)) if target == "classification" else t

    def at_most(self, number: int) -> Rows:
        """So many nodes of each part of each fold at the most, evenly spaced, and no others."""
        folds = [[at_most(number, part).contiguous() for part in fold] for fold in self.folds]
        places = torch.cat([part for fold in folds for part in fold]).unique()
        found = tuple((torch.searchsorted(places, a), torch.searchsorted(places, b)) for a, b in folds)
        own = {name: getattr(self, name)[places] for name in ("nodes", "y", "t")}
        weights = None if self.weights is None else self.weights[places]
        return self._replace(**own, weights=weights, folds=found)


class Candidate(NamedTuple):
    """Settings, the weight decay a row, where that is left open, and how they did, once they have been tried."""

    config: ModelConfig
    decay: float | None = None
    #: The score and the negative of the loss, the higher the better.
    score: tuple[float, float] = (-math.inf, -math.inf)
    #: Of each fold the model, whose input are the rows of :class:`Known`, and what it says of the nodes that are asked.
    models: Sequence[GAMLP] = ()
    outputs: Sequence[Tensor] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """What its features depend on."""
        return _key(self.config)

    @property
    def learns(self) -> bool:
        """Does it learn from unlabelled nodes?"""
        return bool(self.config.unlabelled)

    @property
    def is_linear(self) -> bool:
        """Is it a linear model?"""
        return bool(self.models) and len(self.models[0].linears) == 1

    def on(self, weight: float) -> ModelConfig:
        """The settings for training rows that weigh so much together: the risk is a sum over them."""
        return self.config if self.decay is None else self.config.but(weight_decay=self.decay * weight)


class Evidence(NamedTuple):
    """What there is to say of a model beside its score."""

    #: Its settings and why they are such, a sentence each.
    about: tuple[str, ...] = ()
    #: What it says of nodes that it did not train on, and what is known of them.
    asked: tuple[Tensor, Tensor] | None = None
    #: By figure, how much better the best of all looks on the nodes that decide than it is.
    optimism: Mapping[str, float] = MappingProxyType({})


class Ready(NamedTuple):
    """A model that was found on the way, and its score."""

    config: ModelConfig
    augmentation: GraphAugment
    model: GAMLP
    score: float
    #: What a network that is trained after all has to reach: less than the score of a linear model, by how much of that
    #: is luck.
    bar: float
    #: How many models it is the mean of.
    members: int
    evidence: Evidence


class Choice(NamedTuple):
    """What was decided and why; what is propagated, and its principal directions, where they are known."""

    config: ModelConfig
    reasons: tuple[str, ...] = ()
    #: Of the settings, and of what the best candidate says of all nodes out of fold.
    evidence: Evidence = Evidence()
    source: Source | None = None
    basis: Tensor | None = None
    #: The best of what was tried, where it may be better than what is trained in the end.
    ready: Ready | None = None


class Known(NamedTuple):
    """The rows of all known nodes under some features."""

    #: For each fold; in coordinates of the span of those that train, where these are fewer than the features.
    X: tuple[Tensor, ...]
    augmentation: GraphAugment
    source: Source | None


def choose(data: Graph, rows: Rows, config: ModelConfig, *, seed: int, team: Team) -> Choice:
    """``config`` with all that is left to the data filled in: of everything that is tried, what has the best score.

    All processes of the ``team`` call this, each with its part of the graph, and find the same.
    """
    if len(rows.training) == data.num_nodes:  # nobody else is there
        config = config.but(unlabelled=0)
    if config.unlabelled and config.directed not in ("auto", "symmetric"):
        raise InputError(f"unlabelled must be 0 with directed = {config.directed}: edges must count both ways alike")
    if not rows.folds or (config.target == "classification" and len(rows.classes) == 1):
        choice = _defaults(data, rows, config)
        return choice._replace(config=_of_all(choice.config)) if rows.crossed else choice
    with compute_threads(config.threads):
        return Race(data, rows, config, seed, team).run()


def _defaults(data: Graph, rows: Rows, config: ModelConfig) -> Choice:
    """What is usual, where nothing tells what is better."""
    reasons: tuple[str, ...] = ()
    if config.unlabelled:
        chosen = candidates(data, config)[0]
        drop = DROP_ENTRIES[0] if is_mostly_zero(data) else 0.0
        chosen = chosen.but(
            drop_entries=drop if config.drop_entries is None else config.drop_entries,
            sharpness=config.sharpness or SHARPNESSES[0],
        )
        decay = DECAYS_PER_LABEL[0] if config.weight_decay is None else None
        chosen = Candidate(chosen, decay).on(rows.weight(torch.arange(len(rows.nodes))))
    else:
        chosen = with_defaults(data, config.but(unlabelled=0))
        if "auto" in (config.augment, config.normalize):
            reasons = (f"features: {described(chosen)}, the default without validation nodes",)
    return Choice(chosen, reasons, Evidence(_directions(data, config, chosen, is_compared=bool(rows.folds))))


def _directions(data: Graph, given: ModelConfig, chosen: ModelConfig, *, is_compared: bool = True) -> tuple[str, ...]:
    """What is made of directions that edges have."""
    if given.directed != "auto" or chosen.augment == "none" or not are_directed(data):
        return ()
    way = "both ways alike" if chosen.directed == "symmetric" else "each way by itself"
    alone = is_compared and not chosen.unlabelled
    why = "which suits best" if alone else "directed='both' keeps the two ways apart"
    return (f"edges have directions: features go along them {way}, {why}",)


def _of_all(config: ModelConfig) -> ModelConfig:
    """The settings with which all labelled nodes train, as long as the networks of the folds did; nobody validates."""
    config = config.but(patience=None, epochs=min(config.epochs, SHORT))
    if config.growth == "gain" and config.stages and config.plan is None:
        config = config.but(layers=config.stages[0], stages=config.stages[:1])
    return config


def _reason_against(data: Graph, rows: Rows, config: ModelConfig) -> str:
    """Why unlabelled nodes cannot be expected to help, without trying; empty if they may."""
    if config.augment not in ("auto", "average"):
        return (
            "the graph is left out"
            if config.augment == "none"
            else "their features would have to be averages over hops"
        )
    if not has_edges(data):
        return "there are no edges"
    if config.directed not in ("auto", "symmetric"):
        return f"edges do not count both ways alike but {config.directed}"
    if config.label_hops:
        return "known labels of neighbours are features (label_hops)"
    share = len(rows.training) / data.num_nodes
    if share > MOST_LABELLED:
        return f"{share:.0%} of all nodes train"
    found = join_unlike(data, rows.nodes)
    if found is not None:
        return f"{found.share:.0%} of edges between labelled nodes join one class, {found.chance:.0%} would by chance"
    return ""


class Race:
    """All that is open stands side by side on one score: linear models, short runs, and longer ones of the best."""

    def __init__(self, data: Graph, rows: Rows, config: ModelConfig, seed: int, team: Team) -> None:
        self.data, self.given, self.seed, self.all = data, config, seed, rows
        #: Those that have the parts of the graph. The rows of known nodes are in all of them.
        self.team, self.part = team, part_of(data)
        most = MOST_ROWS * (MORE if data.x.shape[1] <= NARROW else 1)
        self.rows = rows.at_most(most)
        #: Nodes of all kinds, which say what columns are like.
        self.sample = at_most(most, torch.arange(data.num_nodes))
        self.linear: list[Candidate] = []
        self.networks: list[Candidate] = []
        self._known: dict[tuple[Any, ...], Known] = {}
        self._results: dict[tuple[Any, ...], TrainingResult] = {}
        #: How its scores are named.
        self._judge = f"{'out-of-fold' if rows.crossed else 'validation'} {scoring_name(config.scoring)}"

    def run(self) -> Choice:
        """The winner, unless what was asked for must win."""
        asked = self.given.unlabelled
        against = "" if asked else "0" if asked == 0 else _reason_against(self.data, self.all, self.given)
        if against:
            why = () if asked == 0 else (f"unlabelled nodes are not learned from: {against}",)
            return self._choice(self._labelled_alone(), why)
        best = self._with_unlabelled()
        if asked:
            return self._choice(self._whole(best) if self.rows.crossed else best)
        alone = self._labelled_alone(best)
        if alone.score >= best.score:
            alone = max(alone, self._labelled_alone(), key=_score)
        luck, near = self._luck(self.networks), best.score[0] > self._like(best, alone).score[0] - CLOSE
        if near and (self.rows.crossed or best.score <= alone.score):
            best = self._whole(best, alone, luck)
        rival = self._like(best, alone)
        said = f"{self._judge} {shown(best.score[0])} with them, {shown(rival.score[0])} without"
        if len(best.outputs) < len(self.rows.folds):
            said += f", in {len(best.outputs)} of {len(self.rows.folds)} parts"
        ahead = best.score >= rival.score
        if near and (ahead or best.score[0] > rival.score[0] - luck):
            return self._choice(best, (f"unlabelled nodes are learned from: {said}{'' if ahead else f', {LUCK}'}",))
        return self._choice(alone, (f"unlabelled nodes are not learned from: {said}",))

    # Candidates

    def _labelled_alone(self, rival: Candidate | None = None) -> Candidate:
        """The best network on labelled nodes alone; not looked for far where a ``rival`` is ahead on its features."""
        given, is_open = self.given.but(unlabelled=0), self.given.weight_decay is None
        if rival is None:
            features = self._features(given)
        else:
            hops = (0, LABEL_HOPS) if self._may_know_labels(given) else (given.label_hops or 0,)
            features = [rival.config.but(unlabelled=0, label_hops=each) for each in hops]
            self.linear += [self._linear(each) for each in features if each.label_hops and is_open]
        best = self._best([
            Candidate(each, decay)
            for each in features
            for decay in (DECAYS[each.normalize == "standard"] if is_open else (None,))
        ])  # fmt: skip
        ahead = max([*self.linear, *([rival] if rival else [])], key=_score, default=best)
        if best.score[0] < ahead.score[0] - BEHIND:
            return best
        if best.decay is not None:
            best = self._best([Candidate(best.config, by * best.decay) for by in FURTHER])
        if given.hidden is None:
            best = self._best([Candidate(best.config.but(hidden=WIDE), best.decay)])
        return best

    def _with_unlabelled(self) -> Candidate:
        """The best network on unlabelled nodes too, after a few rounds on some of them."""
        given = self.given.but(unlabelled=self.given.unlabelled or UNLABELLED)
        decays = DECAYS_PER_LABEL if given.weight_decay is None else (None,)
        drops, sharp = [given.drop_entries or 0.0], [given.sharpness or SHARPNESSES[0]]
        if given.drop_entries is None and is_mostly_zero(self.data):
            drops = [*DROP_ENTRIES]
        if given.sharpness is None:
            sharp = [*SHARPNESSES]
        first = {"drop_entries": drops[0], "sharpness": sharp[0]}
        best = self._best([Candidate(each.but(**first), decays[0]) for each in self._features(given)])
        if decays[1:]:
            best = self._best([Candidate(best.config, decay) for decay in decays[1:]])
        for name, values in (("drop_entries", drops[1:]), ("sharpness", sharp[1:])):
            if values:
                best = self._best([Candidate(best.config.but(**{name: value}), best.decay) for value in values])
        return best

    def _features(self, given: ModelConfig) -> list[ModelConfig]:
        """The features on which networks are tried: of those that are open what suits linear models."""
        tried, kinds = candidates(self.data, given), open_normalizations(self.data, given)
        if len(tried) * len(kinds) == 1:
            return tried
        keys = [_key(each) for each in tried]
        known = [each for each in self.linear if each.key in keys]
        fresh = [each for each, key in zip(tried, keys, strict=True) if key not in self._known]
        found = self._screened(fresh, kinds, given)
        if given.weight_decay is None:  # or else it is a network that was asked for
            self.linear += found
        ranked = sorted(known + found, key=_score, reverse=True)
        if given.weight_decay is not None and given.hidden is not None and not given.unlabelled:
            ranked = ranked[:1]
        configs = [own.config.but(unlabelled=given.unlabelled) for own in ranked]
        # Networks may like another normalization than linear models do.
        of_kinds = [[each for each in configs if each.normalize == kind] for kind in kinds]
        if given.unlabelled:
            return [each for own in of_kinds for each in own[:OF_EACH]]
        first = [own[0] for own in of_kinds if own]
        return [each for place, each in enumerate(configs) if place < FEATURES or each in first]

    def _screened(
        self, fresh: list[ModelConfig], kinds: Sequence[Normalization], given: ModelConfig
    ) -> list[Candidate]:
        """Linear models on all these features, on the best also with other normalizations and with known labels."""
        with_labels = self._may_know_labels(given)
        found: list[Candidate] = []
        ahead: list[tuple[Candidate, Propagated]] = []

        def trial(each: Propagated) -> tuple[Candidate, Propagated]:
            self._enter(each)
            return self._linear(each.config), each

        def screen(rows: Iterable[Propagated]) -> None:
            nonlocal ahead
            for tried, each in self._in_parallel(trial, ((own,) for own in rows), step):
                found.append(tried)
                # Of no others are the rows kept: they may take much memory.
                ahead = sorted([*ahead, (tried, each)], key=lambda both: _score(both[0]), reverse=True)[:FEATURES]

        with task("choosing features", len(fresh) + min(FEATURES, len(fresh)) * (len(kinds) - 1 + with_labels)) as step:
            alike = [each for each in fresh if each.augment not in BLOCKS]
            narrow = [each for each in alike if (each.components or self.data.x.shape[1]) <= COMPONENTS] or alike
            screen(self._propagated(narrow))
            screen(self._propagated(_suited([each for each in fresh if each not in narrow], found)))
            screen([each._replace(config=each.config.but(normalize=kind)) for _, each in ahead for kind in kinds[1:]])
            if with_labels:
                screen([each._replace(config=each.config.but(label_hops=LABEL_HOPS)) for _, each in ahead])
        return found

    def _may_know_labels(self, given: ModelConfig) -> bool:
        """Is it left open whether known labels of neighbours are features?"""
        is_open = given.label_hops is None and not given.unlabelled and given.augment != "none"
        return is_open and (self.data.edge_index is not None or has_edges(self.data))

    # Trials

    def _in_parallel(
        self, run: Callable[..., Found], jobs: Iterable[tuple[Any, ...]], step: Callable[[], object]
    ) -> Iterator[Found]:
        """What ``run`` gives for the arguments of each job, as many at a time as there are cores for.

        Each is as it would be alone, bit for bit. On a GPU one after the other: they would wait for each other there;
        and so where a team does each together. Jobs are asked for as they can begin.
        """
        config = self.given
        at_a_time = max(1, usable_cores() // config.threads) if config.device == "cpu" else 1
        if self.team.size > 1:
            for job in jobs:
                yield run(*job)
                step()
            return
        begun: deque[Future[Found]] = deque()
        with (
            quiet(),
            ThreadPoolExecutor(at_a_time, initializer=torch.set_num_threads, initargs=(config.threads,)) as pool,
        ):
            try:
                for job in jobs:
                    begun.append(pool.submit(run, *job))
                    if len(begun) > at_a_time:
                        yield begun.popleft().result()
                        step()
                for each in begun:
                    yield each.result()
                    step()
            except BaseException:
                pool.shutdown(cancel_futures=True)  # an interrupt does not wait for those that have not begun
                raise

    def _propagated(self, configs: list[ModelConfig]) -> Iterator[Propagated]:
        """The rows of the known nodes, and of the sample."""
        nodes = torch.cat([self.rows.nodes, self.sample])
        for each in propagated(self.data, nodes, configs):
            yield each._replace(rows=self.part.together(nodes, each.rows))

    def _features_of(self, augment: GraphAugment, nodes: Tensor) -> Tensor:
        """The augmented rows of some nodes, on all processes."""
        return self.part.together(nodes, augment.features(self.data, nodes))

    def _told(self, *numbers: float) -> list[float]:
        """Numbers that decide, those of the first process on all: the last bits may differ between machines."""
        return self.team.broadcast(torch.tensor(numbers, dtype=torch.float64), 0).tolist()

    def _rows_of(self, config: ModelConfig) -> Known:
        """The rows of the known nodes under these features."""
        if _key(config) not in self._known:
            self._enter(next(self._propagated([config])))
        return self._known[_key(config)]

    def _enter(self, each: Propagated) -> None:
        """Keep the rows of a candidate; in coordinates, unless random copies are to be made of them.

        The coordinates are of the span of the rows that train: a model sees nothing else of the others.
        """
        config, rows_of, training, known = each.config, [], self.rows.training, self.rows.known
        nodes, number = torch.cat([self.rows.nodes, self.sample]), len(self.rows.nodes)
        # No fold sees the labels that it is asked about.
        apart = self.rows.crossed and bool(config.label_hops)
        for labels in [KnownLabels(*(x[own] for x in known)) for own, _ in self.all.folds] if apart else [known]:
            rows = each.rows
            if config.label_hops:
                own = labels.rows(self.data, nodes, config.label_hops)
                rows = torch.cat([rows, self.part.together(nodes, own).to(rows)], dim=1)
            augment = augmentation(config, each.basis, labels)
            X = augment.fit_rows(rows[:number].clone(), rows[number:].clone())
            if len(training) < min(X.shape[1], MOST_COORDINATES) and not config.unlabelled:
                K = X @ X[training].T
                X = K @ linear.spanned(K[training])
            rows_of.append(X.to(config.device))
        if apart:
            augment = augmentation(config, each.basis, known)
        else:
            rows_of *= len(self.rows.folds)
        self._known[_key(config)] = Known(tuple(rows_of), augment, each.source)

    def _best(self, candidates: Sequence[Candidate]) -> Candidate:
        """The best network of its kind, after these have run too; one that stands alone need not run."""
        learns = candidates[0].learns
        narrow = self.given.hidden is None and not learns
        if len(candidates) == 1 and not (self.networks or narrow or self.rows.crossed):
            return candidates[0]
        before = [each for each in self.networks if each.learns is learns]
        if self.rows.crossed and not learns:
            candidates = self._ahead(candidates, before)
        self.networks += (found := self._run(candidates, folds=FOLDS if learns else None) if candidates else [])
        return max(before + found, key=_score)

    def _ahead(self, candidates: Sequence[Candidate], before: Sequence[Candidate]) -> list[Candidate]:
        """Of these the few that are ahead of the best one before on the first folds."""
        found = sorted(self._run(candidates, folds=FOLDS), key=_score, reverse=True)[:FINALISTS]
        if before:
            (rival,) = self._run([max(before, key=_score)], folds=FOLDS)
            found = [each for each in found if each.score > rival.score]
        return found

    def _whole(self, tried: Candidate, rival: Candidate | None = None, luck: float = 0.0) -> Candidate:
        """The same after all rounds; on few folds where it is behind a ``rival`` on these by more than ``luck``."""
        if rival is not None and len(self.rows.folds) > FOLDS:
            (found,) = self._run([tried], whole=True, folds=FOLDS)
            other = self._like(found, rival)
            if found.score < other.score and found.score[0] <= other.score[0] - luck:
                return found
        (found,) = self._run([tried], whole=True)
        self.networks.append(found)
        return found

    def _like(self, first: Candidate, other: Candidate) -> Candidate:
        """Another network on the folds that the first one was tried on."""
        number = len(first.outputs)
        return other if len(other.outputs) == number else self._run([other], folds=number)[0]

    def _run(
        self, candidates: Sequence[Candidate], *, whole: bool = False, folds: int | None = None
    ) -> list[Candidate]:
        """Networks of these settings on the first folds, or all: ``whole`` runs of them, or short ones."""
        for each in candidates:
            self._rows_of(each.config)  # here, so that no two runs make the same
        places = range(len(self.rows.folds))[:folds]
        jobs = [
            {(str(each.config), each.decay, place, whole): (each, place, whole) for place in places}
            for each in candidates
        ]
        fresh = {name: job for own in jobs for name, job in own.items() if name not in self._results}
        with task("short runs", len(fresh)) as step:
            self._results |= zip(fresh, self._in_parallel(self._trained, fresh.values(), step), strict=True)
        return [
            self._judged(each, [self._results[name] for name in own], whole=whole)
            for each, own in zip(candidates, jobs, strict=True)
        ]

    def _trained(self, candidate: Candidate, place: int, whole: bool) -> TrainingResult:
        """A network that is trained on a part of the rows, and is asked about another."""
        rows, (training, asked) = self.rows, self.rows.folds[place]
        known, config = self._known[candidate.key], candidate.on(rows.weight(training))
        X = known.X[place]
        y, t = (each.to(X if each.is_floating_point() else X.device) for each in (rows.y[training], rows.t[asked]))
        weights = None if rows.weights is None else rows.weights[training].to(X)
        own, others = Examples(X[training], y, weights), Examples(X[asked], t)
        copies, changes = None, dict[str, Any](epochs=min(config.epochs, SHORT))
        if config.unlabelled:
            assert known.source is not None
            source, nodes = known.source.to(config.device), rows.nodes[training]
            copies = known.augmentation.copies(source, nodes, own.targets, config.drop, config.drop_entries)
            changes = {"epochs": min(config.epochs, FIRST_EPOCHS)}
            if not whole:
                changes |= {"rounds": ROUNDS, "unlabelled": min(NODES, config.unlabelled)}
        pilot = _pilot(config, **changes, patience=None if rows.crossed else config.patience or SHORT)
        return self._together(own, others, pilot, copies)

    def _together(
        self, own: Examples, others: Examples | None, config: ModelConfig, copies: Copies | None = None
    ) -> TrainingResult:
        """Train on rows that are in all processes: each by itself, or together where copies need all of the graph."""
        leads, team = self.team.rank == 0 or copies is None, self.team if copies is not None else None
        result = train(
            own if leads else None, others if leads else None, len(self.rows.classes) if leads else 0, config,
            seed=self.seed, copies=copies, team=team,
        )  # fmt: skip
        assert result is not None
        return result.uninterrupted()

    def _judged(self, candidate: Candidate, results: list[TrainingResult], *, whole: bool) -> Candidate:
        """How networks did: at their end where nobody will validate, or in short runs with unlabelled nodes."""
        learns, sizes = candidate.learns, [len(asked) for _, asked in self.rows.folds]
        curves, outputs = [], []
        for (_, asked), X, result in zip(self.rows.folds, self._known[candidate.key].X, results, strict=False):
            scores = [judged(record) for record in result.history if not learns or record["round"]]
            known = [score for score in scores if score is not None]
            curves.append(known if known and not result.status.is_failure else [(-math.inf, -math.inf)])
            with torch.no_grad():
                outputs.append(network_outputs(result.model(X[asked]), candidate.config.target).cpu())
        longest = max(map(len, curves))
        padded = [each + each[-1:] * (longest - len(each)) for each in curves]
        curve = np.average(np.array(padded), axis=0, weights=sizes[: len(curves)])
        number = min(LAST if learns else SMOOTHED, longest)
        smooth = [tuple(curve[end - number : end].mean(0).tolist()) for end in range(number, longest + 1)]
        score, loss = self._told(*(smooth[-1] if self.rows.crossed or (learns and not whole) else max(smooth)))
        return candidate._replace(score=(score, loss), models=[result.model for result in results], outputs=outputs)

    def _linear(self, config: ModelConfig) -> Candidate:
        """The best of a few linear models on the rows of a candidate."""
        rows, X_of = self.rows, self._rows_of(config).X
        models = linear.MODELS[config.target]
        fitted, said = [], []
        for (training, asked), X in zip(rows.folds, (each.cpu().double() for each in X_of), strict=True):
            weights = None if rows.weights is None else rows.weights[training]
            W, b = linear.fitted(X[training], rows.indicators(training, config.target), weights, config.target)
            fitted.append((W, b))
            said.append(models.outputs(X[asked] @ W + b[:, None]))
        tried = [(self._score_of([P[place] for P in said]), place, ridge) for place, ridge in enumerate(linear.RIDGES)]
        score, place, ridge = max(tried)
        networks = [linear.network(W[place], b[place], config.activation) for W, b in fitted]
        return Candidate(config, ridge, score, networks, [P[place] for P in said])

    def _score_of(self, outputs: list[Tensor]) -> tuple[float, float]:
        """The mean over the folds of the score, and of the negative of the loss."""
        targets = [self.rows.t[asked] for _, asked in self.rows.folds]
        found = [
            (self._metric(P, t), -linear.loss(P, t, self.given.target)) for P, t in zip(outputs, targets, strict=True)
        ]
        value, loss = self._told(*np.average(np.array(found), axis=0, weights=[*map(len, targets)]).tolist())
        return value, loss

    def _metric(self, P: Tensor, t: Tensor) -> float:
        """The score of predictions; below all others where it is not defined."""
        value = metric(self.given.scoring, t.numpy(), P.numpy(), self.given.target)
        return -math.inf if value is None else value

    # The end

    def _choice(self, best: Candidate, why: tuple[str, ...] = ()) -> Choice:
        """The settings that the best candidate is trained with on all rows, and what there is beside it."""
        best = self._finals(best)
        rows, known = self.all, self._known.get(best.key)
        config, asked = best.on(rows.weight(rows.training)), None
        config = config.but(label_hops=config.label_hops or 0)
        ready = self._mean(best) or self._single(best)
        if rows.crossed:
            asked, config = self._asked(best.outputs), _of_all(config)
        optimism = self._optimism([*self.linear, *self.networks])
        # Another model may be kept that does not learn from unlabelled nodes.
        about = self._about(best, config, why if best.learns else ())
        source, basis = (known.source, known.augmentation.basis) if known else (None, None)
        why = () if best.learns else why
        return Choice(config, why, Evidence(about, asked, optimism), source, basis, ready)

    def _finals(self, best: Candidate) -> Candidate:
        """The best on all rows, where others than all were tried, with smaller decays too, and linear models too.

        The best decay a row falls with the number of rows.
        """
        if not best.models or len(self.rows.nodes) == len(self.all.nodes) or best.learns:
            return best
        width = self._known[best.key].augmentation.width(self.data.x.shape[1])
        if self.team.size > 1 and len(self.all.nodes) * width > MOST_NUMBERS:  # nobody has room for all
            return best
        most = 1 if self.rows.crossed else FINALISTS
        networks, linears = (
            [*{each.key: each for each in sorted(tried, key=_score)}.values()][-most:]
            for tried in (self.networks, self.linear)
        )
        self.rows, self._known, self._results, self.networks, self.linear = self.all, {}, {}, [], []
        with task("choosing features", len(linears)) as step:
            for each in linears:
                if min(len(self.rows.training), self._rows_of(each.config).X[0].shape[1]) <= MOST_COORDINATES:
                    self.linear.append(self._linear(each.config))
                step()
        return self._best([
            Candidate(each.config, each.decay and by * each.decay)
            for each in networks
            for by in FALLING
            if each.decay or by == 1
        ])  # fmt: skip

    def _mean(self, best: Candidate) -> Ready | None:
        """The mean of the best models on different features, where these and networks are open; None if it is behind.

        Which of models is best that differ by less than a standard error is luck.
        """
        given = self.given
        is_open = given.weight_decay is None and given.hidden is None and given.growth == "gain"
        if not is_open or best.learns or given.activation != "relu":
            return None
        tried = [each for each in self._whole_of([*self.linear, *self.networks]) if not each.learns]
        tried.sort(key=_score, reverse=True)
        ranked = sorted({each.key: each for each in reversed(tried)}.values(), key=_score, reverse=True)
        members, most = list[Candidate](), MOST_NUMBERS // self.data.num_nodes
        for each in ranked[:MEMBERS]:
            most -= self._known[each.key].augmentation.width(self.data.x.shape[1])
            members += [each] if most >= 0 else []
        if len(members) < 2:
            return None
        of_folds = zip(*(each.outputs for each in members), strict=True)
        outputs = [linear.mean_output(own, given.target) for own in of_folds]
        (score, _), alone = self._score_of(outputs), tried[0].score[0]
        if score < alone - self._error(tried[0]):
            return None
        with task("the best models", len(members)) as step:
            fitted = list(self._in_parallel(self._fitted, ((each,) for each in members), step))
        (augment, _), *others = fitted
        augment = copy.copy(augment)
        augment.others = tuple(other for other, _ in others)
        model = GAMLP.mean([model for _, model in fitted])
        config = self._settings(members[0])
        if len(model.widths) > 2:
            config = config.but(hidden=model.widths[1])
        about = [
            f"the mean of {len(members)} models: {self._judge} {shown(score)}, the best one alone {shown(alone)}",
            *(
                f"{place} of {len(members)}: {'a linear model' if each.is_linear else 'a network'} on "
                f"{described(each.config)} ({shown(each.score[0])})"
                for place, each in enumerate(members, start=1)
            ),
        ]
        evidence = Evidence(tuple(about), self._asked(outputs), self._optimism(ranked, len(members)))
        return Ready(config, augment, model, score, score, len(members), evidence)

    def _single(self, best: Candidate) -> Ready | None:
        """The best model of what was tried, where it may be better than what is trained in the end."""
        kinds = [] if self.given.unlabelled else [(self.linear, True)]  # who asks for unlabelled nodes gets a network
        if not self.rows.crossed:
            kinds.append((self.networks, best.learns))
        found = [(max(kind, key=_score), self._luck(kind) if has_luck else 0.0) for kind, has_luck in kinds if kind]
        if not found:
            return None
        ready, luck = max(found, key=lambda each: each[0].score[0] - each[1])
        if self.rows.crossed and ready.score[0] - luck <= best.score[0]:
            return None
        (augment, model), config, score = self._fitted(ready), self._settings(ready), ready.score[0]
        asked, about = self._asked(ready.outputs), self._about(ready, config)
        if not self.rows.crossed and len(self.rows.nodes) < len(self.all.nodes):
            places = self.all.folds[0][1]
            with torch.no_grad():
                X = self._features_of(augment, self.all.nodes[places])
                asked = network_outputs(model(X), config.target).cpu(), self.all.t[places]
            (score,) = self._told(self._metric(*asked))
        evidence = Evidence(about, asked, self._optimism([*self.linear, *self.networks]))
        return Ready(config, augment, model, score, score - luck, 1, evidence)

    def _settings(self, tried: Candidate) -> ModelConfig:
        """What a model is trained with on the rows that it has in the end."""
        rows = self.all if self.rows.crossed else self.rows
        config = tried.on(rows.weight(rows.training))
        unlabelled = 0 if tried.is_linear else config.unlabelled or 0
        return config.but(unlabelled=unlabelled, label_hops=config.label_hops or 0)

    def _fitted(self, tried: Candidate) -> tuple[GraphAugment, GAMLP]:
        """A candidate for the features themselves; where all nodes train in the end, trained on all of them."""
        config, known = tried.config, self._known[tried.key]
        rows, augment = self.all if self.rows.crossed else self.rows, known.augmentation
        X = self._features_of(augment, rows.nodes)
        if rows.crossed and tried.is_linear:
            W, b = linear.fitted(X, rows.indicators(rows.training, config.target), rows.weights, config.target)
            place = linear.RIDGES.index(tried.decay or 0)
            return augment, linear.network(W[place], b[place], config.activation)
        if rows.crossed:
            pilot = _pilot(self._settings(tried), epochs=min(config.epochs, SHORT), patience=None)
            own = Examples(X, rows.y, rows.weights).to(pilot.device)
            own = own._replace(y=own.y.to(X) if own.y.is_floating_point() else own.y)
            return augment, self._together(own, None, pilot).model.cpu()
        model = copy.deepcopy(tried.models[0]).cpu()
        if model.widths[0] < X.shape[1]:
            # The coordinates are X V with V^T V = I, and their columns are orthogonal.
            C, training = known.X[0].cpu(), rows.training
            V = X[training].T @ (C[training] / C[training].square().sum(0))
            W, *others = model.parameters()
            layers = [W.data @ V.T, *others]
            model = GAMLP.from_parameters([*zip(layers[::2], layers[1::2], strict=True)], config.activation)
        return augment, model

    def _whole_of(self, tried: Sequence[Candidate]) -> list[Candidate]:
        """Those of these that were asked about all nodes that decide."""
        return [each for each in tried if len(each.outputs) == len(self.rows.folds)]

    def _asked(self, outputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """What is said of the nodes of all folds, and what is known of them."""
        return torch.cat([*outputs]), torch.cat([self.rows.t[asked] for _, asked in self.rows.folds])

    def _optimism(self, tried: Sequence[Candidate], members: int = 1) -> dict[str, float]:
        """How much better the best of these looks than it is."""
        asked = [self._asked(each.outputs) for each in self._whole_of(tried)]
        finite = [P.numpy() for P, _ in asked if bool(P.isfinite().all())]
        if self.given.target != "classification" or not finite:
            return {}
        return optimism_of(asked[0][1].numpy(), finite, self.given.scoring, members)

    def _luck(self, kind: Sequence[Candidate]) -> float:
        """How much of the score of the best of its kind is that it is the best of many on these nodes."""
        return self._told(self._optimism(kind).get(scoring_name(self.given.scoring), 0.0))[0]

    def _error(self, tried: Candidate) -> float:
        """The standard error of its score."""
        P, y = self._asked(tried.outputs)
        if self.given.target != "classification" or not bool(P.isfinite().all()):
            return 0.0
        return self._told(standard_error(y.numpy(), P.numpy(), self.given.scoring))[0]

    def _about(self, best: Candidate, config: ModelConfig, why: tuple[str, ...] = ()) -> tuple[str, ...]:
        """What was chosen, and what it was chosen before."""
        given, about = self.given, [*_directions(self.data, self.given, config), *why]
        score = f"{self._judge} {shown(best.score[0])}"
        others = [
            each.score[0]
            for each in self.networks
            if each.key != best.key
            and len(each.outputs) == len(best.outputs)
            and each.learns is bool(config.unlabelled)
        ]
        if others or self.linear:
            next_best = f", next best {shown(max(others))}" if others else ""
            about.append(f"features: {described(config)} ({score}{next_best})")
        elif not best.models and len(self._known) > 1:
            about.append(f"features: {described(config)}, which suit linear models best")
        if best.is_linear:
            return tuple(about)
        parts = [f"weight decay {config.weight_decay:.3g}"] if given.weight_decay is None else []
        parts += [f"{config.width} neurons a layer"] if given.hidden is None else []
        parts += [f"sharpness {config.sharpness:g}"] if config.unlabelled and given.sharpness is None else []
        if config.unlabelled and given.drop_entries is None and config.drop_entries:
            parts.append(f"single features dropped with probability {config.drop_entries:g}")
        if parts and self.networks:
            about.append(f"{', '.join(parts)} ({score})")
        return tuple(about)


_score = attrgetter("score")


def _key(config: ModelConfig) -> tuple[Any, ...]:
    """What features depend on."""
    names = ("augment", "hops", "teleport", "normalize", "row_normalize", "components", "directed")
    return (*(getattr(config, name) for name in names), config.label_hops or 0)


def _suited(wide: list[ModelConfig], found: list[Candidate]) -> list[ModelConfig]:
    """Those with the scale of rows and the directions of edges that suit averages best, if there are any."""
    averages = [each for each in found if each.config.augment == "average"]
    if not averages:
        return wide
    best = max(averages, key=_score).config
    return [
        each
        for each in wide
        if each.row_normalize == best.row_normalize and (each.augment == "none" or each.directed == best.directed)
    ]


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
        costs = layer_costs(rows, widths(min(rows, features), config.width, classes, config.layers), config.solver)
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
    return config.but(workers=workers, shards=shards), (f"{mesh}, which should take the least time",)
