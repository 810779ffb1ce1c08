"""The soak draws reproducibly, finds what went wrong, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import soak.__main__ as campaign
from experiments.results import read
from pdadmm_g.config import RunConfig
from soak.__main__ import main
from soak.cases import FAULTS, Case, Fault, draw
from soak.trial import MARK, Outcome, Trial, kill_marked, marked_processes

SETTINGS = {
    "dataset": "graph.npz", "augment": "none", "normalize": "unit", "weight-decay": 0.1, "layers": 3, "stages": "2,3",
    "hidden": 8, "epochs": 40, "patience": "none", "tolerance": 0, "quantize": "pq", "bits": 4, "checkpoint-every": 1,
}  # fmt: skip


def test_draws_are_reproducible_and_valid() -> None:
    cases = [draw(seed) for seed in range(200)]
    assert cases == [draw(seed) for seed in range(200)]
    for case in cases:
        settings = {name.replace("-", "_"): value for name, value in case.settings.items()}
        config = RunConfig(**settings | {"workers": case.workers, "shards": case.shards})
        assert config.workers <= config.layers
        assert all(fault.workers * fault.shards > 1 or "parent" in fault.kind for fault in case.faults)
        assert all(fault.victim < fault.workers * fault.shards for fault in case.faults)
        assert case.exact or config.quantize == "none"
    kinds = {fault.kind for case in cases for fault in case.faults}
    assert kinds == set(FAULTS)
    assert {case.workers for case in cases} == {case.shards for case in cases} == {1, 2, 3, 4}
    for dataset in ("graph.npz", "sharded"):  # rounds and weights, on shards in memory and on disk
        drawn = [case for case in cases if case.settings["dataset"] == dataset and case.shards > 1]
        assert any(case.settings["unlabelled"] for case in drawn)
        assert any(case.settings["class-weight"] == "balanced" for case in drawn)
    assert 10 < sum(not case.exact for case in cases) < 60


@pytest.mark.timeout(110)
def test_disturbed_run_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "draw", lambda seed: Case(seed, SETTINGS, (Fault("kill worker", 2, 1, 0.5),), 1))
    monkeypatch.setattr(campaign.tempfile, "tempdir", str(tmp_path))
    code = main(["--runs", "1", "--out", str(tmp_path / "soak")])
    result = read(tmp_path / "soak")
    assert result["failures"] == []
    assert code == 0
    assert "1 runs, 1 faults; 0 runs failed" in capsys.readouterr().out
    assert result["attempts"] == 3
    assert result["by_fault"]["kill worker"] == {"caused": 1, "in_mid_training": 1}
    assert [path.name for path in tmp_path.glob("[!.]*")] == ["results.jsonl"]


@pytest.mark.timeout(60)
def test_soak_notices_and_removes_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that fails is reported with its last line, and a process that it left is not left for long."""
    trial = Trial(Case(0, {"dataset": "korra", "checkpoint-every": 1}, (), 1), tmp_path / "0", threading.Event())
    monkeypatch.setattr("soak.trial.GONE_SECONDS", 1.0)
    orphan = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(100)"], env=os.environ | {MARK: trial.mark}
    )
    outcome = trial.carry_out()
    assert outcome.failure is not None
    assert outcome.failure.startswith("processes were left behind within 1 s: error: unknown data set 'korra'")
    assert orphan.wait(timeout=5) == -9
    assert not trial.folder.exists()


def test_stopped_soak_ends_its_processes(tmp_path: Path) -> None:
    stop = threading.Event()
    trial = Trial(Case(0, SETTINGS | {"epochs": 100000}, (), 1), tmp_path / "0", stop)
    thread = threading.Thread(target=trial.carry_out)
    thread.start()
    while not any(marked_processes(trial.mark)):
        time.sleep(0.01)
    stop.set()
    thread.join(timeout=20)
    assert not thread.is_alive()
    assert not any(marked_processes(trial.mark))
    assert trial.outcome.failure == "the soak was interrupted"
    kill_marked(trial.mark)  # nothing to do, and no error


def test_a_soak_that_was_cut_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what is missing or failed."""
    asked: list[int] = []

    class Quick:
        def __init__(self, case: Case, _: Path, stop: threading.Event) -> None:
            self.case, self.stop = case, stop

        def carry_out(self) -> Outcome:
            asked.append(self.case.seed)
            if asked == [5, 6, 7]:
                raise KeyboardInterrupt
            if asked[:3] == [5, 6, 7]:
                self.stop.wait()  # started all the same, and not asked for its result
            caused = [("kill parent", True), ("stop worker", False)]
            return Outcome(self.case, "it hung" if asked == [5, 6] else None, caused, 2)

    monkeypatch.setattr(campaign, "Trial", Quick)
    out = tmp_path / "soak"
    command = ["--runs", "4", "--seed", "5", "--out", str(out)]
    with pytest.raises(KeyboardInterrupt):
        main(command)
    assert asked[:3] == [5, 6, 7]
    for expected in ([6, 7, 8], []):
        asked.clear()
        assert main(command) == 0
        assert asked == expected
    result = read(out)
    assert (result["runs"], result["faults"], result["attempts"], result["failures"]) == (4, 8, 8, [])
    assert result["by_fault"]["kill parent"] == {"caused": 4, "in_mid_training": 4}
    assert result["by_fault"]["stop worker"] == {"caused": 4, "in_mid_training": 0}
    assert sum(result["by_quantization"].values()) == 4
    assert [one["seed"] for one in result["outcomes"]] == [5, 6, 7, 8]
