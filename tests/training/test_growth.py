from __future__ import annotations

import torch

from helpers.blobs import TRAINING
from pdadmm_g.admm.state import Weights
from pdadmm_g.engine.layout import Plan
from pdadmm_g.engine.team import Team
from pdadmm_g.training.growth import initial_layer, redeal, widths


def forward(weights, x):
    for w in weights[:-1]:
        x = torch.relu(x @ w.W.T + w.b)
    return x @ weights[-1].W.T + weights[-1].b


def initial_weights(depth: int = 2) -> list[Weights]:
    shape = widths(6, 8, 3, depth)
    return [initial_layer(index, shape, depth, seed=0, like=TRAINING.X) for index in range(depth)]


def test_growing_does_not_change_the_function() -> None:
    weights = initial_weights()
    deep = redeal(Team(), weights, Plan((2,)), Plan((7,)), widths(6, 8, 3, 7), like=TRAINING.X)
    assert len(deep) == 7
    assert deep[0] is weights[0]
    assert deep[-1] is weights[-1]
    assert torch.equal(forward(deep, TRAINING.X), forward(weights, TRAINING.X))
    for layer in deep[1:-1]:
        assert torch.equal(layer.W, torch.eye(8))
        assert torch.equal(layer.W0, torch.eye(8))


def test_first_and_last_layer_decay_toward_zero() -> None:
    weights = initial_weights(depth=5)
    assert [bool(w.W0.any()) for w in weights] == [False, True, True, True, False]
    assert not torch.equal(weights[0].W[:3, :3], weights[-1].W[:3, :3])
