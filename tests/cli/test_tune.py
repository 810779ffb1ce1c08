from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.commands import FIXED, SMALL
from helpers.interrupts import interrupt
from pdadmm_g.cli import main
from pdadmm_g.training.stage import Stage


def test_tune_in_a_script(run) -> None:
    code, out, err = run("tune", "--dataset", "graph.npz", "--budget", "2", *SMALL, "--json")
    assert code == 0
    assert json.loads(out).keys() == {"trial", "val_accuracy", "trials", "file"}
    assert json.loads(out)["file"] == "best.yaml"
    assert "trial 2/2" in err


def test_an_interrupted_search_ends_the_command_and_writes_nothing(reproduce, monkeypatch) -> None:
    monkeypatch.setattr(Stage, "_epoch", interrupt)
    with pytest.raises(SystemExit) as caught:
        main(["tune", "--dataset", "digits", "--budget", "2", "--layers", "2", *FIXED])
    assert caught.value.code == 130
    assert list(Path().iterdir()) == []


def test_an_interrupted_search_leaves_the_best_so_far(reproduce, monkeypatch: pytest.MonkeyPatch) -> None:
    def second_trial(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pdadmm_g.experiments.tune._draw", second_trial)
    options = ["--layers", "2", "--weight-decay", "0.5", "--epochs", "2", "--augment", "none", "--hidden", "8"]
    with pytest.raises(SystemExit) as caught:
        main(["tune", "--dataset", "digits", "--budget", "2", *options])
    assert caught.value.code == 130
    assert "hidden: 8\n" in Path("best.yaml").read_text()


def test_a_search_that_could_not_be_written_is_not_begun(reproduce, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["tune", "--dataset", "digits", "--out", "no/such/best.yaml"])
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("error: no/such/best.yaml: cannot write: no/such is no folder")
    with pytest.raises(SystemExit) as caught:
        main(["tune", "--dataset", "digits", "--out", "."])
    assert caught.value.code == 2
    assert capsys.readouterr().err == "error: .: cannot write: it is a folder; name a file\n"


def test_tune_never_sees_the_test_nodes(capsys, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--layers", "2", "--epochs", "5", "--unlabelled", "0"]
    with pytest.raises(SystemExit) as caught:
        main(["tune", "--dataset", "digits", "--budget", "2", *options, *FIXED[:-1], "0.5"])
    assert not caught.value.code
    out, err = capsys.readouterr()
    assert out == "best settings written to best.yaml; next: pdadmm-g train --config best.yaml\n"
    assert "trial 2/2: validation" in err
    assert "weight_decay" not in err
    from pdadmm_g.config import RunConfig

    config = RunConfig.load("best.yaml")
    assert (config.layers, config.weight_decay, config.dataset) == (2, 0.5, "digits")
