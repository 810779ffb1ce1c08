from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from experiments import results as module
from experiments.results import Results, arranged, origin
from pdadmm_g.errors import InputError


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "made", "pdadmm-g reproduce test")


def test_a_row_is_found_by_its_key_and_replaced_whole(results: Results) -> None:
    assert results.rows() == []
    results.put({"method": "b", "depth": 2, "figure": 1.0, "old": True})
    results.put({"method": "a", "depth": 10, "figure": 2.0})
    row = results.put({"method": "b", "depth": 2, "figure": (3.0,)})
    assert results.find(method="b", depth=2) == row
    assert row["figure"] == [3.0]
    assert "old" not in row
    assert row["command"] == "pdadmm-g reproduce test"
    assert results.find(method="b") is None
    assert [other["method"] for other in results.rows()] == ["a", "b"]


@pytest.mark.timeout(60)
def test_rows_from_several_processes_are_all_kept(results: Results) -> None:
    """They know nothing of the machine: torch, which does, would take longer to import than all rows to write."""
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from experiments import results\nfrom experiments.results import Results\n"
        "results.provenance = lambda command: {'command': command}\n"
        "print('ready', flush=True)\nsys.stdin.readline()\n"
        "for repeat in range(20):\n"
        "    Results(Path(sys.argv[1]), 'test').put({'workers': int(sys.argv[2]), 'repeat': repeat})\n"
        "assert 'torch' not in sys.modules\n"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", script, results.folder, str(number)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(3)
    ]  # fmt: skip
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:  # at once, so that they meet
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=50)
        assert writer.returncode == 0
    assert [(row["workers"], row["repeat"]) for row in results.rows()] == [(n, m) for n in range(3) for m in range(20)]


def test_a_row_that_was_begun_elsewhere_says_so(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [{"cpu": "here", "cores": 2}, {"cpu": "here", "cores": 2}, {"cpu": "there", "cores": 16}]

    def provenance(command: str) -> dict:
        return {"command": command, "date": "2026-01-01", "hardware": places.pop(0), "versions": {"torch": "2.0"}}

    monkeypatch.setattr(module, "provenance", provenance)
    row = {"dataset": "cora", "runs": [{"seed": 0}]}
    for _ in range(3):
        row = results.put(row)
    assert row["hardware"]["cpu"] == "there"
    assert [before["hardware"]["cpu"] for before in row["earlier"]] == ["here"]
    machines = [f"1 rows: 2026-01-01, {place}, torch 2.0" for place in ("there, 16 cores", "here, 2 cores")]
    assert origin([row]) == f"Seed 0; {'; '.join(machines)}."


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write"):
        Results(tmp_path / "file", "test").put({"method": "a"})


def test_rows_take_the_order_of_the_table() -> None:
    rows = [{"dataset": name, "method": method} for name in ("x", "cora", "pubmed") for method in ("b", "a")]
    order = [(row["dataset"], row["method"]) for row in arranged(rows, dataset=("pubmed", "cora"), method="ab")]
    assert order == [(name, method) for name in ("pubmed", "cora", "x") for method in "ab"]


def test_any_text_in_a_row_is_read_again(tmp_path: Path) -> None:
    """Some characters end a line for Python, and none of them ends one of the file."""
    results = Results(tmp_path, "command")
    results.put({"dataset": "d", "method": "m", "error": "boom\u2028x\u0085y"})
    assert results.rows()[0]["error"] == "boom\u2028x\u0085y"


@pytest.mark.parametrize("line", ['{"dataset": null}', "[1]", '{"mean": 1}', "[" * 100_000, "{"])
def test_what_is_not_a_row_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "results.jsonl").write_text(line + "\n")
    with pytest.raises(InputError, match="line 1"):
        Results(tmp_path, "").rows()
