"""Growth from stage to stage, and what weights of rows and targets mean."""

from __future__ import annotations

import pytest
import torch

from helpers.blobs import TRAINING, blobs, fit
from pdadmm_g import Status
from pdadmm_g.admm.state import Weights
from pdadmm_g.config import ModelConfig
from pdadmm_g.engine.layout import Plan, widths
from pdadmm_g.engine.team import Team
from pdadmm_g.graph.examples import Examples
from pdadmm_g.training.train import initial_layer, redeal, train

# ------------------------------------------------------------------------------------------------------ growth


@pytest.mark.parametrize("solver", ["linearized", "exact"])
def test_more_features_than_nodes_cost_no_more_than_nodes(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coordinates in the row space of X take the very steps that the features do from the same function."""
    generator = torch.Generator().manual_seed(3)
    training, validation = (
        Examples(torch.randn(nodes, 40, generator=generator, dtype=torch.float64), torch.arange(nodes) % 3)
        for nodes in (12, 9)
    )
    config = ModelConfig(layers=4, hidden=8, epochs=20, patience=None, weight_decay=0.1, solver=solver)
    short = train(training, validation, 3, config, seed=0)
    projector = torch.linalg.qr(training.X.T)[0]
    projector = projector @ projector.T

    def projected(index: int, *args, **options) -> Weights:
        layer = initial_layer(index, *args, **options)
        return layer if index else Weights(layer.W @ projector, layer.b, layer.W0)

    monkeypatch.setattr("pdadmm_g.training.train.in_row_space", lambda own, others, _: (own, others, None))
    monkeypatch.setattr("pdadmm_g.training.train.initial_layer", projected)
    full = train(training, validation, 3, config, seed=0)
    assert short.model.widths == full.model.widths == (40, 8, 8, 8, 3)
    for name in ("objective", "primal_residual", "val_loss"):
        ours, theirs = ([record[name] for record in result.history] for result in (short, full))
        assert ours == pytest.approx(theirs, rel=1e-9)
    torch.testing.assert_close(short.model(validation.X), full.model(validation.X))


def test_strong_decay_holds_layers_at_their_anchors() -> None:
    model = fit(weight_decay=1e4, patience=None).model
    first, *inserted, last = [linear.weight.detach() for linear in model.linears]
    assert first.abs().max() < 1e-2
    assert last.abs().max() < 1e-2
    for W in inserted:
        torch.testing.assert_close(W, torch.eye(8), rtol=0, atol=1e-2)


# ---------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"solver": "linearized"},
        {"quantize": "p"},
        {"quantize": "pq", "bits": 6},
        {"quantize": "pq", "levels": (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)},
        {"activation": "leaky-relu"},
        {"activation": "tanh"},
        {"activation": "sigmoid"},
        {"risk": "squared-error"},
    ],
    ids=str,
)
def test_learns(settings: dict[str, object]) -> None:
    result = fit(epochs=40, **settings)
    with torch.no_grad():
        test = blobs(300, 2)
        accuracy = (result.model(test.X).argmax(1) == test.y).double().mean()
    assert accuracy > 0.9
    assert result.status in (Status.MAX_EPOCHS, Status.EARLY_STOPPED)


def test_global_random_state_is_left_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    fit()
    assert torch.equal(torch.rand(1), expected)


# ------------------------------------------------------------------------------------------------------ warnings


def test_penalty_below_the_bound_warns_once() -> None:
    with pytest.warns(UserWarning, match="theory guarantees") as caught:
        fit(rho=1e-3, nu=1e-2)
    assert len(caught) == 1


# ------------------------------------------------------------------------------------------- weights and probabilities


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
