from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from helpers.blobs import TRAINING, VALIDATION, fit
from pdadmm_g import Status
from pdadmm_g.config import ModelConfig
from pdadmm_g.engine.worker import Worker
from pdadmm_g.graph.examples import Examples
from pdadmm_g.model import GAMLP
from pdadmm_g.training.fit import fit as fit_problem
from pdadmm_g.training.prepare import Problem
from pdadmm_g.training.train import train


def scores(model: GAMLP, rows: Examples = VALIDATION) -> tuple[float, float]:
    """Accuracy and loss of the network on these rows."""
    with torch.no_grad():
        logits = model(rows.X)
    accuracy = float((logits.argmax(1) == rows.y).double().mean())
    return accuracy, float(torch.nn.functional.cross_entropy(logits, rows.y))


def test_best_weights_are_restored() -> None:
    result = fit(patience=15)
    last_stage = [record for record in result.history if record["stage"] == 2]
    best = max((record["val_accuracy"], -record["val_loss"]) for record in last_stage)
    accuracy, loss = scores(result.model)
    # Not worse than any epoch of the stage; better where the stage before had already been better.
    assert (accuracy, -loss + 1e-6) >= best


def test_scoring_decides_which_weights_are_kept() -> None:
    """Here one by which the least certain network is the best."""

    def scorer(estimator: Any, X: Any, y: Any) -> float:
        assert len(estimator.predict(X)) == len(y) == len(VALIDATION.y)
        return -float(estimator.predict_proba(X).max(1).mean())

    settings = {"layers": 2, "stages": (2,), "epochs": 8, "scoring": scorer, "weight_decay": 0.1}
    problem = Problem(TRAINING, VALIDATION, np.arange(3), ModelConfig(**settings).resolved())
    result = fit_problem(problem, seed=0)
    reported = [record["val_score"] for record in result.history]
    with torch.no_grad():
        P = torch.softmax(result.model(VALIDATION.X), dim=1)
    kept = -float(P.amax(1).mean())
    assert kept >= max(reported) - 1e-6
    assert kept > reported[-1] + 1e-3


def test_a_score_that_is_not_defined_leaves_it_to_the_loss() -> None:
    one_class = Examples(VALIDATION.X, torch.zeros_like(VALIDATION.y))
    result = fit(one_class, scoring="roc_auc_ovr", layers=2, stages=(2,), epochs=6)
    assert {record["val_score"] for record in result.history} == {None}
    assert scores(result.model, one_class)[1] <= min(record["val_loss"] for record in result.history) + 1e-6


def test_evaluation_can_be_rare_and_patience_waits_for_it() -> None:
    history = fit(eval_every=4, epochs=10, patience=None).history
    evaluated = [record["epoch"] for record in history if record["val_accuracy"] is not None]
    assert evaluated == [4, 8, 10, 14, 18, 20]
    impatient = fit(eval_every=6, patience=2, epochs=12).history
    assert impatient[-1]["val_accuracy"] is not None
    assert impatient[-1]["train_accuracy"] > 0.9


def test_a_stage_that_only_harms_hands_over_what_it_started_with(monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = Worker.epoch

    def harmful(worker: Worker) -> object:
        moves = epoch(worker)
        if len(worker.layers) == 4:
            worker.layers[-1].W.neg_()
        return moves

    monkeypatch.setattr(Worker, "epoch", harmful)
    result = fit(epochs=10, patience=10)
    first, second = ([r["val_accuracy"] for r in result.history if r["stage"] == stage] for stage in (1, 2))
    assert second[0] < max(first)
    assert scores(result.model)[0] == pytest.approx(max(*first, *second))
    assert torch.equal(result.model.linears[1].weight, torch.eye(8))


@pytest.mark.parametrize("eval_every", [1, 50])
def test_status_converged(eval_every: int) -> None:
    """All epochs up to the next evaluation have run: they are in the history, and the last one is judged."""
    tolerance = 1e-2 if eval_every == 1 else 1e-1
    result = fit(tolerance=tolerance, epochs=2000, patience=2000, stages=(4,), eval_every=eval_every)
    assert result.status is Status.CONVERGED
    assert len(result.history) % eval_every == 0
    record = result.history[-1]
    assert record["primal_residual"] <= tolerance * record["output_norm"]
    assert record["dual_residual"] <= tolerance * record["rho"] * record["output_norm"]
    assert len(result.history) < 2000
    assert scores(result.model)[0] == max(record["val_accuracy"] or 0 for record in result.history)


def test_levels_that_cannot_move_are_not_convergence() -> None:
    """Everything rounds to zero and stands still; that is no reason to call it solved at once."""
    with pytest.warns(UserWarning, match="levels lose more than half"):
        result = fit(quantize="p", levels=(0.0, 1e6), stages=(4,), epochs=3, patience=None)
    assert result.status is Status.MAX_EPOCHS


@pytest.mark.parametrize("validation", [VALIDATION, None])
def test_status_diverged_keeps_the_best_model(monkeypatch: pytest.MonkeyPatch, validation: Examples | None) -> None:
    """No setting was found that diverges by itself, so u gets a push."""
    epoch = Worker.epoch

    def pushed(worker: Worker) -> object:
        if worker.epochs == 11:
            for boundary in worker.boundaries[1:-1]:
                boundary.u += 1e6
        return epoch(worker)

    monkeypatch.setattr(Worker, "epoch", pushed)
    result = fit(validation)
    assert result.status is Status.DIVERGED
    assert "has the largest share of the objective" in result.message
    assert len(result.history) == 12
    assert max(float(parameter.detach().abs().max()) for parameter in result.model.parameters()) < 1e3
    assert scores(result.model, TRAINING)[0] > 0.9


def test_non_finite_without_validation_falls_back_to_finite_weights() -> None:
    broken = Examples(TRAINING.X.clone(), TRAINING.y)
    broken.X[3, 1] = float("inf")
    result = train(broken, None, 3, ModelConfig(layers=3, hidden=8), seed=0)
    assert result.status is Status.NON_FINITE
    assert all(torch.isfinite(parameter).all() for parameter in result.model.parameters())


def test_papers_levels_warn_when_activations_are_small() -> None:
    faint = Examples(TRAINING.X / 100, TRAINING.y)
    with pytest.warns(UserWarning, match="output of layer 1: use calibrated ones"):
        train(faint, None, 3, ModelConfig(layers=3, epochs=1, quantize="p", levels="paper"), seed=0)
