from __future__ import annotations

import pytest

from helpers.faults import MEMBER
from pdadmm_g.cli import main, torchrun
from pdadmm_g.errors import InputError


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"WORLD_SIZE": ""}, "WORLD_SIZE is not"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR is not"),
        ({"RANK": "x"}, "RANK is 'x'"),
        ({"RANK": "-1"}, "RANK is '-1'"),
        ({"RANK": "4"}, "RANK 4 is not below WORLD_SIZE 4"),
        ({"MASTER_PORT": "70000"}, "MASTER_PORT is '70000'"),
        ({"WORLD_SIZE": "9" * 5000}, "WORLD_SIZE is '999"),
    ],
)
def test_an_environment_that_only_looks_like_torchruns(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], problem: str
) -> None:
    for name, value in (MEMBER | changes).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        InputError, match=rf"TORCHELASTIC_RUN_ID is set, but {problem}.*: start with torchrun, or unset"
    ):
        torchrun.processes()


def test_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "left over")  # and not by torchrun
    assert torchrun.processes() is None
    for name, value in MEMBER.items():
        monkeypatch.setenv(name, value)
    assert torchrun.processes() == 4


@pytest.mark.parametrize("command", ["train", "evaluate", "predict"])
def test_a_stray_variable_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "some")
    with pytest.raises(SystemExit) as caught:
        main([command] if command == "train" else [command, "nowhere"])
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("error: ") == 1


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in (MEMBER | {"RANK": "1"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("pdadmm_g.engine.launch.JOIN_SECONDS", -59.0)
    with pytest.raises(SystemExit) as caught:
        main(["train", "--unlabelled", "0", "--weight-decay", "0.1"])
    assert caught.value.code == 2
    assert "error: nobody answers at 127.0.0.1, port 1: start the process that" in capsys.readouterr().err
