"""What scripts and shells rely on: streams, JSON, completion, help."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.shell_completion import BashComplete
from rich.console import Console
from torch_geometric.data import Data

from pdadmm_g.cli import cli, main
from pdadmm_g.cli.completion import DATASETS
from pdadmm_g.cli.export import FORMATS
from pdadmm_g.config import GROUPS, ModelConfig, RunConfig
from pdadmm_g.data.datasets import BENCHMARKS
from pdadmm_g.runs import progress
from pdadmm_g.runs.progress import Progress, TimeLeft, duration

SMALL = ["--layers", "3", "--hidden", "8", "--epochs", "5", "--augment", "average", "--weight-decay", "0.1"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_graph: Data):
    """Run the command in a folder with a graph.npz; gives (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    np.savez("graph.npz", **{name: np.asarray(value) for name, value in tiny_graph.to_dict().items()})

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(list(arguments))
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return call


# -------------------------------------------------------------------------------------------------- quiet and JSON


def test_train_and_use_in_a_script(run) -> None:
    train = ["train", "--dataset", "graph.npz", "--out", "run", "--overwrite", *SMALL]
    code, out, err = run(*train, "--json")
    assert code == 0
    assert out.count("\n") == 1
    summary = json.loads(out)
    assert summary == json.loads(Path("run/summary.json").read_text()) | {"out": "run"}
    assert "epoch 5/5" in err
    assert run(*train, "--quiet") == (0, "", "")
    code, out, err = run(*train, "--quiet", "--json")
    assert (json.loads(out)["status"], err) == (summary["status"], "")

    assert json.loads(run("evaluate", "run", "--json")[1]) == {
        "train_accuracy": 1.0, "val_accuracy": 1.0, "test_accuracy": 1.0,
    }  # fmt: skip
    assert run("evaluate", "run", "-q") == (0, "", "")
    assert json.loads(run("predict", "run", "--out", "p.csv", "--json")[1]) == {"predictions": 20, "file": "p.csv"}


def test_errors_are_printed_in_every_mode(run) -> None:
    for mode in ("--quiet", "--json"):
        assert run("train", "--rho", "0", mode) == (2, "", "error: rho must be positive, got 0.0\n")


def test_a_numerical_failure_is_told_in_every_mode(run) -> None:
    train = ["train", "--dataset", "graph.npz", *SMALL, "--method", "gd", "--learning-rate", "1e15", "--out"]
    code, out, err = run(*train, "quiet", "--quiet")
    assert (code, out) == (3, "")
    assert err.startswith("error: NON_FINITE: epoch 2, the loss. NaN or infinity appeared")
    assert err.count("\n") == 1
    code, out, _ = run(*train, "json", "--json")
    assert (code, json.loads(out)["status"]) == (3, "NON_FINITE")
    assert Path("json/model.safetensors").exists()


def test_tune_in_a_script(run) -> None:
    code, out, err = run("tune", "--dataset", "graph.npz", "--budget", "2", *SMALL, "--json")
    assert code == 0
    assert json.loads(out).keys() == {"trial", "val_accuracy", "trials", "file"}
    assert json.loads(out)["file"] == "best.yaml"
    assert "trial 2/2" in err


def test_lists_and_measurements_in_a_script(run) -> None:
    rows = json.loads(run("datasets", "--json")[1])["datasets"]
    assert [row["name"] for row in rows] == list(DATASETS)
    size = ["--nodes", "20", "--features", "10", "--hidden", "8", "--layers", "3", "--seconds", "0.01"]
    code, out, _ = run("bench", "--methods", "floor", *size, "--json", "--out", "bench.json")
    assert code == 0
    assert json.loads(out) == json.loads(Path("bench.json").read_text())


# --------------------------------------------------------------------------------------------------------- time left


def test_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    left = TimeLeft()
    assert [left.after(done, 10) for done in (1, 2)] == ["", ""]  # found, not computed
    clock[0] += 60
    assert left.after(4, 10) == "; about 3 min left"  # two in a minute, six to go
    clock[0] += 60
    assert left.after(10, 10) == ""
    assert [duration(seconds) for seconds in (0.4, 59, 90, 3600, 12000)] == [
        "0 s",
        "59 s",
        "2 min",
        "1 h 0 min",
        "3 h 20 min",
    ]


def test_time_left_of_a_resumed_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs that a checkpoint has, and the time until the first one here, tell nothing of those to come."""
    clock, text = [100.0], io.StringIO()
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    shown = Progress(ModelConfig(layers=4, stages=(2, 4), epochs=100), console=Console(file=text, width=200))
    record = {"stage": 2, "objective": 1.0, "val_accuracy": None, "workers": []}
    clock[0] += 500
    for epoch in (71, 72, 73, 74, 75):
        shown.update(record | {"stage_epoch": epoch, "epoch": 120 + epoch})
        clock[0] += 2
    assert text.getvalue().splitlines() == [
        "4 layers (stage 2/2), epoch 71/100: objective 1",
        "4 layers (stage 2/2), epoch 75/100: objective 1; about 50 s left of the stage",
    ]


@pytest.mark.parametrize(("method", "depth"), [("sgc", "1 layer"), ("sign", "2 layers")])
def test_methods_of_a_fixed_depth_have_one_stage(run, method: str, depth: str) -> None:
    _, _, err = run("train", "--dataset", "graph.npz", "--method", method, "--epochs", "2", "--layers", "5")
    assert f"{depth} (stage 1/1), epoch 2/2" in err


# -------------------------------------------------------------------------------------------------------- completion


def complete(*words: str) -> list[str]:
    """What a shell would be offered after these words, the last one incomplete."""
    *before, incomplete = words
    shell = BashComplete(cli, {}, "pdadmm-g", "_PDADMM_G_COMPLETE")
    return [f"{item.type},{item.value}" for item in shell.get_completions(before, incomplete)]


def test_completion_of_commands_choices_and_data_sets() -> None:
    assert complete("do") == ["plain,doctor"]
    assert complete("train", "--activation", "s") == ["plain,sigmoid"]
    assert complete("train", "--levels", "p") == ["plain,paper"]
    assert complete("train", "--out", "ru") == ["dir,ru"]
    assert complete("evaluate", "ru") == ["dir,ru"]
    assert complete("export", "run", "--format", "") == [f"plain,{name}" for name in FORMATS]
    assert complete("reproduce", "table-b") == ["plain,table-best"]


def test_bash_asks_and_is_answered_without_loading_torch() -> None:
    words = {"COMP_WORDS": "pdadmm-g train --dataset amazon", "COMP_CWORD": "3"}
    script = "import sys; sys.modules['torch'] = None; from pdadmm_g.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | words | {"_PDADMM_G_COMPLETE": "bash_complete"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.stdout.splitlines() == ["plain,amazon-computers", "plain,amazon-photo", "file,amazon"]
    assert result.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(run, shell: str) -> None:
    code, out, _ = run("completion", shell)
    assert code == 0
    assert f"_PDADMM_G_COMPLETE={shell}_complete" in out


def test_names_kept_for_completion_are_those_of_the_library() -> None:
    from pdadmm_g.runs import export

    assert list(DATASETS) == ["digits", *BENCHMARKS]
    assert list(FORMATS) == list(export.FORMATS)


# -------------------------------------------------------------------------------------------------------------- help


def test_help_names_exit_codes_and_examples(run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    text = " ".join(out.split())
    for part in ("0 success", "2 wrong input", "3 numerical failure", "4 a worker was lost", "130 interrupted"):
        assert part in text
    for name in ("train", "tune", "evaluate", "predict", "export", "reproduce", "bench", "doctor"):
        assert f"pdadmm-g {name} " in run(name, "--help")[1].split("Options")[0].split("\n\n", 1)[1]


def test_help_of_train_shows_every_setting_once_in_its_section(run) -> None:
    out = run("train", "--help")[1]
    for item in dataclasses.fields(RunConfig):
        flag = "--" + item.name.replace("_", "-")
        assert sum(line.split()[0] == flag for line in out.splitlines() if line.startswith("  --")) == 1, flag
    titles = [line[:-1] for line in out.splitlines() if line[:1].isalpha() and line.endswith(":")]
    assert titles == [*GROUPS, "Other options"]
    assert "YAML file for the best settings [default: best.yaml]" in " ".join(run("tune", "--help")[1].split())
