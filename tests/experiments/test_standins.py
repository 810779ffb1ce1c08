from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from experiments import standins


@pytest.mark.parametrize("name", list(standins.STANDINS))
def test_stand_ins_never_touch_real_features(tmp_path: Path, name: str) -> None:
    """Where the folder of raw files is a link, too."""
    folder, raw = tmp_path / "data" / standins.STANDINS[name][0], tmp_path / "elsewhere"
    raw.mkdir()
    folder.mkdir(parents=True)
    (folder / "raw").symlink_to(raw)
    (raw / "class_map.json").write_text(json.dumps({str(node): node % 2 for node in range(6)}))
    (raw / "node-label.csv.gz").write_bytes(gzip.compress(b"0\n1\n" * 3))
    (raw / standins.FEATURES[name]).write_text("real features")
    before = {path.name: path.read_bytes() for path in raw.iterdir()}
    for _ in range(2):
        made = standins.make(name, tmp_path / "data", tmp_path / "made") / folder.name / "raw"
        assert {path.name: path.read_bytes() for path in raw.iterdir()} == before
    assert {path.name for path in made.iterdir()} == set(before)
    assert (made / standins.FEATURES[name]).read_bytes() != b"real features"
