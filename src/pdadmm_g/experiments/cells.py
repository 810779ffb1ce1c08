"""A cell of a table: one method on one data set, over several seeds, each saved when it is done and never run twice."""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
import signal
import statistics
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from multiprocessing.pool import Pool
from typing import Any

import torch

from ..config import ModelConfig
from ..data.augmentation_choice import augmentation, choose_augmentation
from ..data.checks import MASKS
from ..data.datasets import load_dataset
from ..data.examples import Examples
from ..hardware import compute_threads
from ..training.gradient import train_by_gradient
from ..training.train import TrainingResult, train
from ..training.weight_decay import choose_weight_decay
from .results import Results, Row, plain

Settings = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """What to run. Of several candidate settings, the best on validation with the first seeds is taken for all."""

    method: str
    dataset: str
    candidates: tuple[Settings, ...]
    seeds: tuple[int, ...]
    #: Candidates are compared by their mean over so many of the seeds.
    search_seeds: int = 1


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
        for rows in pool.imap_unordered(work, groups):
            yield from rows


def process_pool(processes: int) -> Pool:
    """Fresh processes: forked ones would inherit this one's threads and locks.

    An interrupt is for the process that started them, which ends them all; a terminal sends it to each.
    """
    ignore = (signal.SIGINT, signal.SIG_IGN)
    return multiprocessing.get_context("spawn").Pool(processes, initializer=signal.signal, initargs=ignore)


def finished(results: Results, cell: Cell) -> Row | None:
    """The row of a cell, None unless it has all its seeds."""
    row = begun(results, cell)
    return row if row is not None and set(cell.seeds) <= {run["seed"] for run in row["runs"]} else None


def begun(results: Results, cell: Cell) -> Row | None:
    """The row of a cell, also with some of its seeds or of its search; None if there is none, or of other settings."""
    row = results.find(dataset=cell.dataset, method=cell.method)
    return row if row is not None and row["candidates"] == plain(cell.candidates) else None


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
        return run_once(cell.dataset, settings, seed, data_root, device)

    chosen = 0
    if len(cell.candidates) > 1:
        for candidate in cell.candidates[len(row["search"]) :]:
            row["search"].append([train_on(candidate, seed) for seed in cell.seeds[: cell.search_seeds]])
            row = results.put(row)
        chosen = max(range(len(cell.candidates)), key=lambda index: _validation_score(row["search"][index]))
        if not row["runs"]:
            row = results.put(_with_runs(row, cell.candidates[chosen], row["search"][chosen]))
    for seed in cell.seeds:
        if seed not in {run["seed"] for run in row["runs"]}:
            run = train_on(cell.candidates[chosen], seed)
            row = results.put(_with_runs(row, cell.candidates[chosen], [*row["runs"], run]))
    return row


def _with_runs(row: Row, settings: Settings, runs: Sequence[Row]) -> Row:
    """The row of a cell with these runs, their mean and their spread."""
    accuracies = [run["test_accuracy"] for run in runs]
    spread = statistics.stdev(accuracies) if len(accuracies) > 1 else None
    return row | {"runs": runs, "settings": settings, "mean": statistics.mean(accuracies), "std": spread}


def _validation_score(runs: Sequence[Row]) -> tuple[float, float]:
    """Mean validation accuracy, then mean validation loss; a failed run counts as knowing nothing."""
    accuracy = statistics.mean(run["val_accuracy"] or 0.0 for run in runs)
    return accuracy, -statistics.mean(run["val_loss"] or 0.0 for run in runs)


def run_once(dataset: str, settings: Settings, seed: int, data_root: str | None, device: str = "cpu") -> Row:
    """Train once; accuracies of the weights that training hands over, and how it ended."""
    config = ModelConfig.from_settings(settings | {"device": device}).resolved()
    config, examples, classes = examples_of(dataset, data_root, config)
    examples = [Examples(part.X.to(device), part.y.to(device)) for part in examples]
    with compute_threads(config.threads):
        if not config.by_gradient:
            config = choose_weight_decay(examples[0], examples[1], classes, config, seed=seed)
        method: Callable[..., TrainingResult | None] = train_by_gradient if config.by_gradient else train
        result = method(examples[0], examples[1], classes, config, seed=seed)
        assert result is not None
        result.uninterrupted()
        accuracies = {}
        with torch.no_grad():
            for mask, part in zip(MASKS, examples, strict=True):
                logits = result.model(part.X)
                accuracies[mask.replace("_mask", "_accuracy")] = float((logits.argmax(1) == part.y).double().mean())
                if mask == "val_mask":
                    accuracies["val_loss"] = float(torch.nn.functional.cross_entropy(logits, part.y))
    return {
        "seed": seed,
        **{name: None if value != value else value for name, value in accuracies.items()},  # JSON has no NaN
        "status": result.status.name,
        "epochs": len(result.history),
        "seconds": round(result.seconds, 3),
        "device": device,
        "augment": config.augment,
        "hops": config.hops,
        "normalize": config.normalize,
        "weight_decay": config.weight_decay,
    }


#: The examples of the data set and augmentation that were asked for last.
_cache: dict[Any, tuple[ModelConfig, list[Examples], int]] = {}


def examples_of(dataset: str, data_root: str | None, config: ModelConfig) -> tuple[ModelConfig, list[Examples], int]:
    """Training, validation and test examples, augmented as ``config`` says; ``config`` with what was chosen for it."""
    names = ("augment", "hops", "teleport", "row_normalize", "normalize")
    key = (dataset, data_root, *(getattr(config, name) for name in names))
    if key not in _cache:
        _cache.clear()
        data = load_dataset(dataset, data_root)
        parts = [data[mask].nonzero().view(-1) for mask in MASKS]
        chosen = choose_augmentation(data, parts[0], parts[1], config)
        X = augmentation(chosen).fit(data, torch.cat(parts)).split([len(part) for part in parts])
        examples = [Examples(rows.clone(), data.y[part]) for rows, part in zip(X, parts, strict=True)]
        _cache[key] = (chosen, examples, int(data.y.max()) + 1)
    chosen, examples, classes = _cache[key]
    config = dataclasses.replace(config, augment=chosen.augment, hops=chosen.hops, normalize=chosen.normalize)
    return config, examples, classes
