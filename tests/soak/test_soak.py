"""The soak draws reproducibly, finds what went wrong, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

import soak.__main__ as campaign
from experiments.results import read
from pdadmm_g.config import RunConfig
from soak.__main__ import main
from soak.cases import FAULTS, Case, Fault, draw

SETTINGS = {
    "dataset": "graph.npz", "augment": "none", "normalize": "unit", "weight-decay": 0.1, "layers": 3, "stages": "2,3",
    "hidden": 8, "epochs": 40, "patience": "none", "tolerance": 0, "quantize": "pq", "bits": 4, "checkpoint-every": 1,
    "unlabelled": 0,
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
