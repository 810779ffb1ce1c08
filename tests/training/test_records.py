from __future__ import annotations

import math

import pytest
import torch

from helpers.blobs import fit
from pdadmm_g.engine.worker import Worker
from pdadmm_g.training import records

KEYS = {
    "stage", "stage_epoch", "epoch", "objective", "risk", "primal_residual", "dual_residual", "output_norm", "descent",
    "c_k", "rho", "train_loss", "train_accuracy", "val_loss", "val_accuracy", "seconds", "bytes_sent", "workers",
}  # fmt: skip


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
    assert min(c) > 0
    assert c == sorted(c, reverse=True)


def test_residuals_are_those_of_boyd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Primal: |p - q|. Dual: rho |q_new - q_old|. Both over all boundaries."""
    epoch, expected = Worker.epoch, []

    def watched(worker: Worker) -> object:
        inner = worker.boundaries[1:-1]
        before = [boundary.q.clone() for boundary in inner]
        moves = epoch(worker)
        dual = torch.cat([(boundary.q - old).flatten() for boundary, old in zip(inner, before, strict=True)])
        primal = torch.cat([(boundary.p - boundary.q).flatten() for boundary in inner])
        expected.append((float(primal.norm()), worker.algorithm.rho * float(dual.norm())))
        return moves

    monkeypatch.setattr(Worker, "epoch", watched)
    history = fit(stages=(4,), patience=None).history
    assert max(dual for _, dual in expected) > 0
    for entry, (primal, dual) in zip(history, expected, strict=True):
        assert entry["primal_residual"] == pytest.approx(primal, rel=1e-4)
        assert entry["dual_residual"] == pytest.approx(dual, rel=1e-4)


def test_convergence_needs_all_three() -> None:
    """Limits at tolerance 0.01: 2 for the primal residual, 0.2 for the dual one, 8 for the descent."""
    record = {"primal_residual": 1.9, "dual_residual": 0.19, "descent": 7.9}
    record |= {"output_norm": 200.0, "rho": 0.1, "objective": -800.0}
    assert records.converged(record, tolerance=0.01)
    for name, large in (("primal_residual", 3.0), ("dual_residual", 0.3), ("descent", 9.0)):
        assert not records.converged(record | {name: large}, tolerance=0.01)
