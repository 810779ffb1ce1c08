from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.run_files import epochs_of
from pdadmm_g.config import RunConfig
from pdadmm_g.errors import InputError
from pdadmm_g.runs.run import train_run

SMALL: dict[str, Any] = {"layers": 3, "hidden": 8, "epochs": 4, "augment": "average", "weight_decay": 0.1}


def test_tensorboard(tmp_path: Path, graph_file: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    base = RunConfig(dataset=str(graph_file), out=str(tmp_path / "plain"), checkpoint_every=1, **SMALL)
    train_run(base)

    def break_off(record: dict[str, Any]) -> None:
        if record["epoch"] == 3:
            raise RuntimeError

    out = {"out": str(tmp_path / "logged")}
    with pytest.raises(RuntimeError):
        train_run(RunConfig(**vars(base) | out), on_epoch=break_off)
    train_run(RunConfig(**vars(base) | out | {"tensorboard": True}), resume=True)
    plain, logged = (tmp_path / name / "model.safetensors" for name in ("plain", "logged"))
    assert plain.read_bytes() == logged.read_bytes()
    assert not (tmp_path / "plain/tensorboard").exists()
    events = EventAccumulator(str(tmp_path / "logged/tensorboard")).Reload()
    metrics = epochs_of(tmp_path / "logged")
    scalars = events.Scalars("objective")
    assert (
        [event.step for event in scalars] == [entry["epoch"] for entry in metrics] == list(range(1, len(metrics) + 1))
    )
    assert [event.value for event in scalars] == pytest.approx([entry["objective"] for entry in metrics], rel=1e-6)
    assert {"val_accuracy", "worker 0/wait_seconds"} <= set(events.Tags()["scalars"])


def test_tensorboard_missing(tmp_path: Path, graph_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    config = RunConfig(dataset=str(graph_file), out=str(tmp_path / "run"), tensorboard=True, **SMALL)
    with pytest.raises(InputError, match="pip install tensorboard"):
        train_run(config)
    assert not (tmp_path / "run").exists()
