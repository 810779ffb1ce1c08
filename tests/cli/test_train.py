from __future__ import annotations

import csv
import dataclasses
import json
import signal
from pathlib import Path

import numpy as np
import pytest
from torch_geometric.data import Data

from helpers.commands import SMALL, assert_refused, save
from helpers.run_files import epochs_of
from pdadmm_g.config import GROUPS, RunConfig
from pdadmm_g.engine.worker import Worker


def test_train_evaluate_predict(run, graph_file: Path, tiny_graph: Data) -> None:
    settings = ("--seed", "3", *SMALL, "--growth", "all", "--quantize", "p")
    code, out, _ = run("train", "--dataset", graph_file, "--out", "run", *settings)
    assert code == 0
    assert "accuracy: train 1.000, validation 1.000, test 1.000" in out
    assert "expected accuracy: 1.000, 90% interval 0.607 to 1.000, by 6 validation nodes, of which" in out
    assert "expected AUROC: 1.000, 90% interval " in out

    assert sorted(path.name for path in Path("run").iterdir()) == [
        "config.yaml", "metrics.jsonl", "model.safetensors", "summary.json",
    ]  # fmt: skip
    config = RunConfig.load("run/config.yaml")
    assert config == config.resolved()
    assert (config.layers, config.seed, config.quantize, config.bits) == (3, 3, "p", 8)
    summary = json.loads(Path("run/summary.json").read_text())
    metrics = epochs_of("run")
    assert summary["epochs"] == len(metrics)
    assert summary["seconds"] == pytest.approx(sum(record["seconds"] for record in metrics))
    assert summary["parameters"] == 5 * 8 + 8 + 8 * 8 + 8 + 8 * 2 + 2
    assert summary["seed"] == 3
    assert set(summary["versions"]) == {"pdadmm_g", "python", "torch"}
    assert {"status", "train_accuracy", "val_accuracy", "test_accuracy"} <= set(summary)

    code, out, _ = run("evaluate", "run")
    assert code == 0
    assert out.splitlines()[:3] == ["train accuracy: 1.000", "val accuracy: 1.000", "test accuracy: 1.000"]

    code, _, _ = run("predict", "run", "--out", "preds.csv")
    assert code == 0
    rows = list(csv.DictReader(Path("preds.csv").read_text().splitlines()))
    assert [int(row["label"]) for row in rows] == tiny_graph.y.tolist()
    assert [int(row["node"]) for row in rows] == list(range(20))
    assert all(0.5 < float(row["probability"]) <= 1 for row in rows)


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third epoch of a stage meets NaN."""
    epoch = Worker.epoch

    def poisoned(worker: Worker) -> object:
        if worker.epochs == 2:
            worker.layers[0].z[0, 0] = float("nan")
        return epoch(worker)

    monkeypatch.setattr(Worker, "epoch", poisoned)


def test_finished_runs_are_not_overwritten(run, graph_file: Path, tmp_path: Path, tiny_graph: Data) -> None:
    arguments = ["train", "--out", "run", *SMALL, "--dataset", graph_file]
    run(*arguments)
    before = Path("run/model.safetensors").read_bytes()
    message = "error: run: already holds a finished run; choose another --out or add --overwrite"
    assert_refused(*run(*arguments, "--seed", "9"), message)
    broken = save(tmp_path / "broken.npz", tiny_graph, x=np.full((20, 5), np.nan))
    assert_refused(*run(*arguments[:-1], broken, "--overwrite"), "broken.npz", "NaN or infinity")
    assert Path("run/model.safetensors").read_bytes() == before
    Path("run/report.html").write_text("about the old run")
    assert run(*arguments, "--seed", "9", "--overwrite")[0] == 0
    assert Path("run/model.safetensors").read_bytes() != before
    assert not Path("run/report.html").exists()


@pytest.mark.parametrize(
    ("options", "culprit"),
    [
        (["--dataset", "korra"], "'korra'"), (["--dataset", "none.npz"], "none.npz: no such file"),
        (["--dataset", "cora", "--data-root", "nowhere"], "nowhere: no such folder"),
        (["--rho", "0", "--quiet"], "rho must be"), (["--rho", "0", "--json"], "rho must be"),
        (["--device", "abacus"], "'abacus'"), (["--config", "none.yaml"], "none.yaml"),
        (["--roh", "1"], "No such option"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_bad_options(run, options: list[str], culprit: str) -> None:
    assert_refused(*run("train", "--out", "run", *options), culprit)
    assert not Path("run").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_writes_the_best_model(run, monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    code, out = interrupted(run, monkeypatch, 3, "--out", "run", number=number)
    assert code == 130
    assert "INTERRUPTED" in out
    assert json.loads(Path("run/summary.json").read_text())["status"] == "INTERRUPTED"
    assert run("evaluate", "run")[0] == 0


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

    figures = json.loads(run("evaluate", "run", "--json")[1])
    assert [figures.pop(f"{part}_accuracy") for part in ("train", "val", "test")] == [1.0] * 3
    assert figures == {"metrics": summary["metrics"]}
    assert run("evaluate", "run", "-q") == (0, "", "")
    assert json.loads(run("predict", "run", "--out", "p.csv", "--json")[1]) == {"predictions": 20, "file": "p.csv"}


@pytest.mark.usefixtures("poisoned")
def test_a_numerical_failure_is_told_in_every_mode(run) -> None:
    """With an exit code of its own. The best model is kept, and the run counts as finished."""
    train = ["train", "--dataset", "graph.npz", *SMALL, "--out"]
    code, out, err = run(*train, "quiet", "--quiet")
    assert (code, out) == (3, "")
    assert err.startswith("error: NON_FINITE: epoch 3, layer 1, variable ")
    assert err.count("\n") == 1
    code, out, _ = run(*train, "json", "--json")
    assert (code, json.loads(out)["status"]) == (3, "NON_FINITE")
    assert json.loads(Path("json/summary.json").read_text())["status"] == "NON_FINITE"
    assert run("evaluate", "json")[0] == 0


def test_help_of_train_shows_every_setting_once_in_its_section(run) -> None:
    out = run("train", "--help")[1]
    for item in dataclasses.fields(RunConfig):
        flag = "--" + item.name.replace("_", "-")
        assert sum(line.split()[0].rstrip(",") == flag for line in out.splitlines() if line.startswith("  --")) == 1, (
            flag
        )
    titles = [line[:-1] for line in out.splitlines() if line[:1].isalpha() and line.endswith(":")]
    assert titles == [*GROUPS, "Other options"]


def interrupted(run, monkeypatch, after: int, *options: str, number: signal.Signals = signal.SIGINT):
    """A run with a checkpoint after every epoch, interrupted in the one after these."""
    epoch, done = Worker.epoch, []

    def counted(worker: Worker) -> object:
        done.append(1)
        if len(done) > after:
            signal.raise_signal(number)
        return epoch(worker)

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "epoch", counted)
        code, out, err = run("train", "--dataset", "graph.npz", "--checkpoint-every", "1", *SMALL, *options)
    assert code == 130, err
    return code, out


def test_resume_alone_is_enough(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder, or where that is lost the checkpoint, knows the settings."""
    whole = ("--seed", "3", "--quantize", "p")
    run("train", "--dataset", "graph.npz", "--out", "whole", *SMALL, *whole)
    for lost in (False, True):
        interrupted(run, monkeypatch, 7, *whole, "--out", "run", "--overwrite")
        if lost:
            Path("run/config.yaml").unlink()
        code, _, err = run("train", "--resume", "--out", "run", "--timeout", "30")
        assert code == 0, err
        assert Path("run/model.safetensors").read_bytes() == Path("whole/model.safetensors").read_bytes()
        assert RunConfig.load("run/config.yaml").timeout == 30
        assert [record["epoch"] for record in epochs_of("run")] == list(range(1, 11))


