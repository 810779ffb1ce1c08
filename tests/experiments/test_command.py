from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import experiments.__main__
from experiments import EXPERIMENTS, Request


def test_the_recorded_command_asks_for_the_same_again(reproduce, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    def record(name: str, request: Request, on_row) -> str:
        requests.append(request)
        return ""

    monkeypatch.setattr(experiments.__main__, "run_experiment", record)
    options = ["--datasets", "my graph.npz,cora", "--seeds", "0,1", "--workers", "2", "--device", "cpu", "--quick"]
    assert reproduce("depth", *options, "--out", "here", "--data-root", "raw")[0] == 0
    command = requests[0].command
    assert command == (
        "python -m experiments depth --datasets 'my graph.npz,cora' --seeds 0,1 --workers 2 --device cpu --quick"
    )
    # Where the files are is a matter of each machine.
    assert reproduce(*shlex.split(command)[3:], "--out", "here", "--data-root", "raw")[0] == 0
    assert requests[0] == requests[1]


def test_all_experiments_record_a_command_each(reproduce, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []

    def record(_: str, request: Request, __: object) -> str:
        commands.append(request.command)
        return ""

    monkeypatch.setattr(experiments.__main__, "run_experiment", record)
    assert reproduce("all", "--workers", "2")[0] == 0
    assert commands == [f"python -m experiments {name} --workers 2" for name in EXPERIMENTS]


def test_help_names_every_experiment(reproduce) -> None:
    code, out, _ = reproduce("--help")
    listed = re.sub(r"(?<=-)\n *", "", out)  # lines break within a name, too
    assert code == 0
    assert all(re.search(rf"\b{name}\b", listed) for name in EXPERIMENTS)


def test_unknown_experiment(reproduce) -> None:
    code, _, err = reproduce("table-7")
    assert code == 2
    assert "table-7" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--workers", "0"], "--workers must be at least 1, got 0"),
        (["--hidden", "-4"], "--hidden must be at least 1, got -4"),
        (["--rows", "100,0"], "--rows must be at least 1, got 0"),
        (["--seeds", "0,-1"], "--seeds must be between 0 and 2^62, got -1"),
        (["--seeds", str(2**62)], f"--seeds must be between 0 and 2^62, got {2**62}"),
    ],
)
def test_numbers_that_nothing_can_be_run_with(options: list[str], message: str, reproduce) -> None:
    code, _, err = reproduce("homophily", "--quick", *options)
    assert (code, err) == (2, f"error: {message}\n")
    assert not list(Path().iterdir())
