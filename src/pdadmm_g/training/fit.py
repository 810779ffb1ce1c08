"""The door to training: a problem goes in, a trained network comes out, whoever computes it."""

from __future__ import annotations

from ..config import ModelConfig
from ..engine.team import Team
from ..errors import InputError
from ..metrics import shown
from ..model import GAMLP
from ..utils import compute_threads
from .checkpoint import Checkpointing
from .local_workers import train_in_workers
from .problem import Problem
from .records import OnEpoch, judged
from .train import TrainingResult, train


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
    units = problem.units
    start = units.taken_out(start) if units is not None and start is not None else start
    result = _fit(problem, seed=seed, on_epoch=on_epoch, checkpointing=checkpointing, team=team, start=start)
    if units is not None:
        result.model = units.taken_in(result.model)
    return result


def _fit(
    problem: Problem,
    *,
    seed: int,
    on_epoch: OnEpoch | None,
    checkpointing: Checkpointing | None,
    team: Team | None,
    start: GAMLP | None,
) -> TrainingResult:
    check_shards(problem.config, len(problem.training.y))
    problem = problem.decided(seed, team)
    config = problem.config
    if config.processes > 1 and team is None:
        return train_in_workers(problem, seed=seed, on_epoch=on_epoch, checkpointing=checkpointing, start=start)
    arguments = (problem.training, problem.validation, len(problem.classes), config)
    with compute_threads(config.threads):
        result = train(
            *arguments, seed=seed, on_epoch=on_epoch, checkpointing=checkpointing, team=team, copies=problem.copies,
            start=start,
        )  # fmt: skip
    assert result is not None
    return result


def kept(result: TrainingResult, config: ModelConfig) -> str:
    """Which network was kept, a sentence: that of the best epoch on validation up to its depth, or the last one."""
    depth = len(result.model.linears)
    assert config.stages is not None
    scored = [
        (score, record["epoch"])
        for record in result.history
        if (score := judged(record)) and config.stages[record["stage"] - 1] <= depth
    ]
    layers = f"kept: {depth} layer{'s' if depth > 1 else ''}"
    if config.patience is None or not scored:
        return f"{layers}, the last epoch"
    (best, _), epoch = max(scored, key=lambda each: each[0])
    return f"{layers}, epoch {epoch} of {len(result.history)} (validation {shown(best)})"


def check_shards(config: ModelConfig, rows: int) -> None:
    """Raise unless every shard gets one of so many training rows."""
    if config.shards is not None and config.shards > rows:
        raise InputError(f"shards = {config.shards}, but there are {rows} training rows: set shards to {rows} at most")


def take_part(config: ModelConfig, *, seed: int, team: Team, checkpointing: Checkpointing | None = None) -> None:
    """What every other member of a team does while the first one is in :func:`fit`."""
    with compute_threads(config.threads):
        train(None, None, 0, config, seed=seed, team=team, checkpointing=checkpointing)
