"""Training in worker processes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pdadmm_g.config import ModelConfig
from pdadmm_g.graph.examples import Examples
from pdadmm_g.training.fit import fit
from pdadmm_g.training.prepare import Problem


def problem(**settings) -> Problem:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(24, 6, generator=generator)
    y = torch.softmax(torch.randn(24, 3, generator=generator), dim=1)
    config = ModelConfig(layers=3, stages=(3,), hidden=4, epochs=4, weight_decay=0.1, **settings).resolved()
    training = Examples(X, y, torch.linspace(0.5, 2, 24))
    return Problem(training, Examples(X[:9].clone(), torch.arange(9) % 3), np.arange(3), config)


@pytest.mark.timeout(120)
def test_weights_and_probabilities_reach_the_workers() -> None:
    one, two = (fit(problem(workers=workers), seed=0) for workers in (1, 2))
    for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True):
        assert torch.equal(a, b)
