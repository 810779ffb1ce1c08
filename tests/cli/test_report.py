from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.commands import assert_refused
from helpers.run_files import SUMMARY, record, write_run


def test_command_writes_a_page(run) -> None:
    write_run(Path("one $x"), epochs=4)
    write_run(Path("two"), epochs=4, summary=None)
    assert run("report", "one $x", "two") == (0, "report of 2 runs written to report.html\n", "")
    assert Path("report.html").read_text().startswith("<!doctype html>")
    assert run("report", "one $x")[:2] == (0, "report of 1 run written to one $x/report.html\n")


def test_wrong_folders(run) -> None:
    write_run(Path("good"))
    Path("empty").mkdir()
    write_run(Path("bad"), epochs=3)
    lines = Path("bad/metrics.jsonl").read_text().splitlines()
    Path("bad/metrics.jsonl").write_text("\n".join([lines[0], "[]", lines[2]]))
    for path, message in (
        ("missing", "no such run folder"), ("empty", "it has no config.yaml"), ("bad", "metrics.jsonl: line 2"),
    ):  # fmt: skip
        assert_refused(*run("report", "good", path, "--out", "page.html"), message)
    assert not Path("page.html").exists()


@pytest.mark.parametrize(
    ("file", "text", "culprit"),
    [
        ("metrics.jsonl", json.dumps(record(1, 1, 1)).replace("0.01", "9" * 400), "line 1 is not a record of an epoch"),
        ("metrics.jsonl", json.dumps(record(1, -5, 1)), "$.stage"),
        ("summary.json", json.dumps(SUMMARY | {"metrics": {"test": 3}}), "$.metrics"),
        ("summary.json", f'{{"status": {"[" * 100_000}', "too deeply"),
        ("config.yaml", "stages: &a [*a]", "'*a' stands for another value"),
        ("config.yaml", "stages: [{}]", "stages"),
    ],
    ids=["large seconds", "stage below 1", "no figures", "deep summary", "list in itself", "mapping in a list"],
)
def test_hostile_files(run, file: str, text: str, culprit: str) -> None:
    write_run(Path("run"), epochs=2)
    Path("run", file).write_text(text + "\n")
    assert_refused(*run("report", "run"), f"{file}: ", culprit)
