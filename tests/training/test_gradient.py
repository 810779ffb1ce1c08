from __future__ import annotations

import itertools

import pytest
import torch
from torch_geometric.data import Data

from pdadmm_g import GAMLPClassifier
from pdadmm_g.config import ModelConfig
from pdadmm_g.data.examples import Examples
from pdadmm_g.errors import InputError
from pdadmm_g.model import GAMLP
from pdadmm_g.status import Status
from pdadmm_g.training.gradient import _grown, train_by_gradient
from pdadmm_g.training.train import TrainingResult


def blobs(nodes: int, seed: int) -> Examples:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % 3
    return Examples(2 * torch.eye(3, 6)[y] + 0.4 * torch.randn(nodes, 6, generator=generator), y)


TRAINING, VALIDATION = blobs(60, 0), blobs(90, 1)


@pytest.mark.parametrize(
    ("method", "rate"),
    [("gd", 0.3), ("adadelta", 1.0), ("adagrad", 0.05), ("adam", 0.01), ("sgc", 0.1), ("s2gc", 0.1), ("sign", 0.05)],
)
def test_every_method_learns(method: str, rate: float) -> None:
    config = ModelConfig(method=method, layers=3, hidden=16, epochs=80, learning_rate=rate)
    result = train_by_gradient(TRAINING, VALIDATION, 3, config, seed=0)
    with torch.no_grad():
        assert (result.model(VALIDATION.X).argmax(1) == VALIDATION.y).double().mean() > 0.95
    assert len(result.model.linears) == {"sgc": 1, "s2gc": 1, "sign": 2}.get(method, 3)
    assert not result.status.is_failure


def test_one_step_of_gradient_descent_by_hand() -> None:
    config = ModelConfig(
        method="gd", layers=2, stages=(2,), hidden=4, epochs=1, learning_rate=0.5, weight_decay=6.0, patience=None
    )
    start = GAMLP([6, 4, 3])
    expected = GAMLP([6, 4, 3])
    expected.load_state_dict(start.state_dict())
    torch.nn.functional.cross_entropy(expected(TRAINING.X), TRAINING.y).backward()
    result = train_by_gradient(TRAINING, None, 3, config, seed=0, start=start)
    for before, after in zip(expected.parameters(), result.model.parameters(), strict=True):
        # 6 is spread over 60 nodes: the mean loss gets 0.1 / 2 |W|^2.
        torch.testing.assert_close(after, before - 0.5 * (before.grad + 0.1 * before))


def test_the_best_epoch_on_validation_is_kept() -> None:
    config = ModelConfig(method="adam", layers=2, hidden=8, epochs=40, learning_rate=0.05, patience=40)
    result = train_by_gradient(TRAINING, VALIDATION, 3, config, seed=0)
    best = max((record["val_accuracy"], -record["val_loss"]) for record in result.history)
    with torch.no_grad():
        logits = result.model(VALIDATION.X)
    assert float((logits.argmax(1) == VALIDATION.y).double().mean()) == best[0]
    assert float(torch.nn.functional.cross_entropy(logits, VALIDATION.y)) == pytest.approx(-best[1], rel=1e-5)


def test_growing_keeps_the_function() -> None:
    model = GAMLP([6, 8, 3])
    deep = _grown(model, 6)
    assert len(deep.linears) == 6
    with torch.no_grad():
        torch.testing.assert_close(deep(TRAINING.X), model(TRAINING.X))


def test_an_explosion_is_not_hidden() -> None:
    config = ModelConfig(method="gd", layers=2, hidden=8, epochs=50, learning_rate=1e12)
    result = train_by_gradient(TRAINING, VALIDATION, 3, config, seed=0)
    assert result.status is Status.NON_FINITE
    assert all(torch.isfinite(parameter).all() for parameter in result.model.parameters())


def blown_up(at: int, epochs: int, **settings) -> TrainingResult:
    """Gradient descent whose weights are infinite from the step of epoch ``at`` on."""
    steps = itertools.count(1)

    class Bomb(torch.optim.SGD):
        def step(self):
            super().step()
            if next(steps) >= at:
                for parameter in self.param_groups[0]["params"]:
                    parameter.data.fill_(torch.inf)

    fixed = {"method": "gd", "layers": 2, "stages": (2,), "hidden": 8, "learning_rate": 0.1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim, "SGD", Bomb)
        config = ModelConfig(epochs=epochs, **fixed | settings)
        return train_by_gradient(TRAINING, VALIDATION, 3, config, seed=0)


@pytest.mark.parametrize(("eval_every", "noticed"), [(1, 5), (3, 6), (100, 6)])
def test_a_failure_keeps_the_last_sound_weights(eval_every: int, noticed: int) -> None:
    """Not those that the stage began with. What a step made is known when it is measured, or used by the next one."""
    result = blown_up(at=5, epochs=50, patience=None, eval_every=eval_every)
    assert (result.status, len(result.history)) == (Status.NON_FINITE, noticed)
    assert result.message == f"epoch {noticed}, the loss"
    expected = blown_up(at=99, epochs=4, patience=None)
    for kept, sound in zip(result.model.parameters(), expected.model.parameters(), strict=True):
        assert torch.equal(kept, sound)


@pytest.mark.parametrize("patience", [None, 10])
def test_a_failure_in_the_last_epoch_is_seen(patience: int | None) -> None:
    result = blown_up(at=1, epochs=1, patience=patience)
    assert result.status is Status.NON_FINITE
    assert all(torch.isfinite(parameter).all() for parameter in result.model.parameters())


def test_from_the_estimator(tiny_graph: Data) -> None:
    clf = GAMLPClassifier(method="adam", layers=3, hidden=8, epochs=100, learning_rate=0.01, random_state=0)
    assert clf.fit(tiny_graph).score(tiny_graph) > 0.9
    assert clf.history_[0]["stage"] == 1
    assert clf.history_[-1]["stage"] == 2


def test_s2gc_is_sgc_on_the_average_of_powers(tiny_graph: Data) -> None:
    settings = {"epochs": 20, "normalize": "unit", "random_state": 0}
    s2gc = GAMLPClassifier(method="s2gc", **settings).fit(tiny_graph)
    sgc = GAMLPClassifier(method="sgc", augment="average", **settings).fit(tiny_graph)
    assert (s2gc.config_.augment, s2gc.config_.hops) == ("average", 16)
    for a, b in zip(s2gc.model_.parameters(), sgc.model_.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("settings", "culprit"),
    [
        ({"method": "adam", "quantize": "p"}, "quantize has no effect with method adam"),
        ({"method": "sgc", "workers": 2}, "workers has no effect with method sgc"),
        ({"method": "gcn", "workers": 2}, "workers has no effect with method gcn"),
        ({"learning_rate": 0.1}, "learning_rate has no effect with pdadmm-g"),
        ({"method": "adam", "learning_rate": 0.0}, "learning_rate must be"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, object], culprit: str) -> None:
    with pytest.raises(InputError, match=culprit):
        ModelConfig(**settings)
