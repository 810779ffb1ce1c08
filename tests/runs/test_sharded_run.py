"""From a folder of shards to predictions: the same as on one process with all data, on any number of them."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from helpers.commands import assert_refused
from helpers.communities import communities
from helpers.interrupts import interrupt
from pdadmm_g import GAMLPClassifier
from pdadmm_g.cli import main
from pdadmm_g.config import ModelConfig
from pdadmm_g.engine.watchdog import WorkerLostError
from pdadmm_g.graph.checks import check_graph
from pdadmm_g.graph.shards import graph_source, shard_graph
from pdadmm_g.runs import sharded
from pdadmm_g.runs.folder import RunFolder
from pdadmm_g.runs.run import train_run
from pdadmm_g.training import fit
from pdadmm_g.training.choose import choose_weight_decay
from pdadmm_g.training.prepare import prepare_graph

SETTINGS = {"layers": 3, "stages": (2, 3), "hidden": 12, "epochs": 15, "random_state": 0}
FEATURES = {"augment": "average", "hops": 3, "teleport": 0.05, "normalize": "centered", "unlabelled": 0}
OPTIONS = ["--layers", "3", "--stages", "2,3", "--hidden", "12", "--epochs", "15", "--hops", "3", "--quiet"]
DATA = communities(nodes=140, features=30, labels=12)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharded") / "graph"
    shard_graph(graph_source(DATA, "mark"), 4, folder)
    return folder


@pytest.fixture(scope="module")
def whole() -> GAMLPClassifier:
    """One process with the weight decay that it would choose by the rule of folders of shards."""
    settings = {name: value for name, value in (SETTINGS | FEATURES).items() if name != "random_state"}
    problem = prepare_graph(check_graph(DATA), ModelConfig(**settings, weight_decay=0.1).resolved(), seed=0)
    config = dataclasses.replace(problem.config, weight_decay=None)
    config, _ = choose_weight_decay(problem.training, problem.validation, 3, config, seed=0)
    estimator = GAMLPClassifier(**SETTINGS, **FEATURES, weight_decay=config.weight_decay, calibrate=False)
    return estimator.fit(DATA.clone())


def command(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    return int(caught.value.code or 0)


def trained(graph: Path, out: Path, *options: str) -> dict:
    assert command("train", "--dataset", graph, "--out", out, *OPTIONS, *options) == 0
    return json.loads((out / "summary.json").read_text())


def check(out: Path, whole: GAMLPClassifier) -> None:
    for name, tensor in load_file(out / "model.safetensors").items():
        expected = whole.model_.state_dict().get(name)
        expected = whole.augmentation_.learned()[name.removeprefix("extra.")] if expected is None else expected
        torch.testing.assert_close(tensor, expected, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def run(graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on one process."""
    out = tmp_path_factory.mktemp("trained") / "run"
    trained(graph, out)
    return out


