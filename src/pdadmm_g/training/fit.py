"""The door to training: a problem goes in, a trained network comes out, whoever computes it.

Worker processes on this machine get it in the folder of a job, in files that hold nothing but arrays and JSON.
"""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from ..config import ModelConfig
from ..engine.launch import run_processes, tell
from ..engine.layout import Plan
from ..engine.team import Team
from ..engine.watchdog import WorkerLostError
from ..errors import InputError
from ..graph.augmentation import Copies
from ..graph.candidates import augmentation
from ..graph.examples import Examples
from ..model import GAMLP
from ..status import Status
from ..utils import compute_threads, temporary_folder
from .checkpoint import Checkpointing, write_tensors
from .prepare import Problem, rescaled
from .records import OnEpoch, Record
from .train import TrainingResult, train

#: The files of a job: the rows, the network to start from, if there is one, and what comes of it.
ROWS, START, RESULT = "data.safetensors", "start.safetensors", "result.safetensors"
#: How the names of what copies are made of begin.
COPIES = "copies_"


def fit(
    problem: Problem,
    *,
    seed: int,
    on_epoch: OnEpoch | None = None,
    checkpointing: Checkpointing | None = None,
    team: Team | None = None,
    start: GAMLP | None = None,
) -> TrainingResult:
    """Train in this process, in worker processes of its own, or as the first member of a ``team``.

    ``start`` is the network to start from. Where numbers are learned, it and the result are in the units of the data.
    """
    ready = problem.ready
    if ready is not None and (problem.validation is None or ready.members > 1):
        # The best model that was found while choosing is kept: no network is ahead by more than luck.
        status = Status.LINEAR if ready.members == 1 else Status.MEAN
        return TrainingResult(ready.model, [], status, Plan((len(ready.model.linears),)))
    called(team, True)
    units = problem.units
    if units is not None and start is not None:
        start = rescaled(start, 1 / units.deviation, -units.mean / units.deviation)
    problem = problem.decided(team)
    config = problem.config
    if config.processes > 1 and team is None:
        history = checkpointing.history if checkpointing else []
        with temporary_folder() as folder:
            _write(problem, folder)
            if start is not None:
                start.save(folder / START)
            run_processes(
                fit_as_worker, folder, config.processes, device=config.device, timeout=config.timeout,
                shards=config.shards or 1, on_note=functools.partial(heard, history=history, on_epoch=on_epoch),
                threads=config.threads, settings=vars(config), seed=seed, classes=len(problem.classes),
                checkpointing=checkpointing.for_others() if checkpointing else None,
            )  # fmt: skip
            model, extra, _ = GAMLP.load(folder / RESULT)
        plan = Plan(tuple(extra["plan"]))
        result: TrainingResult | None = TrainingResult(model, history, Status[extra["status"]], plan, extra["message"])
    else:
        with compute_threads(config.threads):
            result = train(
                problem.training, problem.validation, len(problem.classes), config, seed=seed, on_epoch=on_epoch,
                checkpointing=checkpointing, team=team, copies=problem.copies, start=start,
            )  # fmt: skip
    assert result is not None
    if units is not None:
        result.model = rescaled(result.model, units.deviation, units.mean)
    return result


def called(team: Team | None, is_left: bool = False) -> bool:
    """Is a network to be trained, as the first member of a team says? All of it call this."""
    return is_left if team is None else bool(team.broadcast(torch.tensor([is_left]), 0))


def assist(team: Team, config: ModelConfig, seed: int, checkpointing: Checkpointing | None) -> None:
    """Train as long as the members of a team that have data call for it, without any of one's own."""
    with compute_threads(config.threads):
        while called(team):
            train(None, None, 0, config, seed=seed, team=team, checkpointing=checkpointing)
            checkpointing = None  # training again on all labels has none


def _write(problem: Problem, folder: Path) -> None:
    """Leave the rows of a problem in a folder, for the process that brings them."""
    tensors = {
        f"{name}_{part}": rows
        for part, examples in (("train", problem.training), ("val", problem.validation))
        for name, rows in (examples._asdict().items() if examples else ())
        if rows is not None
    }
    if problem.copies is not None:
        tensors |= {f"{COPIES}{name}": tensor for name, tensor in problem.copies.tensors().items()}
    write_tensors(folder / ROWS, tensors, "; TMPDIR names the folder to use instead")


def fit_as_worker(
    team: Team,
    folder: Path,
    *,
    settings: dict[str, Any],
    seed: int,
    classes: int,
    checkpointing: dict[str, Any] | None,
) -> None:
    """Train as one of several processes: the first one brings the data and leaves the result in the folder."""
    config = ModelConfig(**settings)
    joined = Checkpointing.joined(**checkpointing) if checkpointing else None
    if team.rank > 0:
        assist(team, config, seed, joined)
        return
    rows = load_file(str(folder / ROWS), device=config.device)
    (folder / ROWS).unlink()  # nobody else reads them, and they would stay if the one that wrote them were killed
    training, validation = (
        Examples(*(rows.get(f"{name}_{part}") for name in Examples._fields)) if f"X_{part}" in rows else None
        for part in ("train", "val")
    )
    assert training is not None
    copies, known = None, {name.removeprefix(COPIES): rows[name] for name in rows if name.startswith(COPIES)}
    if known:
        drops = (config.drop, config.drop_entries or 0.0)
        copies = Copies.of_tensors(known, augmentation(config), *drops, training.targets)
    start = GAMLP.load(folder / START)[0] if (folder / START).exists() else None
    problem = Problem(training, validation, np.arange(classes), config, copies=copies)
    result = fit(problem, seed=seed, on_epoch=tell_epoch, checkpointing=joined, team=team, start=start)
    called(team)
    extra = {"status": result.status.name, "plan": result.plan.counts, "message": result.message}
    result.model.cpu().save(folder / RESULT, extra)


def heard(_: int, note: dict[str, Any], history: list[Record], on_epoch: OnEpoch | None) -> object:
    """Take in what a process tells the one that started it."""
    if "epoch" in note and (not history or note["epoch"]["epoch"] > history[-1]["epoch"]):
        history.append(note["epoch"])  # after an interrupt it is told again
        return None if on_epoch is None else on_epoch(note["epoch"])
    if "error" in note:
        raise InputError(note["error"])
    if "lost" in note:
        raise WorkerLostError(note["lost"])
    if "interrupted" in note:
        raise KeyboardInterrupt
    if "warning" in note:
        warnings.warn(note["warning"], stacklevel=2)
    return None


def tell_epoch(record: Record) -> None:
    """Tell the process that started this one of an epoch."""
    tell({"epoch": record})
