"""What a team of processes measures of itself, in one process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pdadmm_g.engine import team
from pdadmm_g.engine.team import DistributedTeam


def test_speed_of_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fastest of four sums of each size; twice the bytes but one share go round."""
    clock, sums = [0.0], list[int]()

    def add(part: torch.Tensor) -> torch.Tensor:
        sums.append(len(part))
        clock[0] += 0.5 + len(part) / (1 << 18) + (3.0 if len(sums) % 4 else 0.0)
        return part

    monkeypatch.setattr(team, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    whole: Any = SimpleNamespace(sum=add, size=4)
    DistributedTeam.measure(whole)
    assert sums == [1] * 4 + [1 << 18] * 4
    assert whole.latency == pytest.approx(0.5, abs=1e-5)
    assert whole.bandwidth == pytest.approx(2 * 4 * (1 << 18) * 3 / 4, rel=1e-5)
