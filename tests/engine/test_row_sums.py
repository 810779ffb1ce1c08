"""Sums over rows: their values, and what is said of their traffic."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from pdadmm_g.engine import row_sums
from pdadmm_g.engine.row_sums import SHORT, RowSums
from pdadmm_g.engine.team import Line


class ThreeAlike(Line):
    """Three processes with the same part; arriving takes two seconds."""

    size = 3

    def __init__(self, clock: list[float]) -> None:
        super().__init__()
        self.clock = clock

    def start_gather(self, part: Tensor) -> Callable[[], Tensor]:
        return lambda: self._arrived(torch.stack([part] * 3))

    def start_sum(self, part: Tensor) -> Callable[[], Tensor]:
        return lambda: self._arrived(3 * part)

    def _arrived(self, result: Tensor) -> Tensor:
        self.clock[0] += 2.0
        return result


@pytest.mark.parametrize("size", [SHORT, SHORT + 2])
def test_short_sums_are_gathered_and_long_ones_go_round(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """To two others, or twice two thirds of it around a ring."""
    clock = [100.0]
    monkeypatch.setattr(row_sums, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    line, part = ThreeAlike(clock), torch.arange(size, dtype=torch.float32)
    assert torch.equal(RowSums(line).sum(part), 3 * part)
    assert line.traffic.bytes_sent == (2 * 4 * size if size == SHORT else 2 * 4 * size * 2 // 3)
    assert line.traffic.wait_seconds == 2
