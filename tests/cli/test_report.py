from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from helpers.run_files import SUMMARY, record, write_run
from pdadmm_g.cli import main


def report(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["report", *map(str, arguments)])
    return int(caught.value.code or 0)


# ---------------------------------------------------------------------------------------------------- the command


def test_command_writes_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(Path("one $x"), epochs=4)
    write_run(Path("two"), epochs=4, summary=None)
    assert report("one $x", "two") == 0
    assert capsys.readouterr().out == "report of 2 runs written to report.html\n"
    assert Path("report.html").read_text().startswith("<!doctype html>")
    assert report("one $x") == 0
    assert capsys.readouterr().out == "report of 1 run written to one $x/report.html\n"


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
    ("file", "text", "culprit"),
    [
        ("metrics.jsonl", json.dumps(record(1, 1, 1)).replace("0.01", HUGE), "line 1 is not a record of an epoch"),
        ("metrics.jsonl", f'{{"stage": 1, "epoch": 1, "workers": {DEEP}}}', "line 1 is not a record of an epoch"),
        ("metrics.jsonl", json.dumps(record(1, -5, 1)), "$.stage"),
        ("metrics.jsonl", json.dumps(record(1, 1, 1, val_loss=float("nan"))), "line 1 is not a record of an epoch"),
        ("summary.json", json.dumps(SUMMARY).replace("0.75", HUGE), "$.test_accuracy"),
        ("summary.json", json.dumps(SUMMARY | {"metrics": {"test": 3}}), "$.metrics"),
        ("summary.json", f'{{"status": {DEEP}}}', "$.status"),
        ("config.yaml", "stages: &a [*a]", "'*a' stands for another value"),
        ("config.yaml", "stages: [{}]", "stages"),
        ("config.yaml", "layers: 2026-01-01", "layers"),
        ("config.yaml", f"seed: 0x{'f' * 5000}", "seed"),
    ],
    ids=[
        "large seconds", "deep metrics", "stage below 1", "no number", "large accuracy", "no figures", "deep summary",
        "list in itself", "mapping in a list", "date", "large seed",
    ],
)  # fmt: skip
def test_hostile_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, text: str, culprit: str) -> None:
    path = write_run(tmp_path / "run", epochs=2)
    (path / file).write_text(text + "\n")
    assert report(path) == 2
    error = capsys.readouterr().err
    assert f"{file}: " in error
    assert culprit in error
    assert error.count("\n") == 1


def test_a_summary_that_never_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_run(tmp_path / "run", summary=None)
    os.mkfifo(path / "summary.json")
    assert report(path) == 2
    assert "summary.json: cannot read the summary: not a regular file" in capsys.readouterr().err
