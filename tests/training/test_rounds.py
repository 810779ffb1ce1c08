"""Learning from unlabelled nodes in rounds, and the rows of a round."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from helpers.communities import communities
from pdadmm_g import GAMLPClassifier
from pdadmm_g.admm.risks import Targets
from pdadmm_g.config import ModelConfig
from pdadmm_g.training.fit import fit
from pdadmm_g.training.prepare import prepare_graph
from pdadmm_g.training.rounds import (
    GAIN,
    ROUND_EPOCHS,
    Step,
    is_over,
    margin,
    sharpened,
    targets_of,
)

#: Nothing is left to the data.
SETTINGS = {
    "augment": "average", "hops": 2, "teleport": 0.2, "normalize": "centered", "components": 8, "weight_decay": 0.05,
    "sharpness": 3.0, "unlabelled": 40, "rounds": 3, "copies": 2, "layers": 4, "stages": (2, 4), "hidden": 6,
    "epochs": 6,
}  # fmt: skip


def config(**changes) -> ModelConfig:
    return ModelConfig(**SETTINGS | changes).resolved()


def trained(**changes):
    problem = prepare_graph(communities(), config(**changes), seed=0)
    return fit(problem, seed=0)


def record(epoch: int, accuracy: float | None, stage: int = 1, loss: float = 1.0, round: int = 1) -> dict:
    validated = {"val_accuracy": accuracy, "val_loss": None if accuracy is None else loss}
    return {"stage": stage, "epoch": epoch, "round": round, **validated}


def test_rounds_end_where_validation_got_no_better_for_as_long_as_patience() -> None:
    history = [record(epoch, 0.8 if epoch == 5 else 0.7) for epoch in range(1, 16)]
    assert is_over(Step(1, 2, 3), history, config(patience=10))
    assert not is_over(Step(1, 2, 3), history, config(patience=11))
    assert not is_over(Step(1, 2, 3), history, config(patience=None))
    # Lower loss at the same accuracy is better too.
    assert not is_over(Step(1, 2, 3), [*history, record(16, 0.8, loss=0.9)], config(patience=10))


def test_what_labelled_nodes_did_alone_does_not_use_up_the_patience_of_rounds() -> None:
    alone = [record(epoch, 0.8 if epoch == 1 else 0.7, round=0) for epoch in range(1, 30)]
    assert not is_over(Step(1, 2, 1), alone, config(patience=5))
    assert not is_over(Step(1, 2, 2), [*alone, *(record(epoch, 0.7) for epoch in range(30, 34))], config(patience=5))
    assert is_over(Step(1, 2, 2), [*alone, *(record(epoch, 0.7) for epoch in range(30, 35))], config(patience=5))


def test_without_validation_a_network_does_not_grow() -> None:
    history = [record(epoch, None) for epoch in range(1, 5)]
    assert not is_over(Step(1, 2, 2), history, config())
    assert is_over(Step(2, 4, 4), history, config(growth="gain"))
    assert not is_over(Step(2, 4, 4), history, config(growth="gain", unlabelled=0))


def test_a_depth_that_gained_too_little_is_the_last_one() -> None:
    history = [record(1, 0.7), record(2, 0.7 + 0.9 * GAIN, stage=2)]
    grown = config(growth="gain")
    assert margin(2, history, grown) == GAIN
    for settings in (grown, config(growth="gain", unlabelled=0)):
        assert is_over(Step(3, 8, 6), history, settings)
        assert is_over(Step(2, 4, 5), history, settings)
    assert not is_over(Step(3, 8, 6), history, config(growth="all", unlabelled=0))
    assert margin(2, history, config(growth="all")) == 0
    history.append(record(3, 0.7 + 1.1 * GAIN, stage=2))
    assert margin(2, history, grown) == 0
    assert not is_over(Step(3, 8, 6), history, grown)
    assert margin(1, history, grown) == 0


def test_records_say_which_round_they_are_of_and_how_the_copies_agree() -> None:
    history = trained().history
    assert [record["round"] for record in history][:7] == [0] * 6 + [1]
    assert {record["round"] for record in history} >= {0, 1, 2, 3, 4, 5}
    for line in history:
        assert line["stage"] == (1 if line["round"] <= 3 else 2)
        assert (line["agreement"] is None) is (line["round"] == 0)
        assert (line["changed"] is None) is (line["round"] <= 1)
        assert line["round"] == 0 or 0 < line["agreement"] <= 1
    assert ROUND_EPOCHS > 6  # the configuration has fewer


def test_the_first_targets_are_what_the_network_says_of_the_copies() -> None:
    """Against a plain computation: the network after labelled nodes alone is asked about the first copies."""
    problem = prepare_graph(communities(), config(rounds=1, layers=2, stages=(2,), patience=6), seed=0)
    alone = fit(dataclasses.replace(problem, config=dataclasses.replace(problem.config, unlabelled=0)), seed=0)
    assert problem.copies is not None
    taught = fit(problem, seed=0)
    first = next(record for record in taught.history if record["round"] == 1)
    pool = problem.copies.others
    order, noise = np.random.SeedSequence([0, 1]).generate_state(2, np.uint64).tolist()
    sample = torch.randperm(len(pool), generator=torch.Generator().manual_seed(order))[:40]
    X = problem.copies.rows(torch.cat([problem.copies.training, pool[sample]]), 2, noise)
    classes = torch.stack([alone.model(copy[9:]).argmax(1) for copy in X])
    # The network is trained in other coordinates where labelled nodes are alone for good, so bits may differ.
    assert first["agreement"] == pytest.approx(float((classes[0] == classes[1]).double().mean()), abs=0.05)


def test_nodes_without_labels_teach_something() -> None:
    """With two labels in each community and noisy features, accuracy on other nodes is higher with them."""
    data = communities(300, features=30, labels=2, noise=5.0, seed=3)
    settings = SETTINGS | {"layers": 2, "stages": (2,), "hidden": 16, "epochs": 60, "rounds": 6}
    alone, taught = (
        GAMLPClassifier(**settings | {"unlabelled": number}, random_state=0).fit(data).score(data)
        for number in (0, 200)
    )
    assert taught > alone + 0.02


def test_what_the_nodes_of_a_round_should_become_and_weigh() -> None:
    labelled = Targets(torch.tensor([1, 0]), torch.tensor([2.0, 1.0]))
    mean = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]])
    config = ModelConfig(sharpness=2.0, trust=4.0)
    t, weights = targets_of(labelled, mean, config)
    expected = [[0, 1], [1, 0], [0.5, 0.5], [0.81 / 0.82, 0.01 / 0.82], [0.04 / 0.68, 0.64 / 0.68]]
    assert torch.allclose(t, torch.tensor(expected))
    assert torch.allclose(weights, torch.tensor([2.0, 1.0, 4.0, 4.0, 4.0]))
    t, weights = targets_of(labelled, mean, dataclasses.replace(config, trust=0.0))
    assert torch.equal(weights, torch.tensor([2.0, 1.0]))
    assert len(t) == 2


@pytest.mark.parametrize("power", [200.0, 1e15])
def test_a_power_that_leaves_nothing_of_small_numbers_still_gives_targets(power: float) -> None:
    sharp = sharpened(torch.tensor([[0.5, 0.5], [0.6, 0.4], [1.0, 0.0]]), power)
    targets = sharp / sharp.sum(1, keepdim=True)
    assert torch.allclose(targets, torch.tensor([[0.5, 0.5], [1.0, 0.0], [1.0, 0.0]]))
