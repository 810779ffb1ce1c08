from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from experiments import results as module
from experiments.results import Results
from pdadmm_g.errors import InputError


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "made", "python -m experiments test")


def test_a_row_is_found_by_its_key_and_replaced_whole(results: Results) -> None:
    assert results.rows() == []
    results.put({"method": "b", "depth": 2, "figure": 1.0, "old": True})
    results.put({"method": "a", "depth": 10, "error": "boom\u2028x\u0085y"})  # these end a line for Python alone
    row = results.put({"method": "b", "depth": 2, "figure": (3.0,)})
    assert results.find(method="b", depth=2) == row
    assert row["figure"] == [3.0]
    assert "old" not in row
    assert row["command"] == "python -m experiments test"
    assert results.find(method="b") is None
    assert [other["method"] for other in results.rows()] == ["a", "b"]
    assert results.rows()[0]["error"] == "boom\u2028x\u0085y"


def test_rows_of_several_writers_are_all_kept(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes the lock by itself, as processes do."""
    monkeypatch.setattr(module, "provenance", lambda command: {"command": command})

    def writer(number: int) -> None:
        for repeat in range(20):
            Results(results.folder, "test").put({"workers": number, "repeat": repeat})

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(writer, range(3)))
    assert [(row["workers"], row["repeat"]) for row in results.rows()] == [(n, m) for n in range(3) for m in range(20)]


@pytest.mark.parametrize("line", ['{"dataset": null}', "[1]", "{"])
def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "results.jsonl").write_text(line + "\n")
    with pytest.raises(InputError, match="line 1"):
        Results(tmp_path, "").rows()
    with pytest.raises(InputError, match=r"results\.jsonl"):
        Results(tmp_path / "results.jsonl", "test").put({"method": "a"})
