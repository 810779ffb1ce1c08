"""A cell of a table: one method on one data set, over several seeds, each saved when it is done and never run twice."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import multiprocessing
import os
import signal
import statistics
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from sklearn.metrics import log_loss
from torch import Tensor

from pdadmm_g import GAMLPClassifier
from pdadmm_g.baselines import GRAPH_METHODS, Baseline
from pdadmm_g.config import GRAPH, ModelConfig, settings_where
from pdadmm_g.engine.watchdog import EXIT_PEER_LOST, WorkerLostError
from pdadmm_g.graph.candidates import augmentation, with_defaults
from pdadmm_g.graph.datasets import load_dataset
from pdadmm_g.graph.examples import Examples, aligned
from pdadmm_g.graph.graph import MASKS, Graph
from pdadmm_g.graph.readers import labels_of
from pdadmm_g.training.fit import fit
from pdadmm_g.training.prepare import Problem, prepare_graph
from pdadmm_g.utils import compute_threads

from .results import Results, Row, plain

Settings = dict[str, Any]
#: A graph with the masks of the split of that number.
Split = Callable[[Graph, int], Graph]


@dataclass(frozen=True)
class Cell:
    """What to run. Of several candidate settings, the best on validation with the first seed is taken for all."""

    method: str
    dataset: str
    candidates: tuple[Settings, ...]
    seeds: tuple[int, ...]
    #: With it a seed is the number of a split too, and candidates are compared on each split by itself.
    split: Split | None = None


def run_cells(
    cells: Sequence[Cell], results: Results, *, data_root: str | None, processes: int, device: str = "cpu"
) -> Iterator[Row]:
    """Run what is not in ``results`` yet, and yield the rows of all cells as they become known.

    Each process takes one data set after the other, so that features are augmented once; or one cell after the other
    where there are more processes than data sets.
    """
    pending = []
    for cell in cells:
        known = finished(results, cell)
        if known is not None:
            yield known
        else:
            pending.append(cell)
    groups = [list(group) for _, group in groupby(pending, key=lambda cell: cell.dataset)]
    if processes > len(groups):
        groups = [[cell] for cell in pending]
    work = functools.partial(_run_group, results=results, data_root=data_root, device=device)
    if processes == 1 or len(groups) <= 1:
        for group in groups:
            yield from work(group)
        return
    with process_pool(min(processes, len(groups))) as pool:
        for done in as_completed([pool.submit(work, group) for group in groups]):
            yield from done.result()


@contextmanager
def process_pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes: forked ones would inherit this one's threads and locks. They do not outlive the block."""
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _begin)
    started = pool._processes  # which it forgets
    try:
        yield pool
    except BrokenProcessPool:
        pool.shutdown()  # ends the others
        codes = [process.exitcode or 0 for process in started.values()]
        code = min(codes, key=lambda code: (code in (0, -signal.SIGTERM), code))
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        raise WorkerLostError(f"a process of the experiment {how}") from None
    except BaseException:
        for process in list(started.values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin() -> None:
    """An interrupt is for the process that started this one, and ends them all; a terminal sends it to each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(EXIT_PEER_LOST)


def finished(results: Results, cell: Cell) -> Row | None:
    """The row of a cell, None unless it has all its seeds."""
    row = begun(results, cell)
    return row if row is not None and set(cell.seeds) <= {run["seed"] for run in row["runs"]} else None


def begun(results: Results, cell: Cell) -> Row | None:
    """The row of a cell, also with some of its seeds or of its search; None if there is none, or of other settings."""
    row = results.find(dataset=cell.dataset, method=cell.method)
    return row if row is not None and row.get("candidates") == plain(cell.candidates) else None


def _run_group(cells: Iterable[Cell], *, results: Results, data_root: str | None, device: str) -> list[Row]:
    warnings.filterwarnings("ignore", "rho = ")  # the paper's own settings are outside the theory's condition
    return [run_cell(cell, results, data_root, device) for cell in cells]


def run_cell(cell: Cell, results: Results, data_root: str | None, device: str = "cpu") -> Row:
    """Choose among the candidates, run the seeds that are missing and save after each.

    The command that completes a cell is the one that it names.
    """
    row = begun(results, cell) or {
        "dataset": cell.dataset,
        "method": cell.method,
        "candidates": cell.candidates,
        "search": [],
        "runs": [],
    }

    def train_on(settings: Settings, seed: int) -> Row:
        return run_once(cell.dataset, settings, seed, data_root, device, cell.split)

    if cell.split is not None:
        return _run_splits(cell, row, results, train_on)
    chosen = 0
    if len(cell.candidates) > 1:
        for candidate in cell.candidates[len(row["search"]) :]:
            row["search"].append([train_on(candidate, cell.seeds[0])])
            row = results.put(row)
        chosen = max(range(len(cell.candidates)), key=lambda index: _validation_score(row["search"][index]))
        if not row["runs"]:
            row = results.put(_with_runs(row, row["search"][chosen], settings=cell.candidates[chosen]))
    for seed in cell.seeds:
        if seed not in {run["seed"] for run in row["runs"]}:
            run = train_on(cell.candidates[chosen], seed)
            row = results.put(_with_runs(row, [*row["runs"], run], settings=cell.candidates[chosen]))
    return row


def _run_splits(cell: Cell, row: Row, results: Results, train_on: Callable[[Settings, int], Row]) -> Row:
    """The best candidate of each split, on its own validation nodes; what was tried beside it stays in the search."""
    for seed in cell.seeds:
        if seed in {run["seed"] for run in row["runs"]}:
            continue
        tried = sum(run["seed"] == seed for run in row["search"])
        for candidate in cell.candidates[tried:]:
            run = train_on(candidate, seed) | {"settings": candidate}
            row = results.put(row | {"search": [*row["search"], run]})
        best = max((run for run in row["search"] if run["seed"] == seed), key=lambda run: _validation_score([run]))
        others = [run for run in row["search"] if run is not best]
        row = results.put(_with_runs(row | {"search": others}, [*row["runs"], best]))
    return row


def _with_runs(row: Row, runs: Sequence[Row], **others: Any) -> Row:
    """The row of a cell with these runs, their mean and their spread."""
    accuracies = [run["test_accuracy"] for run in runs]
    spread = statistics.stdev(accuracies) if len(accuracies) > 1 else None
    return row | {"runs": runs, **others, "mean": statistics.mean(accuracies), "std": spread}


def _validation_score(runs: Sequence[Row]) -> tuple[float, float]:
    """Mean validation accuracy, then mean validation loss; a failed run counts as knowing nothing."""
    accuracy = statistics.mean(run["val_accuracy"] or 0.0 for run in runs)
    return accuracy, -statistics.mean(run["val_loss"] or 0.0 for run in runs)


def run_once(
    dataset: str,
    settings: Settings,
    seed: int,
    data_root: str | None,
    device: str = "cpu",
    split: Split | None = None,
) -> Row:
    """Train once; accuracies of the model that a user gets, and how training ended.

    With a ``method`` among the settings by this one of :mod:`pdadmm_g.baselines`.
    """
    if "method" in settings:
        model = Baseline(settings["method"], random_state=seed, device=device)
        model.set_params(**{name: value for name, value in settings.items() if name != "method"})
        return _run_estimator(model, dataset, seed, data_root, split)
    config = ModelConfig(**settings | {"device": device}).resolved()
    if config.augment == "auto":
        model = GAMLPClassifier(**settings, random_state=seed, device=device)
        return _run_estimator(model, dataset, seed, data_root, split)
    problem = problem_of(dataset, data_root, config, seed, split).decided()
    result = fit(problem, seed=seed).uninterrupted()
    config = problem.config
    with compute_threads(config.threads), torch.no_grad():
        scores = {
            "train_accuracy": accuracy(result.model, problem.training),
            "val_accuracy": accuracy(result.model, problem.validation),
            "val_loss": _loss(result.model, problem.validation),
            "test_accuracy": accuracy(result.model, problem.test),
        }
    return {
        "seed": seed,
        **{name: None if value != value else value for name, value in scores.items()},  # JSON has no NaN
        "status": result.status.name,
        "epochs": len(result.history),
        "seconds": round(result.seconds, 3),
        "device": device,
        "augment": config.augment,
        "hops": config.hops,
        "normalize": config.normalize,
        "weight_decay": config.weight_decay,
        **(
            {name: getattr(config, name) for name in ("teleport", "drop_entries", "sharpness")}
            if config.unlabelled
            else {}
        ),
        "unlabelled": config.unlabelled,
        "layers": len(result.model.linears),
    }


def _run_estimator(
    model: Baseline | GAMLPClassifier, dataset: str, seed: int, data_root: str | None, split: Split | None
) -> Row:
    """The same of a method to compare with, or of ours where the data decide on the features."""
    data, decided, names = _load(dataset, data_root), False, settings_where(ModelConfig, group=GRAPH)
    if isinstance(model, Baseline):
        config = model.config()
        decided = "auto" not in (config.augment, config.normalize) and config.normalize != "centered"
    if isinstance(model, Baseline) and decided and model.name not in GRAPH_METHODS:
        # The features depend on nothing that a seed or a split changes.
        data = _augment(dataset, data_root, tuple((name, getattr(config, name)) for name in names))
        model.set_params(augment="none", hops=None, row_normalize=False, normalize="none")
    if split is not None:
        data = split(data, seed)
    model.fit(data)
    chosen = isinstance(model, GAMLPClassifier)
    config = config if decided else model.config_
    P, y = model.predict_proba(data), labels_of(data)
    row: Row = {"seed": seed}
    for mask in MASKS:
        nodes = data[mask].numpy() if mask in data else np.zeros(0, dtype=bool)
        right = model.classes_[P[nodes].argmax(1)] == y[nodes] if nodes.any() else None
        row[mask.replace("mask", "accuracy")] = None if right is None else float(right.mean())
        if mask == "val_mask":
            row["val_loss"] = None if right is None else float(log_loss(y[nodes], P[nodes], labels=model.classes_))
    return row | {
        "status": model.status_.name,
        "epochs": model.n_iter_,
        "seconds": round(model.seconds_, 3),
        "device": model.device,
        **{name: getattr(config, name) for name in ("augment", "hops", "row_normalize", "normalize", "weight_decay")},
        **{name: getattr(config, name) for name in ("components", "label_hops", "sharpness") if chosen},
        "unlabelled": config.unlabelled if chosen else None,
        "layers": len(model.model_.linears),
    }


@functools.lru_cache(maxsize=1)
def _augment(dataset: str, data_root: str | None, settings: tuple[tuple[str, Any], ...]) -> Graph:
    """A graph with the augmented features of all its nodes, which all candidates and splits need alike."""
    data = _load(dataset, data_root)
    config = with_defaults(data, ModelConfig(**dict(settings)).resolved())
    augmented = copy.copy(data)
    augmented.x = augmentation(config).features(data)
    return augmented


#: The problem of the data set, split and augmentation that were asked for last.
_cache: dict[Any, Problem] = {}
#: The graph that was asked for last: loading a large one takes seconds.
_load = functools.lru_cache(maxsize=1)(load_dataset)


def problem_of(
    dataset: str, data_root: str | None, config: ModelConfig, seed: int, split: Split | None = None
) -> Problem:
    """The problem of a data set with its test nodes, augmented as ``config`` says or as it suits the data.

    With ``split``, of that graph with the masks of the split with the number ``seed``.
    """
    names = settings_where(config, group=GRAPH)
    key = (
        dataset, data_root, config.device, repr(config.class_weight), split, None if split is None else seed,
        *(getattr(config, name) for name in names),
    )  # fmt: skip
    if _asks_others(config):
        _cache.clear()
        return _prepare(dataset, data_root, config, seed, split)
    if key not in _cache:
        _cache.clear()
        _cache[key] = _prepare(dataset, data_root, config, seed, split)
    known = _cache[key]
    chosen = {name: getattr(known.config, name) for name in names}
    return dataclasses.replace(known, config=dataclasses.replace(config, **chosen))


def _asks_others(config: ModelConfig) -> bool:
    """Is it tried how nodes without labels teach? What comes of it depends on the seed and on more settings."""
    return bool(config.unlabelled) or (config.unlabelled is None and config.augment in ("auto", "average"))


def _prepare(dataset: str, data_root: str | None, config: ModelConfig, seed: int, split: Split | None) -> Problem:
    data = _load(dataset, data_root)
    if split is not None:
        data = split(data, seed)
    prepared = prepare_graph(data, config, seed=seed, test=True)
    training, validation, test = map(aligned, (prepared.training, prepared.validation, prepared.test))
    assert training is not None
    return dataclasses.replace(prepared, training=training, validation=validation, test=test)


@torch.no_grad()
def accuracy(predict: Callable[[Tensor], Tensor], examples: Examples | None) -> float:
    """Share of the rows whose label a network finds, or whatever gives their logits; NaN without rows."""
    return examples.targets.accuracy(predict(examples.X)) if examples else math.nan


@torch.no_grad()
def _loss(predict: Callable[[Tensor], Tensor], examples: Examples | None) -> float:
    return float(torch.nn.functional.cross_entropy(predict(examples.X), examples.y)) if examples else math.nan
