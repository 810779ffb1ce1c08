"""Processes with the same layers have the same weights: one bit that differs on one of them is found and named."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from helpers.faults import FAULTY, config, descendants
from helpers.lines import ThreadLine, on_threads
from pdadmm_g.admm.state import Weights
from pdadmm_g.engine import launch
from pdadmm_g.engine.layout import Plan
from pdadmm_g.engine.team import Team
from pdadmm_g.engine.watchdog import ReplicasDifferError, WorkerLostError, check_replicas
from pdadmm_g.runs.run import train_run

pytestmark = pytest.mark.usefixtures("own_temporary_folder")


def layer(dtype: torch.dtype = torch.float32) -> Weights:
    W = torch.randn(7, 5, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return Weights(W, torch.arange(7, dtype=dtype), torch.zeros_like(W))


@pytest.mark.timeout(90)
def test_a_checkpoint_of_different_replicas_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr(launch, "WORKER", [sys.executable, str(FAULTY)])
    monkeypatch.setenv("FAULT", "3:memory::17")
    monkeypatch.setenv("FAULT_ONCE", str(tmp_path / "struck"))
    with pytest.raises(
        WorkerLostError, match=r"^epoch 20, W or b of layer [\d, ]*\b6\b[\d, ]* differ: shard 1 against 2"
    ):
        train_run(config(out, shards=2, plan=(3, 3), workers=2))
    assert descendants(tmp_path) == []
    assert [path.name for path in (out / "checkpoints").glob("epoch-*")] == ["epoch-00000015"]
    assert json.loads((out / "summary.json").read_text())["status"] == "PEER_LOST"


@pytest.mark.parametrize(("shards", "camps"), [(2, "shard 1 against 2"), (3, "shard 3 against 1, 2")])
def test_a_bit_that_differs_on_the_last_of_several_shards_is_found_by_all(shards: int, camps: str) -> None:
    def check(line: ThreadLine, *, differs: bool) -> str:
        team, own = Team(), layer()
        team.rows = line  # type: ignore[assignment]
        own.b[0] += differs and line.rank == shards - 1
        try:
            check_replicas(team, Plan((1,)), [own], 7)
        except ReplicasDifferError as error:
            return str(error).partition(";")[0]
        return ""

    assert on_threads(shards, lambda line: check(line, differs=False)) == [""] * shards
    told = f"epoch 7, W or b of layer 1 differ: {camps}"
    assert on_threads(shards, lambda line: check(line, differs=True)) == [told] * shards
