"""Every variable in turn gets a NaN or an infinity: many trainings, on one worker or in the group of the mesh job."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import torch

from pdadmm_g.config import ModelConfig
from pdadmm_g.engine.team import Team
from pdadmm_g.engine.worker import Worker
from pdadmm_g.graph.examples import Examples
from pdadmm_g.training.stage import Stage
from pdadmm_g.training.train import train

EPOCH = 3
#: Of a group of processes every third case is tried.
STEP = 3
SETTINGS = {
    "plain": {"solver": "exact", "weight_decay": 0.1},
    "linearized": {"solver": "linearized"},
    "quantized": {"solver": "linearized", "quantize": "pq", "bits": 4},
    "seldom": {"solver": "linearized", "eval_every": 2, "patience": None},
}
#: Variable and layer l of p_l ... u_l, and the worker that is hit; with three workers of two layers each.
PLACES = [
    ("p", 3, 1), ("p", 6, 2), ("W", 1, 0), ("W", 4, 1), ("b", 1, 0), ("b", 5, 2), ("z", 2, 0), ("z", 6, 2),
    ("q", 2, 0), ("q", 5, 2), ("u", 2, 0), ("u", 2, 1), ("u", 3, 1),
]  # fmt: skip


def cases() -> Iterator[tuple[str, str, int, int, float]]:
    for settings in SETTINGS:
        for variable, layer, rank in PLACES:
            yield settings, variable, layer, rank, math.nan
            if settings in ("plain", "quantized"):
                yield settings, variable, layer, rank, math.inf
                if variable == "b":  # ReLU hides this one from the network's outputs
                    yield settings, variable, layer, rank, -math.inf


def examples(nodes: int, seed: int) -> Examples:
    y = torch.arange(nodes) % 3
    noise = torch.randn(nodes, 10, generator=torch.Generator().manual_seed(seed))
    return Examples(2 * torch.eye(3, 10)[y] + noise, y)


def strike(worker: Worker, first: int, variable: str, layer: int, value: float) -> None:
    """Put ``value`` into one entry, in place, as a broken memory cell would."""
    index = layer - 1 - first
    if variable in ("W", "b", "z"):
        target = getattr(worker.layers[index], variable)
    else:
        boundary = worker.boundaries[index if variable == "p" else index + 1]
        target = getattr(boundary, variable)
    target.view(-1)[1] = value


def run(team: Team, case: tuple[str, str, int, int, float]) -> dict | None:
    """Train with that mishap before epoch ``EPOCH``; how it ended, on the first worker."""
    name, variable, layer, rank, value = case
    plain = Stage._epoch

    def struck(stage: Stage, epoch: int) -> torch.Tensor:
        if epoch == EPOCH and team.rank == min(rank, team.size - 1):
            strike(stage.worker, stage.layers.start, variable, layer, value)
        return plain(stage, epoch)

    config = ModelConfig(layers=6, stages=(6,), hidden=4, epochs=5, tolerance=0.0, **SETTINGS[name])
    first = team.rank == 0
    Stage._epoch = struck
    try:
        result = train(
            examples(24, 0) if first else None, examples(12, 1) if first else None, 3, config, seed=0, team=team
        )
    finally:
        Stage._epoch = plain
    if result is None:
        return None
    return {
        "case": f"{name} {variable}_{layer} = {value} at worker {rank}",
        "status": result.status.name,
        "message": result.message,
        "epochs": len(result.history),
        "finite": all(bool(parameter.isfinite().all()) for parameter in result.model.parameters()),
        "history": all(record["objective"] == record["objective"] for record in result.history[: EPOCH - 1]),
    }


def check(outcomes: list[dict], step: int = 1) -> None:
    assert len(outcomes) == len([*cases()][::step])
    for outcome in outcomes:
        assert outcome["status"] == "NON_FINITE", outcome
        assert re.fullmatch(rf"epoch {EPOCH}, layer \d, variable [pWbzuq]", outcome["message"]), outcome
        assert outcome["finite"], outcome
        assert outcome["epochs"] == 3, outcome
        assert outcome["history"], outcome
