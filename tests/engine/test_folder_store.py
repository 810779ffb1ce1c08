from __future__ import annotations

from pathlib import Path

from pdadmm_g.engine.folder_store import FolderStore


def test_the_last_text_counts_however_long_the_one_before_was(tmp_path: Path) -> None:
    store, other = FolderStore(tmp_path), FolderStore(tmp_path)
    assert not store.check(["beat/0"])
    store.set("beat/0", '{"epoch": 1000}')
    store.set("beat/0", '{"epoch": 2}')
    assert other.check(["beat/0"])
    assert not other.check(["beat/0", "stop"])
    assert other.get("beat/0") == b'{"epoch": 2}'


def test_a_file_that_is_there_but_not_written_yet_has_no_text(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    assert FolderStore(tmp_path).get("stop") == b""
