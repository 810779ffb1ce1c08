"""A cell of a table: one method on one data set, over several seeds, written to one JSON file and never run twice."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import multiprocessing
import signal
import statistics
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import torch

from ..config import GRAPH, ModelConfig, settings_where
from ..data.datasets import load_dataset
from ..data.examples import Examples
from ..errors import InputError
from ..files import write_atomically
from ..hardware import compute_threads, provenance
from ..model import GAMLP
from ..training.fit import fit
from ..training.prepare import Problem, prepare_graph

Settings = dict[str, Any]
Result = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """What to run. Of several candidate settings, the best on validation with the first seeds is taken for all."""

    method: str
    dataset: str
    candidates: tuple[Settings, ...]
    seeds: tuple[int, ...]
    #: Candidates are compared by their mean over so many of the seeds.
    search_seeds: int = 1

    @property
    def file(self) -> str:
        """Name of the file with the cell's results."""
        return f"{self.dataset}--{self.method.replace(' ', '-').replace(',', '')}.json"


def run_cells(
    cells: Sequence[Cell], folder: Path, *, data_root: str | None, processes: int, command: str, device: str = "cpu"
) -> Iterator[Result]:
    """Run what is not in ``folder`` yet, and yield the results of all cells as they become known.

    Each process takes one data set after the other, so that features are augmented once; or one cell after the other
    where there are more processes than data sets.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pending = []
    for cell in cells:
        known = load_cell(folder, cell)
        if known is not None and "mean" in known and set(cell.seeds) <= {run["seed"] for run in known["runs"]}:
            yield known
        else:
            pending.append(cell)
    groups = [list(group) for _, group in groupby(pending, key=lambda cell: cell.dataset)]
    if processes > len(groups):
        groups = [[cell] for cell in pending]
    work = functools.partial(_run_group, folder=folder, data_root=data_root, command=command, device=device)
    if processes == 1 or len(groups) <= 1:
        for group in groups:
            yield from work(group)
        return
    with process_pool(min(processes, len(groups))) as pool:
        for results in pool.imap_unordered(work, groups):
            yield from results


def process_pool(processes: int) -> Pool:
    """Fresh processes: forked ones would inherit this one's threads and locks.

    An interrupt is for the process that started them, which ends them all; a terminal sends it to each.
    """
    ignore = (signal.SIGINT, signal.SIG_IGN)
    return multiprocessing.get_context("spawn").Pool(processes, initializer=signal.signal, initargs=ignore)


def load_cell(folder: Path, cell: Cell) -> Result | None:
    """The results of a cell, also of some of its seeds; None if there are none, or of other settings."""
    known = load_json(folder / cell.file)
    return known if known is not None and known.get("candidates") == _plain(cell.candidates) else None


def load_json(path: Path) -> Result | None:
    """The content of a result file, None if there is no such file."""
    try:
        result: Result = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot read the results: {error}") from None
    return result


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _run_group(
    cells: Iterable[Cell], *, folder: Path, data_root: str | None, command: str, device: str
) -> list[Result]:
    warnings.filterwarnings("ignore", "rho = ")  # the paper's own settings are outside the theory's condition
    return [run_cell(cell, folder, data_root, command, device) for cell in cells]


def run_cell(cell: Cell, folder: Path, data_root: str | None, command: str, device: str = "cpu") -> Result:
    """Choose among the candidates, run the seeds that are missing and save after each.

    The command that completes a cell is the one that it names.
    """
    result = load_cell(folder, cell) or {
        "method": cell.method,
        "dataset": cell.dataset,
        "candidates": _plain(cell.candidates),
        "search": [],
        "runs": [],
    }
    result |= provenance(command)

    def train_on(settings: Settings, seed: int) -> Result:
        return run_once(cell.dataset, settings, seed, data_root, device)

    chosen = 0
    if len(cell.candidates) > 1:
        for index in range(len(result["search"]), len(cell.candidates)):
            runs = [train_on(cell.candidates[index], seed) for seed in cell.seeds[: cell.search_seeds]]
            result["search"].append(runs)
            save(folder / cell.file, result)
        chosen = max(range(len(cell.candidates)), key=lambda index: _validation_score(result["search"][index]))
        result["runs"] = result["runs"] or list(result["search"][chosen])
    result["settings"] = cell.candidates[chosen]
    for seed in cell.seeds:
        if seed not in {run["seed"] for run in result["runs"]}:
            result["runs"].append(train_on(cell.candidates[chosen], seed))
            save(folder / cell.file, result)
    accuracies = [run["test_accuracy"] for run in result["runs"]]
    result["mean"] = statistics.mean(accuracies)
    result["std"] = statistics.stdev(accuracies) if len(accuracies) > 1 else None
    save(folder / cell.file, result)
    return result


def _validation_score(runs: Sequence[Result]) -> tuple[float, float]:
    """Mean validation accuracy, then mean validation loss; a failed run counts as knowing nothing."""
    accuracy = statistics.mean(run["val_accuracy"] or 0.0 for run in runs)
    return accuracy, -statistics.mean(run["val_loss"] or 0.0 for run in runs)


def save(path: Path, result: Result) -> None:
    """Write a result file whole or not at all."""
    write_atomically(path, json.dumps(result, indent=1) + "\n")


def run_once(dataset: str, settings: Settings, seed: int, data_root: str | None, device: str = "cpu") -> Result:
    """Train once; accuracies of the weights that training hands over, and how it ended."""
    config = ModelConfig.from_settings(settings | {"device": device}).resolved()
    problem = problem_of(dataset, data_root, config).decided(seed)
    result = fit(problem, seed=seed).uninterrupted()
    config = problem.config
    with compute_threads(config.threads):
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
    }


#: The problem of the data set and augmentation that were asked for last.
_cache: dict[Any, Problem] = {}


def problem_of(dataset: str, data_root: str | None, config: ModelConfig) -> Problem:
    """The problem of a data set with its test nodes, augmented as ``config`` says or as it suits the data."""
    names = (*settings_where(config, group=GRAPH), "device")
    key = (dataset, data_root, *(getattr(config, name) for name in names))
    if key not in _cache:
        _cache.clear()
        _cache[key] = prepare_graph(load_dataset(dataset, data_root), config, test=True)
    known = _cache[key]
    chosen = {name: getattr(known.config, name) for name in names}
    return dataclasses.replace(known, config=dataclasses.replace(config, **chosen))


@torch.no_grad()
def accuracy(model: GAMLP, examples: Examples | None) -> float:
    """Share of the rows whose label the model finds; NaN without rows."""
    return float((model(examples.X).argmax(1) == examples.y).double().mean()) if examples else math.nan


@torch.no_grad()
def _loss(model: GAMLP, examples: Examples | None) -> float:
    return float(torch.nn.functional.cross_entropy(model(examples.X), examples.y)) if examples else math.nan
