from __future__ import annotations

from pathlib import Path

import pytest

from pdadmm_g.cli import main


def test_missing_raw_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = tmp_path / "flickr/raw"
    raw.mkdir(parents=True)
    for name in ("adj_full.npz", "class_map.json", "role.json"):
        (raw / name).write_bytes(b"")
    with pytest.raises(SystemExit):
        main(["datasets", "--data-root", str(tmp_path)])
    out = capsys.readouterr().out
    assert "missing: flickr/raw/feats.npy" in out
    assert "not found: planetoid/Cora/" in out


def test_datasets(run) -> None:
    code, out, _ = run("datasets")
    assert code == 0
    names = [line.split()[0] for line in out.splitlines()[1:]]
    assert names == [
        "digits", "cora", "pubmed", "citeseer", "amazon-computers", "amazon-photo", "coauthor-cs", "coauthor-physics",
        "flickr", "ogbn-arxiv",
    ]  # fmt: skip
