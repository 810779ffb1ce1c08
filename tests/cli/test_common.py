"""What all commands have: help, completion, output, one-line errors, exit codes, torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.shell_completion import BashComplete

from helpers.commands import SMALL, assert_refused, save
from helpers.faults import MEMBER
from helpers.interrupts import interrupt
from pdadmm_g.cli import cli
from pdadmm_g.cli.common import DATASETS
from pdadmm_g.cli.finished import FORMATS
from pdadmm_g.engine.watchdog import WorkerLostError
from pdadmm_g.errors import InputError
from pdadmm_g.graph.datasets import BENCHMARKS
from pdadmm_g.graph.graph import Graph

# ---------------------------------------------------------------------------------------------- help and completion


def test_help_and_completion_do_not_import_torch() -> None:
    script = "import sys; sys.modules['torch'] = sys.modules['sklearn'] = None; from pdadmm_g.cli import main; main()"

    def shell(*arguments: str, **variables: str) -> str:
        command = [sys.executable, "-c", script, *arguments]
        return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=True).stdout

    found = shell("train", "--help")
    for name in ("--dataset", "--stages", "--weight-decay", "--quantize", "--levels", "--row-normalize"):
        assert name in found
    asked = {"COMP_WORDS": "pdadmm-g train --dataset amazon", "COMP_CWORD": "3", "_PDADMM_G_COMPLETE": "bash_complete"}
    assert shell(**asked).split() == ["plain,amazon-computers", "plain,amazon-photo", "file,amazon"]
    assert "_PDADMM_G_COMPLETE=fish_complete" in shell(_PDADMM_G_COMPLETE="fish_source")


def complete(*words: str) -> list[str]:
    """What a shell would be offered after these words, the last one incomplete."""
    *before, incomplete = words
    shell = BashComplete(cli, {}, "pdadmm-g", "_PDADMM_G_COMPLETE")
    return [f"{item.type},{item.value}" for item in shell.get_completions(before, incomplete)]


def test_completion_of_commands_choices_and_files() -> None:
    assert complete("do") == ["plain,doctor"]
    assert complete("train", "--activation", "s")[0] == "plain,sigmoid"
    assert complete("train", "--levels", "p")[0] == "plain,paper"
    assert complete("train", "--out", "ru") == complete("evaluate", "ru") == ["file,ru"]
    assert complete("export", "run", "--format", "") == [f"plain,{name}" for name in FORMATS]


def test_names_kept_for_completion_are_those_of_the_library(run) -> None:
    from pdadmm_g.runs import export

    assert list(DATASETS) == ["digits", *BENCHMARKS]
    assert list(FORMATS) == list(export.FORMATS)
    assert [row["name"] for row in json.loads(run("datasets", "--json")[1])["datasets"]] == list(DATASETS)


# --------------------------------------------------------------------------------------------- errors and exit codes


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (WorkerLostError("worker 1 was killed"), 4, "error: PEER_LOST: worker 1 was killed; start again with the sam"),
        (MemoryError(), 2, "error: not enough memory"),
        (OSError(28, "No space left on device", "some/file"), 2, "error: some/file: No space left on device"),
        (InputError("it is wrong"), 2, "error: it is wrong"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_failure_is_one_line(run, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, line: str):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(sys.modules["pdadmm_g.cli.demo"], "run_demo", fail)
    found, out, err = run("demo")
    assert (found, out, err.strip().count("\n")) == (code, "", 0)
    assert err.strip().startswith(line)


def test_whoever_reads_has_enough(run, tmp_path: Path) -> None:
    run("train", "--dataset", "graph.npz", "--out", "run", *SMALL)
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "pdadmm_g", "predict", "run", "--out", "-"]
    process = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path, text=True, check=False)
    os.close(writer)
    assert (process.returncode, process.stderr) == (1, "")


def test_bad_run_folders(run, graph_file: Path, tmp_path: Path, tiny_graph: Graph) -> None:
    assert_refused(*run("evaluate", "nowhere"), "nowhere: no such run folder")
    Path("empty").mkdir()
    assert_refused(*run("predict", "empty", "--out", "preds.csv"), "no such model file")
    run("train", "--dataset", graph_file, "--out", "run", *SMALL)
    narrow = save(tmp_path / "narrow.npz", tiny_graph, x=np.zeros((20, 3)))
    assert_refused(*run("evaluate", "run", "--dataset", narrow), "data has 3 features, the model was trained with 5")
    assert_refused(*run("predict", "run", "--out", "no/such/folder/preds.csv"), "cannot write")
    Path("file").write_text("")
    assert_refused(*run("train", "--dataset", graph_file, "--out", "file", *SMALL), "file: cannot write the run folder")


# ---------------------------------------------------------------------------------------------------------- torchrun


@pytest.mark.parametrize(
    ("changes", "culprit"),
    [
        ({"MASTER_ADDR": ""}, "MASTER_ADDR"), ({"RANK": "x"}, "RANK"), ({"WORLD_SIZE": "9" * 5000}, "WORLD_SIZE"),
    ],
)  # fmt: skip
def test_an_environment_that_only_looks_like_torchruns(run, monkeypatch: pytest.MonkeyPatch, changes, culprit) -> None:
    for name, value in (MEMBER | changes).items():
        monkeypatch.setenv(name, value)
    for command in (("train",), ("evaluate", "run")):
        if command == ("evaluate", "run"):
            Path("run").mkdir()
            Path("run/config.yaml").write_text("dataset: folder\n")
            Path("folder").mkdir()
            Path("folder/description.json").write_text("{}")
        assert_refused(*run(*command), f"TORCHELASTIC_RUN_ID is set, but {culprit} is", "start with torchrun, or unset")


def test_nobody_listens(run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (MEMBER | {"RANK": "1"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("pdadmm_g.engine.launch.JOIN_SECONDS", -59.8)
    refused = run("train", "--unlabelled", "0", "--weight-decay", "0.1")
    assert_refused(*refused, "nobody answers at 127.0.0.1, port 1: start the process that")


def test_an_interrupt_while_settings_are_chosen_saves_nothing(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdadmm_g.training.prepare.choose", interrupt)
    code, _, err = run("train", "--dataset", "graph.npz", "--out", "run", "--unlabelled", "0")
    assert (code, err.splitlines()[-1]) == (
        130, "interrupted before the first epoch: nothing was saved; start again with the same command",
    )  # fmt: skip
    assert not Path("run").exists()
    assert_refused(*run("train", "--resume", "--out", "run"), "run: holds no run to resume", "start it again without")
