from __future__ import annotations

import dataclasses

import pytest
import torch

from pdadmm_g.admm.targets import Targets
from pdadmm_g.config import ModelConfig
from pdadmm_g.training.round_rows import examples_of, sharpened


def test_the_rows_of_a_round_are_copies_with_sharpened_means() -> None:
    X = torch.randn(3, 5, 4)  # three copies of two labelled nodes and three others
    labelled = Targets(torch.tensor([1, 0]), torch.tensor([2.0, 1.0]))
    mean = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]])
    config = ModelConfig(sharpness=2.0, trust=4.0)
    rows = examples_of(X, labelled, mean, config)
    assert torch.equal(rows.X, torch.cat([X[0], X[1], X[2]]))
    expected = [[0, 1], [1, 0], [0.5, 0.5], [0.81 / 0.82, 0.01 / 0.82], [0.04 / 0.68, 0.64 / 0.68]]
    assert torch.allclose(rows.y, torch.tensor(expected * 3))
    assert torch.allclose(rows.weights, torch.tensor([2 / 3, 1 / 3, 4 / 3, 4 / 3, 4 / 3] * 3))
    alone = examples_of(X, labelled, mean, dataclasses.replace(config, trust=0.0))
    assert torch.equal(alone.X, torch.cat([X[0, :2], X[1, :2], X[2, :2]]))
    assert torch.allclose(alone.weights, torch.tensor([2 / 3, 1 / 3] * 3))


@pytest.mark.parametrize("power", [200.0, 1e15])
def test_a_power_that_leaves_nothing_of_small_numbers_still_gives_targets(power: float) -> None:
    sharp = sharpened(torch.tensor([[0.5, 0.5], [0.6, 0.4], [1.0, 0.0]]), power)
    targets = sharp / sharp.sum(1, keepdim=True)
    assert torch.allclose(targets, torch.tensor([[0.5, 0.5], [1.0, 0.0], [1.0, 0.0]]))
