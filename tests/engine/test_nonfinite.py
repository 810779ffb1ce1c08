"""NaN or infinity in any variable at any worker is caught in the same epoch and named, and the best model is kept.

On three workers: test_mesh.
"""

from __future__ import annotations

import pytest
import torch

from helpers import poison
from pdadmm_g.config import ModelConfig
from pdadmm_g.engine.team import Team
from pdadmm_g.engine.worker import Worker
from pdadmm_g.graph.examples import Examples
from pdadmm_g.status import Status
from pdadmm_g.training.train import train


def test_one_worker() -> None:
    poison.check([poison.run(Team(), case) for case in poison.cases()])


def test_divergence_names_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Worker.epoch

    def pushed(worker: Worker) -> object:
        if worker.epochs == 4:
            worker.boundaries[2].u.add_(1e6)
        return plain(worker)

    monkeypatch.setattr(Worker, "epoch", pushed)
    data = Examples(torch.eye(6).repeat(4, 1), torch.arange(24) % 6)
    result = train(data, None, 6, ModelConfig(layers=4, stages=(4,), hidden=8, epochs=9), seed=0)
    assert result.status is Status.DIVERGED
    assert result.message.startswith("epoch 5, layer 2 has the largest share of the objective, ")
