from __future__ import annotations

import pytest
import torch

from pdadmm_g.config import ModelConfig
from pdadmm_g.data.examples import Examples
from pdadmm_g.engine.worker import Worker
from pdadmm_g.training import choose
from pdadmm_g.training.choose import choose_weight_decay
from pdadmm_g.training.train import train


@pytest.fixture(autouse=True)
def two_weight_decays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the grid, for speed."""
    monkeypatch.setattr(choose, "WEIGHT_DECAYS", (0.1, 1.0))


def test_weight_decay_comes_from_the_grid_and_scales_with_the_nodes() -> None:
    generator = torch.Generator().manual_seed(0)

    def examples(nodes: int) -> Examples:
        y = torch.arange(nodes) % 2
        return Examples(torch.eye(2, 4)[y] + torch.randn(nodes, 4, generator=generator), y)

    config = ModelConfig(layers=3, hidden=4).resolved()
    few = choose_weight_decay(examples(50), examples(50), 2, config, seed=0)[0].weight_decay
    assert few in choose.WEIGHT_DECAYS
    many = choose_weight_decay(examples(4000), examples(50), 2, config, seed=0)[0].weight_decay
    assert many is not None
    assert many / 4 in choose.WEIGHT_DECAYS


def test_runs_at_the_same_time_are_as_they_are_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    examples, runs, found = Examples(X, y), choose.short_runs, []
    monkeypatch.setattr(choose, "short_runs", lambda *given: found.append(runs(*given)) or found[-1])
    for cores in ({0}, {0, 1}):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: cores)
        choose_weight_decay(examples, examples, 2, ModelConfig(layers=2, hidden=4).resolved(), seed=0)
    assert found[0] == found[1]
    assert len(found[0]) == len(choose.WEIGHT_DECAYS)


@pytest.mark.parametrize(("stages", "pilot"), [(None, 2), ((5,), 5)])
def test_weight_decay_is_tried_on_the_first_stage(monkeypatch: pytest.MonkeyPatch, stages, pilot: int) -> None:
    depths = set()

    def recorded(*arguments, **keywords):
        depths.add(arguments[3].stages)
        return train(*arguments, **keywords)

    monkeypatch.setattr(choose, "train", recorded)
    X, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 2
    config = ModelConfig(layers=5, stages=stages, hidden=4).resolved()
    choose_weight_decay(Examples(X, y), Examples(X, y), 2, config, seed=0)
    assert depths == {(pilot,)}


def test_an_interrupt_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(worker: Worker) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "epoch", interrupted)
    X, y = torch.randn(20, 3), torch.arange(20) % 2
    with pytest.raises(KeyboardInterrupt):
        choose_weight_decay(Examples(X, y), Examples(X, y), 2, ModelConfig(layers=2).resolved(), seed=0)
