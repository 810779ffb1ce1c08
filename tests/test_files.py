from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pdadmm_g import InputError
from pdadmm_g.files import locked, read_lines, read_text, temporary_folder


@pytest.mark.parametrize("read", [read_text, lambda *given, **limits: "".join(read_lines(*given, **limits))])
def test_what_cannot_be_read_is_named(tmp_path: Path, read) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"some\nli\xffnes\n")
    with pytest.raises(InputError, match="file: cannot read the words: not UTF-8 text at byte 7"):
        read(file, "the words")
    with pytest.raises(InputError, match="12 bytes are too many"):
        read(file, "the words", largest=11)
    file.write_text("some\nlines")
    assert read(file, "the words") == "some\nlines"
    for path, why in (
        (tmp_path, "not a regular file"),
        (tmp_path / "none", "No such file or directory"),
        (Path("\0"), "no such file"),
    ):
        with pytest.raises(InputError, match=why):
            read(path, "the words")


def test_output_to_a_stream_keeps_what_is_there(tmp_path: Path) -> None:
    script = "from pathlib import Path; from pdadmm_g.files import write_atomically\n"
    script += "print('before', flush=True); write_atomically(Path('/dev/stdout'), 'rows\\n'); print('after')"
    with (tmp_path / "log").open("w") as log:
        subprocess.run([sys.executable, "-c", script], stdout=log, check=True, timeout=60)
    assert (tmp_path / "log").read_text() == "before\nrows\nafter\n"
    piped = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert piped.stdout == "before\nrows\nafter\n"


def test_a_lock_is_there_as_long_as_it_is_held(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    with locked(lock) as ours:
        assert ours
        with locked(lock) as again:
            assert not again
        assert lock.exists()
    assert not lock.exists()
    with locked(lock) as ours:
        assert ours


def test_who_waits_gets_the_lock_of_the_file_that_is_there(tmp_path: Path) -> None:
    """Not of the one that its holder has removed: two would have it."""
    script = """
import sys
from pathlib import Path
from pdadmm_g.files import locked
path = Path(sys.argv[1])
for _ in range(200):
    with locked(path / ".lock", wait=True):
        number = int((path / "number").read_text())
        (path / "number").write_text(str(number + 1))
"""
    (tmp_path / "number").write_text("0")
    command = [sys.executable, "-c", script, str(tmp_path)]
    for process in [subprocess.Popen(command) for _ in range(3)]:
        assert process.wait(timeout=60) == 0
    assert (tmp_path / "number").read_text() == "600"


@pytest.mark.usefixtures("own_temporary_folder")
def test_the_data_of_a_killed_process_are_removed_by_the_next(tmp_path: Path) -> None:
    script = "import os, time\nfrom pdadmm_g.files import temporary_folder\n"
    script += "with temporary_folder() as folder:\n"
    script += "    (folder / 'rows').write_text('data')\n    print(folder, flush=True)\n    time.sleep(600)"
    other = tmp_path / "pdadmm-g-of-somebody"
    other.mkdir()
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        with temporary_folder() as own:
            assert own.parent == left.parent == tmp_path
            assert (left / "rows").exists()  # it is still used
        process.kill()
    with temporary_folder() as own:
        assert sorted(tmp_path.glob("pdadmm-g-*")) == sorted([other, own])
    assert list(tmp_path.iterdir()) == [other]
