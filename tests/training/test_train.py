from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from pdadmm_g import Status
from pdadmm_g.admm.state import Weights
from pdadmm_g.config import ModelConfig
from pdadmm_g.data.examples import Examples
from pdadmm_g.engine.plan import Plan
from pdadmm_g.engine.team import Team
from pdadmm_g.engine.worker import Worker
from pdadmm_g.training import records
from pdadmm_g.training.growth import initial_layer, redeal, widths
from pdadmm_g.training.penalties import PENALTY_SCHEDULES, BalancePenalty, StallPenalty
from pdadmm_g.training.train import train

KEYS = {
    "stage", "stage_epoch", "epoch", "objective", "risk", "primal_residual", "dual_residual", "output_norm", "descent",
    "c_k", "rho", "train_loss", "train_accuracy", "val_loss", "val_accuracy", "seconds", "bytes_sent", "workers",
}  # fmt: skip


def blobs(nodes: int, seed: int, spread: float = 0.5) -> Examples:
    """Three Gaussian clouds in six dimensions."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % 3
    centres = 2 * torch.eye(3, 6)
    return Examples(centres[y] + spread * torch.randn(nodes, 6, generator=generator), y)


TRAINING, VALIDATION = blobs(60, 0), blobs(90, 1)


def fit(validation: Examples | None = VALIDATION, on_epoch=None, seed: int = 0, **settings):
    settings = {
        "layers": 4,
        "stages": (2, 4),
        "hidden": 8,
        "epochs": 15,
        "nu": 1e-2,
        "rho": 5e-2,
        "weight_decay": 1e-3,
    } | settings
    return train(TRAINING, validation, 3, ModelConfig(**settings), seed=seed, on_epoch=on_epoch)


def forward(weights, x):
    for w in weights[:-1]:
        x = torch.relu(x @ w.W.T + w.b)
    return x @ weights[-1].W.T + weights[-1].b


# ------------------------------------------------------------------------------------------------------ growth


def initial_weights(depth: int = 2) -> list[Weights]:
    shape = widths(6, 8, 3, depth)
    return [initial_layer(index, shape, depth, seed=0, like=TRAINING.X) for index in range(depth)]


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

    monkeypatch.setattr("pdadmm_g.training.train.in_row_space", lambda *examples: (*examples, None))
    monkeypatch.setattr("pdadmm_g.training.train.initial_layer", projected)
    full = train(training, validation, 3, config, seed=0)
    assert short.model.widths == full.model.widths == (40, 8, 8, 8, 3)
    for name in ("objective", "primal_residual", "val_loss"):
        ours, theirs = ([record[name] for record in result.history] for result in (short, full))
        assert ours == pytest.approx(theirs, rel=1e-9)
    torch.testing.assert_close(short.model(validation.X), full.model(validation.X))


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
        {"penalty": "stall"},
        {"penalty": "balance"},
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


def test_history_has_the_documented_keys() -> None:
    history = fit().history
    assert all(set(record) == KEYS for record in history)
    assert [record["epoch"] for record in history] == list(range(1, len(history) + 1))
    assert {record["stage"] for record in history} == {1, 2}
    for record in history:
        assert record["seconds"] > 0
        assert math.isfinite(record["objective"])
        assert 0 <= record["train_accuracy"] <= 1
    c = [record["c_k"] for record in history if record["stage"] == 1]
    assert c == sorted(c, reverse=True)


def test_seconds_add_up() -> None:
    result = fit()
    assert result.seconds == pytest.approx(sum(record["seconds"] for record in result.history))


def test_same_seed_same_weights() -> None:
    a, b, c = fit(), fit(), fit(seed=1)
    pairs = list(zip(a.model.parameters(), b.model.parameters(), strict=True))
    assert all(torch.equal(x, y) for x, y in pairs)
    assert any(not torch.equal(x, y) for x, y in zip(a.model.parameters(), c.model.parameters(), strict=True))


def test_global_random_state_is_left_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    fit()
    assert torch.equal(torch.rand(1), expected)


def test_reported_validation_accuracy_is_the_networks_own() -> None:
    result = fit(patience=None)
    with torch.no_grad():
        logits = result.model(VALIDATION.X)
    assert result.history[-1]["val_accuracy"] == pytest.approx((logits.argmax(1) == VALIDATION.y).double().mean())
    loss = torch.nn.functional.cross_entropy(logits, VALIDATION.y)
    assert result.history[-1]["val_loss"] == pytest.approx(float(loss), rel=1e-5)


def test_best_weights_are_restored() -> None:
    result = fit(patience=15)
    last_stage = [record for record in result.history if record["stage"] == 2]
    best = max((record["val_accuracy"], -record["val_loss"]) for record in last_stage)
    with torch.no_grad():
        logits = result.model(VALIDATION.X)
    accuracy = float((logits.argmax(1) == VALIDATION.y).double().mean())
    loss = float(torch.nn.functional.cross_entropy(logits, VALIDATION.y))
    # Not worse than any epoch of the stage; better where the stage before had already been better.
    assert (accuracy, -loss + 1e-6) >= best


def test_evaluation_can_be_rare() -> None:
    history = fit(eval_every=4, epochs=10, patience=None).history
    evaluated = [record["epoch"] for record in history if record["val_accuracy"] is not None]
    assert evaluated == [4, 8, 10, 14, 18, 20]


def test_patience_waits_for_evaluations() -> None:
    result = fit(eval_every=6, patience=2, epochs=12)
    evaluated = [entry["epoch"] for entry in result.history if entry["val_accuracy"] is not None]
    assert len(evaluated) >= 2
    assert result.history[-1]["epoch"] == evaluated[-1]
    assert result.history[-1]["train_accuracy"] > 0.9


def test_without_validation_all_epochs_are_used() -> None:
    result = fit(validation=None, patience=2)
    assert len(result.history) == 30
    assert result.history[-1]["val_accuracy"] is None


def test_seconds_of_an_epoch_leave_evaluation_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which an epoch takes one second and a forward pass a thousand."""
    clock, epoch, forward_pass = [0.0], Worker.epoch, Worker.forward

    def timed(step, seconds: float):
        def run(*arguments):
            clock[0] += seconds
            return step(*arguments)

        return run

    monkeypatch.setattr(Worker, "epoch", timed(epoch, 1.0))
    monkeypatch.setattr(Worker, "forward", timed(forward_pass, 1000.0))
    monkeypatch.setattr("pdadmm_g.training.stage.time", SimpleNamespace(perf_counter=lambda: clock[0]))
    assert [record["seconds"] for record in fit(patience=None).history] == [1.0] * 30
    assert clock[0] > 1000


