from __future__ import annotations

from pathlib import Path

import pytest

from helpers.faults import config, interrupted_run
from pdadmm_g import InputError
from pdadmm_g.runs import folder as runs
from pdadmm_g.runs.folder import RunFolder
from pdadmm_g.runs.train_run import train_run
from pdadmm_g.training import checkpoint


def test_checkpoints_of_an_abandoned_run_are_not_resumed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    interrupted_run(out)
    assert checkpoint.latest(out / "checkpoints") is not None
    with pytest.raises(InputError, match="did not finish"):
        train_run(config(out, rho=6.0))
    assert checkpoint.latest(out / "checkpoints") is not None
    interrupted_run(out, epoch=3, overwrite=True, rho=6.0)
    assert checkpoint.latest(out / "checkpoints") is None


def test_run_is_finished_before_its_checkpoints_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half removed, a checkpoint could not be resumed from."""
    out = tmp_path / "run"

    def killed(path: Path, **_: object) -> None:
        raise RuntimeError(f"killed at {path.name}")

    monkeypatch.setattr(runs.shutil, "rmtree", killed)
    with pytest.raises(RuntimeError, match="killed at checkpoints"):
        train_run(config(out, checkpoint_every=None, tolerance=1.0))  # one that has converged keeps none
    assert RunFolder(out).finished


def test_folder_killed_while_it_is_made_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(path: Path, _: str) -> None:
        raise RuntimeError(f"killed at {path.name}")

    monkeypatch.setattr(runs, "write_atomically", killed)
    with pytest.raises(RuntimeError, match=r"killed at config\.yaml"):
        RunFolder(tmp_path / "run").start(config(tmp_path / "run"))
    assert (tmp_path / "run/metrics.jsonl").exists()
    RunFolder(tmp_path / "run").check_free(config(tmp_path / "run"), overwrite=False)
