"""Every experiment as a command, at its smallest, on the embedded digits."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import experiments.__main__
from experiments import EXPERIMENTS, Request, communication, convergence, depth
from helpers.interrupts import interrupt
from pdadmm_g.baselines import Baseline
from pdadmm_g.training.stage import Stage


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What the command asks for, and nothing is run."""
    made: list[Request] = []

    def record(_: str, request: Request, on_row) -> str:
        made.append(request)
        return ""

    monkeypatch.setattr(experiments.__main__, "run_experiment", record)
    return made


def test_the_recorded_command_asks_for_the_same_again(reproduce, requests: list[Request]) -> None:
    options = ["--datasets", "my graph.npz,cora", "--seeds", "0,1", "--workers", "2", "--device", "cpu", "--quick"]
    assert reproduce("depth", *options, "--out", "here", "--data-root", "raw")[0] == 0
    command = requests[0].command  # where the files are is a matter of each machine
    assert command == f"python -m experiments depth {shlex.join(options)}"
    assert reproduce(*shlex.split(command)[3:], "--out", "here", "--data-root", "raw")[0] == 0
    assert requests[0] == requests[1]
    assert reproduce("all", "--workers", "2")[0] == 0
    assert [request.command for request in requests[2:]] == [
        f"python -m experiments {name} --workers 2" for name in EXPERIMENTS
    ]


def test_help_names_every_experiment_and_an_unknown_one_is_refused(reproduce) -> None:
    code, out, _ = reproduce("--help")
    listed = re.sub(r"(?<=-)\n *", "", out)  # lines break within a name, too
    assert code == 0
    assert all(re.search(rf"\b{name}\b", listed) for name in EXPERIMENTS)
    code, _, err = reproduce("table-7")
    assert code == 2
    assert "table-7" in err.splitlines()[-1]


@pytest.mark.parametrize("experiment", ["convergence", "depth", "communication"])
def test_experiments_leave_rows_a_table_and_figures(
    reproduce, monkeypatch: pytest.MonkeyPatch, experiment: str
) -> None:
    short = {method: settings | {"epochs": 3} for method, settings in depth.METHODS.items()}
    monkeypatch.setattr(depth, "METHODS", short)
    monkeypatch.setattr(convergence, "SETTINGS", convergence.SETTINGS | {"epochs": 5})
    cases = {case: communication.CASES[case] for case in ("nothing", "p and q at 8 bits")}
    monkeypatch.setattr(communication, "CASES", cases)
    code, out, err = reproduce(experiment, "--quick", "--datasets", "digits")
    assert code == 0
    folder = Path("results") / f"{experiment}-quick"
    figure = ["figure.png"] if experiment != "communication" else []
    assert sorted(path.name for path in folder.glob("[!.]*")) == [*figure, "results.jsonl", "table.md"]
    assert out == (folder / "table.md").read_text()
    assert out.startswith("|")
    # One line of progress per row of the experiment, which counts to the end.
    lines = [line for line in err.splitlines() if "digits" in line]
    assert [line.split()[0] for line in lines] == [f"{done}/{len(lines)}" for done in range(1, len(lines) + 1)]
    before = (folder / "results.jsonl").read_bytes()
    assert before.count(b"\n") == len(lines)
    assert reproduce(experiment, "--quick", "--datasets", "digits")[1] == out
    assert before == (folder / "results.jsonl").read_bytes()


@pytest.mark.parametrize("experiment", ["table-100", "depth by Adam"])
def test_an_interrupted_run_ends_the_command_and_is_no_result(
    reproduce, monkeypatch: pytest.MonkeyPatch, experiment: str
) -> None:
    name, _, adam = experiment.partition(" ")
    if adam:
        monkeypatch.setattr(depth, "METHODS", {key: value for key, value in depth.METHODS.items() if "Adam" in key})
    monkeypatch.setattr(Stage, "_epoch", interrupt)
    monkeypatch.setattr(Baseline, "_descend", interrupt)
    code, out, err = reproduce(name, "--quick", "--datasets", "digits")
    assert (code, out, err.splitlines()[-1]) == (130, "", "interrupted")
    assert list(Path("results", f"{name}-quick").iterdir()) == []
