from __future__ import annotations

import pytest

from helpers.blobs import fit
from pdadmm_g.training.penalties import PENALTY_SCHEDULES, BalancePenalty, StallPenalty


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
