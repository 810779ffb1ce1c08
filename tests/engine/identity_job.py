"""One worker of the bit-identity test: many problems in one process group, each dealt to several numbers of workers.

Run by ``run_workers`` with the folder of the job. Checks for every epoch that both copies of each u are equal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

sys.path.append(str(Path(__file__).parents[1]))  # a process of its own has not read conftest.py

from helpers.dealing import dealing_to
from pdadmm_g.config import ModelConfig
from pdadmm_g.engine.launch import join
from pdadmm_g.graph.examples import Examples
from pdadmm_g.training import train as training
from pdadmm_g.training.checkpoint import Checkpointing
from pdadmm_g.training.stage import Stage
from pdadmm_g.training.train import train

folder = Path(sys.argv[1])
torch.set_num_threads(1)
team = join("cpu", 60.0, watch=False)
data = load_file(str(folder / "data.safetensors"))
active = 0


def fingerprint(u: torch.Tensor) -> float:
    """Equal only for equal bits, as far as 52 of them can tell."""
    bits = u.contiguous().view(torch.int32).long().view(-1)
    return float((bits * torch.arange(1, len(bits) + 1)).sum() % 2**52)


def epoch_with_check(stage: Stage, number: int) -> torch.Tensor:
    measured = plain_epoch(stage, number)
    stage.worker.settle()
    ends = [stage.worker.boundaries[0], stage.worker.boundaries[-1]] if stage.layers else [None, None]
    duals.append([0.0 if boundary is None else fingerprint(boundary.u) for boundary in ends])
    return measured


def check_duals() -> None:
    """The copy of u to the right of each worker is the one to the left of the next, in every epoch."""
    assert len(duals) == 8
    everyone = team.concat(torch.tensor([duals], dtype=torch.float64), [1] * team.size)
    used = [min(active, 5)] * 4 + [active] * 4  # workers with layers, epoch by epoch
    for epoch, count in enumerate(used):
        assert torch.equal(everyone[: count - 1, epoch, 1], everyone[1:count, epoch, 0])
    duals.clear()


def training_rows(case: str) -> Examples:
    if case.endswith("-weighted"):
        return Examples(data["X_train"], data["t_train"], data["w_train"])
    return Examples(data["X_train"], data["y_train"])


duals: list[list[float]] = []
plain_epoch, Stage._epoch = Stage._epoch, epoch_with_check
training.deal_layers = dealing_to(lambda: active)

for name, settings in json.loads((folder / "cases.json").read_text()).items():
    for active in (2, 3, 10):
        first = team.rank == 0
        result = train(
            training_rows(name) if first else None,
            Examples(data["X_val"], data["y_val"]) if first else None,
            4, ModelConfig(**settings), seed=0, team=team,
            checkpointing=Checkpointing(folder / name / str(active), {}, every=8),
        )  # fmt: skip
        check_duals()
        if result is not None:
            print(json.dumps({"case": name, "active": active, "history": result.history}), flush=True)
team.leave()
