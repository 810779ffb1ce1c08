"""Every experiment as a command, at its smallest, on the embedded digits."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import communication, convergence, depth
from helpers.interrupts import interrupt
from pdadmm_g.training.stage import Stage


@pytest.mark.parametrize(
    ("experiment", "contents"),
    [
        ("convergence", ["figure.png", "results.jsonl", "table.md"]),
        ("depth", ["figure.png", "results.jsonl", "table.md"]),
        ("communication", ["results.jsonl", "table.md"]),
    ],
)
def test_experiments_leave_rows_a_table_and_figures(
    reproduce, monkeypatch: pytest.MonkeyPatch, experiment: str, contents: list[str]
) -> None:
    short = {method: settings | {"epochs": 3} for method, settings in depth.METHODS.items()}
    monkeypatch.setattr(depth, "METHODS", short)
    monkeypatch.setattr(convergence, "SETTINGS", convergence.SETTINGS | {"epochs": 5})
    cases = {case: communication.CASES[case] for case in ("nothing", "p and q at 8 bits")}
    monkeypatch.setattr(communication, "CASES", cases)
    code, out, err = reproduce(experiment, "--quick", "--datasets", "digits")
    assert code == 0
    folder = Path("results") / f"{experiment}-quick"
    assert sorted(path.name for path in folder.glob("[!.]*")) == contents
    table = (folder / "table.md").read_text()
    assert table in out
    assert table.startswith("|")
    # One line of progress per row of the experiment, which counts to the end.
    lines = [line for line in err.splitlines() if "digits" in line]
    assert [line.split()[0] for line in lines] == [f"{done}/{len(lines)}" for done in range(1, len(lines) + 1)]
    before = (folder / "results.jsonl").read_bytes()
    assert before.count(b"\n") == len(lines)
    assert reproduce(experiment, "--quick", "--datasets", "digits")[1] == out
    assert before == (folder / "results.jsonl").read_bytes()


@pytest.mark.parametrize("experiment", ["table-100", "convergence", "depth"])
def test_an_interrupted_run_ends_the_command_and_is_no_result(
    reproduce, monkeypatch: pytest.MonkeyPatch, experiment: str
) -> None:
    monkeypatch.setattr(Stage, "_epoch", interrupt)
    code, out, err = reproduce(experiment, "--quick", "--datasets", "digits")
    assert (code, out, err.splitlines()[-1]) == (130, "", "interrupted")
    assert list(Path("results", f"{experiment}-quick").iterdir()) == []
