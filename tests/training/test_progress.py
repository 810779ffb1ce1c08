from __future__ import annotations

import io

import pytest
from rich.console import Console

from pdadmm_g.config import ModelConfig
from pdadmm_g.training import progress
from pdadmm_g.training.progress import Progress
from pdadmm_g.utils import Event


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


def test_tasks_are_named_from_the_start_and_then_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, text = [100.0], io.StringIO()
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    shown = Progress(ModelConfig(layers=2), label="one: ", console=Console(file=text, width=200))
    for done in range(4):
        shown.task(Event("weight decay", done, 5))
        clock[0] += 3
    shown.task(Event("weight decay", 4, 5, seconds=12.0))
    shown.task(Event("evaluating", 0, None))
    assert text.getvalue().splitlines() == ["one: weight decay 0/5", "one: weight decay 2/5", "one: evaluating"]
