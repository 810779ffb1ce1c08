"""Files, locks, records and tasks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pdadmm_g import InputError, utils
from pdadmm_g.utils import (
    Count,
    Event,
    Positive,
    Tasks,
    locked,
    read_lines,
    read_record,
    read_text,
    task,
    temporary_folder,
)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"some\nli\xffnes\n")
    with pytest.raises(InputError, match="file: cannot read the words: not UTF-8 text"):
        read_text(file, "the words")
    file.write_text("some\u2028\nlines", encoding="utf-8")
    assert [*read_lines(file, "the words")] == ["some\u2028\n", "lines"]  # only a line break ends a line
    for path, why in (
        (tmp_path, "not a regular file"),
        (tmp_path / "none", "No such file or directory"),
        (Path("\0"), "cannot read the words: .*null"),
    ):
        with pytest.raises(InputError, match=why):
            read_text(path, "the words")


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


@pytest.mark.usefixtures("own_temporary_folder")
def test_the_data_of_a_killed_process_are_removed_by_the_next(tmp_path: Path) -> None:
    script = "import os, time\nfrom pdadmm_g.utils import temporary_folder\n"
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


def test_messages_are_one_printable_line() -> None:
    assert str(InputError("a\n\tb\x1b[31mc")) == "a b [31mc"


# ------------------------------------------------------------------------------------------------------------ records


class Record(msgspec.Struct, frozen=True):
    name: str
    size: Count
    best: Positive


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ('{"name": 3, "size": 2, "best": 1}', "name"),
        ('{"name": "a", "size": 0, "best": 1}', "size"),
        ('{"name": "a", "size": 2, "best": 1e999}', "out of range"),
        ('{"name": "a", "size": 2}', "best"),
        ("[]", "array"),
        ('{"name": ' + "[" * 100_000, "name|nested too deeply"),
    ],
)
def test_text_that_is_no_record_is_one_line(tmp_path: Path, text: str, culprit: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(InputError, match=f"file: cannot read it: .*({culprit}).*; start over$"):
        read_record(Record, tmp_path / "file", "it", "; start over")


# -------------------------------------------------------------------------------------------------------------- tasks


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(utils.time, "perf_counter", lambda: now[0])
    return now


def test_seconds_add_up_and_a_task_within_another_stops_its_clock(clock: list[float]) -> None:
    heard: list[Event] = []
    with Tasks(heard.append) as tasks:
        clock[0] += 1
        with task("training") as step:
            clock[0] += 2
            with task("evaluating", 2) as inner:
                clock[0] += 3
                inner()
                clock[0] += 4
                inner()
            clock[0] += 5
            step()
        clock[0] += 6
        assert tasks.times() == {"training": 7.0, "evaluating": 7.0, "other": 7.0}
    assert heard == [
        Event("training", 0, None),
        Event("evaluating", 0, 2),
        Event("evaluating", 1, 2),
        Event("evaluating", 2, 2),
        Event("evaluating", 2, 2, 7.0),
        Event("training", 1, None),
        Event("training", 1, None, 7.0),
    ]