@pytest.mark.timeout(300)
def test_two_shards_train_the_model_of_one_process(
    graph: Path, tmp_path: Path, whole: GAMLPClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, what was learned of the features, the weight decay that was chosen, and the scores."""
    monkeypatch.setattr("pdadmm_g.runs.sharded.ROWS", 13)
    summary = trained(graph, tmp_path / "run", "--shards", "2", "--workers", "1")
    check(tmp_path / "run", whole)
    assert summary["weight_decay"] == pytest.approx(whole.config_.weight_decay)
    for mask in ("train", "val", "test"):
        assert summary[f"{mask}_accuracy"] == pytest.approx(whole.score(DATA, DATA[f"{mask}_mask"]))
    assert np.sum(summary["confusion"]["counts"]) == int(DATA.test_mask.sum())
    assert len(summary["choices"]) == 3
    assert len(summary["processes"]) == 2


def test_labels_of_text_are_quoted_and_not_compared_with_numbers(
    graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, names = DATA.clone(), np.array(["=1+1", "cat, small", 'a "dog"', "emu"])
    data.y = names[data.y.numpy()]
    clf = GAMLPClassifier(**SETTINGS, **FEATURES, weight_decay=0.1).fit(data)
    (tmp_path / "run").mkdir()
    clf.save(tmp_path / "run" / "model.safetensors")
    assert command("predict", tmp_path / "run", "--dataset", graph, "--out", tmp_path / "p.csv", "--quiet") == 0
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == clf.predict(data).tolist()
    capsys.readouterr()
    code = command("evaluate", tmp_path / "run", "--dataset", graph, "--quiet")
    assert_refused(code, *capsys.readouterr(), "the labels of the data are numbers")


@pytest.mark.timeout(300)
def test_predictions_are_those_of_one_process(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classifier = GAMLPClassifier.load(run / "model.safetensors")
    expected, probabilities = classifier.predict(DATA), classifier.predict_proba(DATA).max(1)
    assert command("predict", run, "--out", tmp_path / "one.csv", "--quiet") == 0
    assert command("predict", run, "--out", tmp_path / "two.csv", "--shards", 2, "--quiet") == 0
    rows = [line.split(",") for line in (tmp_path / "one.csv").read_text().splitlines()]
    assert rows[0] == ["node", "label", "probability"]
    assert [int(row[0]) for row in rows[1:]] == list(range(140))
    assert [int(row[1]) for row in rows[1:]] == expected.tolist()
    assert [float(row[2]) for row in rows[1:]] == pytest.approx(probabilities.tolist(), abs=2e-5)
    assert (tmp_path / "one.csv").read_text() == (tmp_path / "two.csv").read_text()
    assert sorted(path.name for path in tmp_path.glob("*.csv*")) == ["one.csv", "two.csv"]
    capsys.readouterr()
    assert command("evaluate", run, "--json", "--quiet") == 0
    assert json.loads(capsys.readouterr().out)["test_accuracy"] == pytest.approx(classifier.score(DATA))


@pytest.mark.timeout(300)
def test_interrupted_predictions_leave_no_piece(
    graph: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "labels.csv"
    out.write_text("earlier\n")
    monkeypatch.setattr(sharded, "all_figures", interrupt)  # all is written, and nothing is joined
    assert command("predict", run, "--out", out, "--quiet") == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labels.csv"]
    assert out.read_text() == "earlier\n"
    capsys.readouterr()
    assert_refused(command("predict", run, "--out", graph, "--quiet"), *capsys.readouterr(), "it is a folder")


@pytest.mark.timeout(300)
def test_features_go_by_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = DATA.clone()
    data.feature_names = tuple(f"word {i}" for i in range(30))
    shard_graph(graph_source(data, "mark"), 2, tmp_path / "graph")
    trained(tmp_path / "graph", tmp_path / "run", "--weight-decay", "0.1")
    classifier = GAMLPClassifier.load(tmp_path / "run" / "model.safetensors")
    assert classifier.feature_names_in_.tolist() == list(data.feature_names)
    turned = data.clone()
    turned.x, turned.feature_names = data.x.flip(1), data.feature_names[::-1]
    assert np.array_equal(classifier.predict(turned), classifier.predict(data))
    shard_graph(graph_source(turned, "other"), 2, tmp_path / "turned")
    capsys.readouterr()
    code = command("predict", tmp_path / "run", "--dataset", tmp_path / "turned", "--out", tmp_path / "p.csv")
    assert_refused(code, *capsys.readouterr(), "the features stand in another order than those of the model")


class Struck(Exception):
    pass


@pytest.mark.timeout(300)
def test_the_model_is_there_before_it_is_scored(
    graph: Path, tmp_path: Path, whole: GAMLPClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What happens while it is scored leaves the model, and --resume scores it, also where the data have moved."""
    run, moved, said = tmp_path / "run", tmp_path / "moved", list[str]()
    settings = {"layers": 3, "stages": (2, 3), "hidden": 12, "epochs": 15, "hops": 3, "shards": 1}
    config = sharded.RunConfig(dataset=str(graph), out=str(run), **settings).resolved()
    kept = RunFolder.keep

    def keep(folder: RunFolder, *arguments: Any) -> None:
        kept(folder, *arguments)
        raise Struck

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "keep", keep)
        with pytest.raises(Struck):
            train_run(config)
    assert RunFolder(run).unscored
    check(run, whole)
    shutil.copytree(graph, moved)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(sharded, "fit_sharded", never)
    summary = train_run(dataclasses.replace(config, dataset=str(moved)), resume=True, say=said.append)
    assert f"{run}: holds the trained model, which is scored now" in said
    assert summary == json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["epochs"], summary["dataset"]) == ("MAX_EPOCHS", 30, str(moved))
    assert summary["test_accuracy"] == pytest.approx(whole.score(DATA, DATA.test_mask))
    assert np.sum(summary["confusion"]["counts"]) == int(DATA.test_mask.sum())
    assert RunFolder(run).config().dataset == str(moved)


@pytest.mark.timeout(300)
def test_a_process_lost_while_scoring_leaves_the_model(
    graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "WORKER", [sys.executable, str(Path(__file__).with_name("lost_while_scoring.py"))])
    config = sharded.RunConfig(dataset=str(graph), out=str(tmp_path / "run"), layers=2, hidden=4, epochs=2, shards=2)
    with pytest.raises(WorkerLostError):
        train_run(config)
    assert RunFolder(tmp_path / "run").unscored
    monkeypatch.undo()
    summary = train_run(config, resume=True)
    assert summary is not None
    assert (summary["status"], summary["test_accuracy"] is not None) == ("MAX_EPOCHS", True)


@pytest.mark.timeout(300)
def test_a_mistake_is_one_line_and_exit_code_2(graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "graph"
    shutil.copytree(graph, folder)

    def said(*options: str) -> str:
        assert command("train", "--dataset", folder, "--out", tmp_path / "run", "--quiet", *options) == 2
        assert not (tmp_path / "run").exists()
        error = capsys.readouterr().err.replace(str(folder), "F")
        assert error.startswith("error: ")
        assert error.count("\n") == 1
        return error

    assert "its 4 shards cannot be dealt to 3 processes" in said("--shards", "3")
    assert "drop_entries" in said("--unlabelled", "40", "--drop-entries", "0.5")
    assert "directed = both is for a graph in one file" in said("--directed", "both")
    assert "refit is for a graph in one file" in said("--refit")
    mask = np.load(folder / "shard-1-of-4" / "train_mask.npy")
    np.save(folder / "shard-1-of-4" / "y.npy", np.full(35, -1))
    assert f"F/shard-1-of-4: node {int(np.flatnonzero(mask)[0])} of train_mask has no label" in said()
    np.save(folder / "shard-1-of-4" / "y.npy", np.zeros(35, dtype=np.int64))
    assert "F: class 1 has no training node" in said()
    for place in range(1, 5):
        np.save(folder / f"shard-{place}-of-4" / "train_mask.npy", np.zeros(35, dtype=bool))
    assert "F: train_mask is empty" in said()
    shutil.rmtree(folder / "shard-4-of-4")
    assert "F/shard-4-of-4: is missing" in said("--shards", "2")
