from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

import pytest

from pdadmm_g.cli.demo import run_demo
from pdadmm_g.config import RunConfig


@pytest.mark.timeout(240)
def test_demo_shows_what_graph_and_quantization_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The weight decay that the demonstration finds, and less patience: a fraction of the time for the same picture.
    shorter = functools.partial(RunConfig, weight_decay=0.03, patience=8)
    monkeypatch.setattr(sys.modules["pdadmm_g.cli.demo"], "RunConfig", shorter)
    run_demo(tmp_path)
    accuracy = {
        path.parent.name: json.loads(path.read_text())["test_accuracy"] for path in tmp_path.glob("*/summary.json")
    }
    assert accuracy["graph"] >= 0.93
    assert accuracy["graph-quantized"] >= 0.92
    assert accuracy["raw"] <= 0.88
    out = capsys.readouterr().out
    assert all(f"{value:.3f}" in out for value in accuracy.values())
