"""Rows of several processes, brought together in each: through shared memory and by messages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from pdadmm_g.engine.gathering import gatherer
from pdadmm_g.engine.launch import run_workers
from pdadmm_g.engine.team import Line


@pytest.mark.timeout(120)
def test_every_process_has_all_rows(tmp_path: Path) -> None:
    notes: list[tuple[int, dict]] = []
    command = [sys.executable, str(Path(__file__).with_name("gathering_job.py")), str(tmp_path)]
    run_workers(command, 3, threads=1, timeout=60, folder=tmp_path, on_note=lambda *note: notes.append(note))
    assert len(notes) == 6
    columns = sum(1 + turn % 7 for turn in range(20))
    for rank, note in notes:
        own = [4, 5, 3][rank]
        if note["kind"] == "network":
            assert (note["sent"], note["shared"]) == (2 * own * columns * 4, 0)
        else:
            assert (note["sent"], note["shared"]) == (0, (12 - own) * columns * 4)
    assert {note["kind"] for _, note in notes} >= {"network"}


def test_one_process_has_them_already() -> None:
    rows = torch.randn(3, 2)
    assert gatherer(Line(), [3], 2)(rows) is rows