def test_residuals_are_those_of_boyd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Primal: |p - q|. Dual: rho |q_new - q_old|. Both over all boundaries."""
    epoch, expected = Worker.epoch, []

    def watched(worker: Worker) -> object:
        inner = worker.boundaries[1:-1]
        before = [boundary.q.clone() for boundary in inner]
        moves = epoch(worker)
        dual = torch.cat([(boundary.q - old).flatten() for boundary, old in zip(inner, before, strict=True)])
        primal = torch.cat([(boundary.p - boundary.q).flatten() for boundary in inner])
        expected.append((float(primal.norm()), worker.rho * float(dual.norm())))
        return moves

    monkeypatch.setattr(Worker, "epoch", watched)
    history = fit(stages=(4,), patience=None).history
    assert max(dual for _, dual in expected) > 0
    for entry, (primal, dual) in zip(history, expected, strict=True):
        assert entry["primal_residual"] == pytest.approx(primal, rel=1e-4)
        assert entry["dual_residual"] == pytest.approx(dual, rel=1e-4)


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
    with torch.no_grad():
        accuracy = float((result.model(VALIDATION.X).argmax(1) == VALIDATION.y).double().mean())
    assert accuracy == pytest.approx(max(*first, *second))
    assert torch.equal(result.model.linears[1].weight, torch.eye(8))


# -------------------------------------------------------------------------------------------------------- status


@pytest.mark.parametrize(
    ("change", "converged"),
    [({}, True), ({"primal_residual": 3.0}, False), ({"dual_residual": 0.3}, False), ({"descent": 9.0}, False)],
    ids=["all small", "primal large", "dual large", "descent large"],
)
def test_convergence_needs_all_three(change: dict[str, float], converged: bool) -> None:
    """Limits at tolerance 0.01: 2 for the primal residual, 0.2 for the dual one, 8 for the descent."""
    small = {"primal_residual": 1.9, "dual_residual": 0.19, "descent": 7.9}
    scales = {"output_norm": 200.0, "rho": 0.1, "objective": -800.0}
    assert records.converged({**small, **scales, **change}, tolerance=0.01) is converged


def test_every_status_has_a_sentence_of_advice() -> None:
    assert {status.name for status in Status} == {
        "CONVERGED", "MAX_EPOCHS", "EARLY_STOPPED", "DIVERGED", "NON_FINITE", "INTERRUPTED", "PEER_LOST",
    }  # fmt: skip
    for status in Status:
        assert len(status.advice) > 20
        assert status.advice.endswith(".")


def test_status_max_epochs() -> None:
    assert fit(patience=None).status is Status.MAX_EPOCHS


def test_status_early_stopped() -> None:
    result = fit(patience=3, epochs=200)
    assert result.status is Status.EARLY_STOPPED
    assert len(result.history) < 400


def test_convergence_between_two_evaluations_keeps_what_was_trained() -> None:
    """All epochs up to the next evaluation have run: they are in the history, and the last one is judged."""
    result = fit(tolerance=1e-1, epochs=2000, patience=2000, stages=(4,), eval_every=50)
    assert result.status is Status.CONVERGED
    assert len(result.history) % 50 == 0
    assert result.history[-1]["val_accuracy"] is not None
    with torch.no_grad():
        accuracy = float((result.model(VALIDATION.X).argmax(1) == VALIDATION.y).double().mean())
    assert accuracy == max(record["val_accuracy"] or 0 for record in result.history)


def test_status_converged() -> None:
    result = fit(tolerance=1e-2, epochs=2000, patience=None, stages=(4,))
    assert result.status is Status.CONVERGED
    record = result.history[-1]
    assert record["primal_residual"] <= 1e-2 * record["output_norm"]
    assert record["dual_residual"] <= 1e-2 * record["rho"] * record["output_norm"]
    assert len(result.history) < 2000


def test_rest_before_the_first_wave_is_not_convergence() -> None:
    """In the first epoch only z_L moves: p and q stand still because nothing has reached them yet."""
    result = fit(tolerance=1e-3, nu=0.1, rho=0.5, epochs=100, patience=None)
    assert len(result.history) > 10
    assert result.history[-1]["train_accuracy"] > 0.9


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
    assert len(result.history) == 12
    assert max(float(parameter.detach().abs().max()) for parameter in result.model.parameters()) < 1e3
    with torch.no_grad():
        accuracy = float((result.model(TRAINING.X).argmax(1) == TRAINING.y).double().mean())
    assert accuracy > 0.9


def test_status_non_finite_is_seen_at_once_and_keeps_the_best_model() -> None:
    def poison(record) -> None:
        if record["epoch"] == 5:
            TRAINING_BROKEN.X[0, 0] = float("nan")

    TRAINING_BROKEN = Examples(TRAINING.X.clone(), TRAINING.y)
    config = ModelConfig(layers=4, stages=(2, 4), hidden=8, epochs=15)
    result = train(TRAINING_BROKEN, VALIDATION, 3, config, seed=0, on_epoch=poison)
    assert result.status is Status.NON_FINITE
    assert len(result.history) == 6
    assert all(torch.isfinite(parameter).all() for parameter in result.model.parameters())
    with torch.no_grad():
        accuracy = float((result.model(VALIDATION.X).argmax(1) == VALIDATION.y).double().mean())
    assert accuracy >= max(record["val_accuracy"] for record in result.history[:5])


def test_non_finite_without_validation_falls_back_to_finite_weights() -> None:
    broken = Examples(TRAINING.X.clone(), TRAINING.y)
    broken.X[3, 1] = float("inf")
    result = train(broken, None, 3, ModelConfig(layers=3, hidden=8), seed=0)
    assert result.status is Status.NON_FINITE
    assert all(torch.isfinite(parameter).all() for parameter in result.model.parameters())


def test_interrupt_keeps_the_best_model_so_far() -> None:
    seen = []

    def interrupt(record) -> None:
        seen.append(record)
        if record["epoch"] == 10:
            raise KeyboardInterrupt

    result = fit(on_epoch=interrupt)
    assert result.status is Status.INTERRUPTED
    assert len(result.history) == len(seen) == 10
    with torch.no_grad():
        accuracy = float((result.model(VALIDATION.X).argmax(1) == VALIDATION.y).double().mean())
    assert accuracy >= max(record["val_accuracy"] for record in seen)


# ------------------------------------------------------------------------------------------------------ warnings


def test_penalty_below_the_bound_warns_once() -> None:
    with pytest.warns(UserWarning, match="theory guarantees") as caught:
        fit(rho=1e-3, nu=1e-2)
    assert len(caught) == 1


def test_papers_levels_warn_when_activations_are_small() -> None:
    faint = Examples(TRAINING.X / 100, TRAINING.y)
    with pytest.warns(UserWarning, match="output of layer 1: use calibrated ones"):
        train(faint, None, 3, ModelConfig(layers=3, epochs=1, quantize="p", levels="paper"), seed=0)


# ----------------------------------------------------------------------------------------------------- penalties


def record(primal: float, dual: float = 1.0) -> dict[str, float]:
    return {"primal_residual": primal, "dual_residual": dual}


def test_stall_doubles_after_ten_epochs_without_progress() -> None:
    schedule, rho = StallPenalty(), 1.0
    rhos = []
    for _ in range(30):
        rho = schedule(rho, record(5.0))
        rhos.append(rho)
    assert rhos == [1.0] * 19 + [2.0] * 10 + [4.0]


def test_stall_is_not_misled_by_the_rest_before_the_first_wave() -> None:
    """The residual is tiny in the first epoch, because nothing has moved yet, and falls from its peak afterwards."""
    schedule, rho = StallPenalty(), 1.0
    for primal in (2.6e-3, *(0.9 * 0.95**epoch for epoch in range(60))):
        rho = schedule(rho, record(primal))
    assert rho == 1.0


def test_stall_is_bounded_and_lets_zero_be() -> None:
    schedule, rho = StallPenalty(), 1.0
    for _ in range(200):
        rho = schedule(rho, record(0.0))
    assert rho == 1.0
    for _ in range(1000):
        rho = schedule(rho, record(3.0))
    assert rho == 1e3


def test_stall_leaves_progress_alone() -> None:
    schedule, rho = StallPenalty(), 1.0
    for epoch in range(100):
        rho = schedule(rho, record(0.8**epoch))
    assert rho == 1.0


@pytest.mark.parametrize(("primal", "dual", "expected"), [(11.0, 1.0, 2.0), (1.0, 11.0, 0.5), (5.0, 1.0, 1.0)])
def test_balance_moves_rho_toward_the_larger_residual(primal: float, dual: float, expected: float) -> None:
    schedule, rho = BalancePenalty(), 1.0
    for _ in range(10):
        rho = schedule(rho, record(primal, dual))
    assert rho == expected


def test_balance_is_bounded() -> None:
    schedule, rho = BalancePenalty(), 1.0
    for _ in range(1000):
        rho = schedule(rho, record(1.0, 0.0))
    assert rho == 1e3


def test_constant_is_constant() -> None:
    schedule = PENALTY_SCHEDULES["constant"]()
    assert [schedule(0.3, record(1.0)) for _ in range(50)] == [0.3] * 50


def test_schedule_reaches_the_worker() -> None:
    with pytest.warns(UserWarning, match="rho"):
        history = fit(penalty="stall", rho=1e-3, nu=1e-2, epochs=60, patience=None).history
    assert history[0]["rho"] == 1e-3
    assert max(entry["rho"] for entry in history) > 1e-3


def test_the_rate_series_is_positive_and_falls() -> None:
    """c_k is the least movement of an epoch so far: the start, where nothing has moved yet, does not count."""
    rates = [record["c_k"] for record in fit(stages=(4,), patience=None, rho=0.2).history]
    assert min(rates) > 0
    assert all(after <= before for before, after in itertools.pairwise(rates))
    assert rates[-1] < rates[0]


def test_rounded_products_train_the_same_network_within_their_precision() -> None:
    """bfloat16 has 8 bits: the objective agrees to a percent, falls as it must, and the classes are found as well."""
    settings = {"solver": "linearized", "stages": (4,), "epochs": 60, "patience": None, "nu": 1.0, "rho": 5.0}
    full, rounded = (fit(None, precision=precision, **settings) for precision in ("fp32", "bf16"))
    objectives = [[record["objective"] for record in result.history] for result in (full, rounded)]
    assert objectives[1] != objectives[0]
    assert objectives[1] == pytest.approx(objectives[0], rel=2e-2)
    assert all(b <= a * (1 + 1e-3) for a, b in itertools.pairwise(objectives[1]))
    assert rounded.history[-1]["train_accuracy"] >= full.history[-1]["train_accuracy"] - 0.02


# ------------------------------------------------------------------------------------------- weights and probabilities


def fit_rows(rows: Examples, **settings):
    settings = {"layers": 3, "stages": (2, 3), "hidden": 8, "epochs": 12, "weight_decay": 0.05} | settings
    return train(rows, VALIDATION, 3, ModelConfig(patience=None, **settings), seed=0)


@pytest.mark.parametrize("solver", ["linearized", "exact"])
def test_weights_of_one_change_no_bit(solver: str) -> None:
    plain = fit_rows(TRAINING, solver=solver)
    weighted = fit_rows(TRAINING._replace(weights=torch.ones(60)), solver=solver)
    for a, b in zip(plain.model.parameters(), weighted.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert [record["objective"] for record in plain.history] == [record["objective"] for record in weighted.history]


@pytest.mark.parametrize("quantize", ["none", "pq"])
@pytest.mark.parametrize("solver", ["linearized", "exact"])
def test_a_row_of_weight_k_trains_like_k_rows(solver: str, quantize: str) -> None:
    times = torch.arange(60) % 3 + 1
    X, y = TRAINING.X.double(), TRAINING.y
    validation = VALIDATION._replace(X=VALIDATION.X.double())
    config = ModelConfig(
        layers=3, stages=(3,), hidden=8, epochs=10, weight_decay=0.05, patience=None, solver=solver, quantize=quantize
    )
    weighted = train(Examples(X, y, times.double()), validation, 3, config, seed=0)
    rows = Examples(X.repeat_interleave(times, 0), y.repeat_interleave(times))
    repeated = train(rows, validation, 3, config, seed=0)
    for ours, theirs in zip(weighted.history, repeated.history, strict=True):
        for name in ("objective", "risk", "primal_residual", "train_loss", "train_accuracy", "val_loss"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-7, abs=1e-12), name


def test_a_label_is_a_sure_target() -> None:
    sure = TRAINING._replace(y=torch.eye(3)[TRAINING.y])
    hard, soft = fit_rows(TRAINING), fit_rows(sure)
    assert soft.history[-1]["objective"] == pytest.approx(hard.history[-1]["objective"], rel=1e-4)
    assert soft.history[-1]["train_accuracy"] == hard.history[-1]["train_accuracy"]
    unsure = TRAINING._replace(y=(torch.eye(3)[TRAINING.y] + 0.2) / 1.6)
    assert fit_rows(unsure).history[-1]["risk"] > soft.history[-1]["risk"]
