from __future__ import annotations

from pathlib import Path

import pytest

from helpers.faults import config, interrupted_run
from pdadmm_g import GAMLPClassifier, InputError
from pdadmm_g.estimator import Estimator
from pdadmm_g.runs.folder import RunFolder, State
from pdadmm_g.runs.run import train_run
from pdadmm_g.training import checkpoint


def test_checkpoints_of_an_abandoned_run_are_not_resumed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    interrupted_run(out)
    with pytest.raises(InputError, match="did not finish"):
        train_run(config(out, rho=6.0))
    assert checkpoint.latest(out / "checkpoints") is not None
    interrupted_run(out, epoch=3, overwrite=True, rho=6.0)
    assert checkpoint.latest(out / "checkpoints") is None


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ([], State.FREE),
        (["metrics.jsonl", "config.yaml"], State.FREE),  # killed in its first epochs
        (["config.yaml"], State.FOREIGN),
        (["summary.json"], State.FOREIGN),
        (["metrics.jsonl", "unscored.json"], State.UNSCORED),
        (["metrics.jsonl", "unscored.json", "summary.json"], State.FINISHED),
        (["metrics.jsonl", "checkpoints/epoch-00000001/meta.json"], State.UNFINISHED),
        (["metrics.jsonl", "summary.json", "checkpoints/epoch-00000001/meta.json"], State.FINISHED),
    ],
)
def test_what_a_folder_holds(files: list[str], state: State, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"status": "MAX_EPOCHS"}')
    assert RunFolder(tmp_path).state is state


# ------------------------------------------------------------------------------------ one command at a time


def test_a_folder_that_is_written_to_is_not_for_another_command(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with RunFolder(out).held():
        with pytest.raises(InputError, match="run: another command writes to it"):
            train_run(config(out), overwrite=True)
        with pytest.raises(InputError, match="another command writes to it"):
            GAMLPClassifier.load(finished(tmp_path / "other")).save(out)
    assert not out.exists()  # nothing was written
    train_run(config(out))
    assert sorted(path.name for path in out.iterdir()) == [
        "checkpoints", "config.yaml", "metrics.jsonl", "model.safetensors", "summary.json",
    ]  # fmt: skip


# ------------------------------------------------------------------------------------ the run that is replaced


def finished(out: Path, **changes: object) -> Path:
    train_run(config(out, checkpoint_every=None, **changes))
    return out


def test_a_run_is_kept_until_the_one_that_replaces_it_has_a_model(tmp_path: Path) -> None:
    out = finished(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for _ in range(2):
        interrupted_run(out, overwrite=True, seed=1)  # ends as if it were killed
        assert not (out / "summary.json").exists()
        assert {path.name: path.read_bytes() for path in (out / "previous").iterdir()} == before
        with pytest.raises(
            InputError, match=r"run: has no model yet; that of the run which it replaces is in .*previous"
        ):
            RunFolder(out).classifier()
    RunFolder(out / "previous").classifier()
    train_run(config(out, seed=1), resume=True)
    assert not (out / "previous").exists()
    assert (out / "model.safetensors").read_bytes() != before["model.safetensors"]


# ------------------------------------------------------------------------------------ what cannot be written


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no folder that even root cannot write to")
def test_a_folder_that_cannot_be_written_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Estimator, "_fit", None)
    with pytest.raises(InputError, match="/proc/self/run: cannot write"):
        train_run(config(Path("/proc/self/run")))