def test_only_the_same_run_is_resumed(run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Data that have another name are known by what they are."""
    run("train", "--dataset", "graph.npz", "--out", "whole", *SMALL)
    interrupted(run, monkeypatch, 7, "--out", "run")
    for options, culprit in (
        (("run", "--rho", "7"), "run: cannot resume with rho = 7.0, the run has 5.0"),
        (("run", "--epochs", "4"), "epochs = 4, the run has 5"), (("nothing",), "nothing: holds no run to resume"),
    ):  # fmt: skip
        assert_refused(*run("train", "--resume", "--out", *options), culprit)
    (tmp_path / "graph.npz").rename("renamed.npz")
    assert_refused(*run("train", "--resume", "--out", "run"), "graph.npz: no such file")
    with np.load("renamed.npz") as arrays:
        np.savez("other.npz", **{name: -array if name == "x" else array for name, array in arrays.items()})
    resume = ("train", "--resume", "--out", "run", "--dataset")
    assert_refused(*run(*resume, "other.npz"), "was written for other data than ", "other.npz has")
    assert run(*resume, "renamed.npz")[0] == 0
    assert Path("run/model.safetensors").read_bytes() == Path("whole/model.safetensors").read_bytes()
    assert RunConfig.load("run/config.yaml").dataset.endswith("renamed.npz")


def test_more_epochs_may_be_given(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a run that was cut off, or has used all that it had: what comes of it is one run with that many."""
    one = ("--stages", "3", "--patience", "none", "--tolerance", "0")
    run("train", "--dataset", "graph.npz", "--out", "whole", *SMALL, *one, "--epochs", "9")
    whole = Path("whole/model.safetensors").read_bytes()
    interrupted(run, monkeypatch, 3, *one, "--out", "cut")
    assert run("train", "--resume", "--out", "cut", "--epochs", "9")[0] == 0
    assert Path("cut/model.safetensors").read_bytes() == whole
    assert run("train", "--dataset", "graph.npz", "--out", "full", "--checkpoint-every", "2", *SMALL, *one)[0] == 0
    resume = ("train", "--resume", "--out", "full")
    code, _, err = run(*resume)
    assert (code, err.count("full: already holds this run, finished; nothing is left to train")) == (0, 1)
    assert_refused(*run(*resume, "--epochs", "4"), "epochs = 4, the run has 5; leave it out, or give more")
    assert run(*resume, "--epochs", "7")[0] == 0
    assert run(*resume, "--epochs", "9")[0] == 0
    assert Path("full/model.safetensors").read_bytes() == whole
    assert json.loads(Path("full/summary.json").read_text())["epochs"] == 9
    code, _, err = run("train", "--dataset", "graph.npz", "--out", "full", *SMALL)
    assert (code, err.count("already holds a finished run; choose another --out")) == (2, 1)


def test_a_finished_run_without_a_checkpoint_does_not_go_on(run) -> None:
    """What is said to do instead can be done."""
    run("train", "--dataset", "graph.npz", "--out", "run", *SMALL, "--growth", "all")
    code, out, err = run("train", "--resume", "--out", "run", "--epochs", "9")
    assert_refused(code, out, err, "run: already holds a finished run, without a checkpoint to go on from; train on")
    remedy = err.split("from its model with ")[1].replace("ANOTHER", "another").split()
    assert run("train", *remedy, "--epochs", "9")[0] == 0
    assert json.loads(Path("another/summary.json").read_text())["epochs"] <= 9  # one stage: the depth is there
