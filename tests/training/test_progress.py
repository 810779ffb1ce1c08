from __future__ import annotations

import io

import pytest
from rich.console import Console

from pdadmm_g.config import ModelConfig
from pdadmm_g.training import progress
from pdadmm_g.training.progress import Progress, TimeLeft, duration


def test_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    left = TimeLeft()
    assert [left.after(done, 10) for done in (1, 2)] == ["", ""]  # found, not computed
    clock[0] += 60
    assert left.after(4, 10) == "; about 3 min left"  # two in a minute, six to go
    clock[0] += 60
    assert left.after(10, 10) == ""
    assert [duration(seconds) for seconds in (0.4, 59, 90, 3600, 12000)] == [
        "0 s",
        "59 s",
        "2 min",
        "1 h 0 min",
        "3 h 20 min",
    ]


def test_time_left_of_a_resumed_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs that a checkpoint has, and the time until the first one here, tell nothing of those to come."""
    clock, text = [100.0], io.StringIO()
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    shown = Progress(ModelConfig(layers=4, stages=(2, 4), epochs=100), console=Console(file=text, width=200))
    record = {"stage": 2, "objective": 1.0, "val_accuracy": None, "workers": []}
    clock[0] += 500
    for epoch in (71, 72, 73, 74, 75):
        shown.update(record | {"stage_epoch": epoch, "epoch": 120 + epoch})
        clock[0] += 2
    assert text.getvalue().splitlines() == [
        "4 layers (stage 2/2), epoch 71/100: objective 1",
        "4 layers (stage 2/2), epoch 75/100: objective 1; about 50 s left of the stage",
    ]
