"""How many workers and shards, where that was left open: by the number of processes and the size of the training."""

from __future__ import annotations

import dataclasses

from ..config import ModelConfig
from ..engine.layout import layer_costs
from ..engine.team import Team
from ..errors import InputError
from ..utils import usable_cores
from .growth import widths

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
    chosen = dataclasses.replace(config, workers=workers, shards=shards)
    if workers * shards == 1:
        return chosen, ("one process: more should take no less time",)
    mesh = f"{workers} worker{'s' * (workers > 1)} x {shards} shard{'s' * (shards > 1)}"
    return chosen, (f"{mesh}, which should take less time than one process",)
