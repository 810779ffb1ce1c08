from __future__ import annotations

import json
from pathlib import Path

from pdadmm_g.cli.completion import DATASETS


def test_lists_and_measurements_in_a_script(run) -> None:
    rows = json.loads(run("datasets", "--json")[1])["datasets"]
    assert [row["name"] for row in rows] == list(DATASETS)
    size = ["--nodes", "20", "--features", "10", "--hidden", "8", "--layers", "3", "--seconds", "0.01"]
    code, out, _ = run("bench", "--methods", "floor", *size, "--json", "--out", "bench.json")
    assert code == 0
    assert json.loads(out) == json.loads(Path("bench.json").read_text())
