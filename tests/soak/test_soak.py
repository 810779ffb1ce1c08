"""The soak draws reproducibly, finds what went wrong, and leaves nothing behind."""

from __future__ import annotations

from pdadmm_g.config import RunConfig
from soak.cases import FAULTS, draw


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
