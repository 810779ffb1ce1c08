from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from helpers.run_files import ALL_FIGURES, SUMMARY, record, write_run
from pdadmm_g.cli import main


def report(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["report", *map(str, arguments)])
    return int(caught.value.code or 0)


# ---------------------------------------------------------------------------------------------------- the command


def test_command_writes_page_and_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(Path("one $x"), epochs=4)
    write_run(Path("two"), epochs=4, summary=None)
    assert report("one $x", "two") == 0
    assert capsys.readouterr().out == "report of 2 runs written to report.html\n"
    assert Path("report.html").read_text().startswith("<!doctype html>")
    assert report("one $x", "--png", "figures") == 0
    expected = "report of 1 run written to one $x/report.html\n11 figures written to figures\n"
    assert capsys.readouterr().out == expected
    assert sorted(path.stem for path in Path("figures").iterdir()) == sorted(ALL_FIGURES)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in Path("figures").iterdir())


def test_wrong_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write_run(tmp_path / "good")
    (tmp_path / "empty").mkdir()
    bad = write_run(tmp_path / "bad", epochs=3)
    lines = (bad / "metrics.jsonl").read_text().splitlines()
    (bad / "metrics.jsonl").write_text("\n".join([lines[0], "[]", lines[2]]))
    for path, message in (
        (tmp_path / "missing", "no such run folder"),
        (tmp_path / "empty", "not a run folder: it has no config.yaml"),
        (bad, "metrics.jsonl: line 2 is not a record of an epoch"),
    ):
        assert report(good, path, "--out", tmp_path / "page.html") == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert message in error
        assert error.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


HUGE = "9" * 400
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("metrics.jsonl", json.dumps(record(1, 1, 1)).replace("0.01", HUGE), "line 1 is not a record of an epoch"),
        ("metrics.jsonl", f'{{"stage": 1, "epoch": {HUGE}}}', "line 1 is not a record of an epoch"),
        ("metrics.jsonl", f'{{"stage": 1, "epoch": 1, "workers": {DEEP}}}', "line 1 is not a record of an epoch"),
        ("metrics.jsonl", json.dumps(record(1, -5, 1)), "line 1 is not a record of an epoch"),
        ("metrics.jsonl", json.dumps(record(-1, 1, 1)), "line 1 is not a record of an epoch"),
        ("summary.json", json.dumps(SUMMARY).replace("0.75", HUGE), "cannot read the summary: a number of 400 digits"),
        ("summary.json", f'{{"status": {DEEP}}}', "cannot read the summary: nested too deeply"),
        ("config.yaml", "stages: &a [*a]", "not valid YAML: '*a' stands for another value"),
        ("config.yaml", "stages: [{}]", "setting 'stages' must be a value or a list of numbers"),
        ("config.yaml", "layers: 2026-01-01", "setting 'layers' must be a value or a list of numbers"),
        ("config.yaml", f"seed: 0x{'f' * 5000}", "setting 'seed' must be a value or a list of numbers"),
    ],
    ids=[
        "large seconds", "large epoch", "deep metrics", "stage below 1", "epoch below 1", "large accuracy",
        "deep summary", "list in itself", "mapping in a list", "date", "large seed",
    ],
)  # fmt: skip
def test_hostile_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, text: str, message: str) -> None:
    path = write_run(tmp_path / "run", epochs=2)
    (path / file).write_text(text + "\n")
    assert report(path) == 2
    error = capsys.readouterr().err
    assert f"{file}: {message}" in error
    assert error.count("\n") == 1


def test_a_summary_that_never_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_run(tmp_path / "run", summary=None)
    os.mkfifo(path / "summary.json")
    assert report(path) == 2
    assert "summary.json: cannot read the summary: not a regular file" in capsys.readouterr().err


def test_figures_without_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert report(write_run(tmp_path / "run"), "--png", tmp_path / "figures") == 2
    assert "pip install matplotlib" in capsys.readouterr().err
    assert not (tmp_path / "run/report.html").exists()
