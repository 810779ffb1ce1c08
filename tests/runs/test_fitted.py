"""What was fitted in Python and saved as a run folder is one to Python and to the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from helpers.commands import assert_refused
from helpers.faults import interrupted_run
from pdadmm_g import GAMLPClassifier, InputError
from pdadmm_g.cli import main

SMALL: dict[str, Any] = {"layers": 3, "hidden": 8, "epochs": 5, "weight_decay": 0.1, "unlabelled": 0}
GRAPH: dict[str, Any] = SMALL | {
    "augment": "average", "hops": 2, "teleport": 0.05, "normalize": "unit", "class_weight": {0: 2.0},
}  # fmt: skip


@pytest.fixture
def clf(tiny_graph: Data) -> GAMLPClassifier:
    return GAMLPClassifier(random_state=3, **GRAPH).fit(tiny_graph)


def test_a_run_folder_is_loaded_as_it_was_saved(clf: GAMLPClassifier, tiny_graph: Data, tmp_path: Path) -> None:
    clf.save(tmp_path / "run", tiny_graph)
    again = GAMLPClassifier.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict_proba(tiny_graph), clf.predict_proba(tiny_graph))
    assert len(again.history_) == 10
    for name in ("history_", "seconds_", "plan_", "message_", "choices_", "status_", "seed_", "n_iter_", "config_"):
        assert getattr(again, name) == getattr(clf, name), name
    clf.save(tmp_path / "model.safetensors")
    assert (tmp_path / "run/model.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert (summary["test_accuracy"], summary["epochs"], summary["seed"]) == (1.0, 10, 3)
    alone = GAMLPClassifier.load(tmp_path / "model.safetensors")
    assert (alone.history_, alone.seed_, alone.plan_) == ([], None, (len(clf.model_.linears),))
    again.save(tmp_path / "again", tiny_graph)
    for name in ("config.yaml", "metrics.jsonl", "model.safetensors"):
        ours, theirs = ((tmp_path / folder / name).read_text("latin-1") for folder in ("run", "again"))
        assert ours.replace(str(tmp_path / "run"), str(tmp_path / "again")) == theirs, name


def test_the_command_reads_it(clf: GAMLPClassifier, tmp_path: Path, graph_file: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    clf.save("run")

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(list(arguments))
        return int(caught.value.code or 0), *capsys.readouterr()

    message = "run: was saved in Python, which does not tell the data set; give --dataset"
    assert_refused(*run("evaluate", "run"), message)
    assert_refused(*run("predict", "run", "--out", "p.csv"), message)
    code, out, _ = run("evaluate", "run", "--dataset", str(graph_file))
    assert code == 0
    assert "test accuracy: 1.000" in out.splitlines()
    assert run("predict", "run", "--dataset", str(graph_file), "--out", "p.csv")[0] == 0
    assert run("report", "run")[0] == 0
    assert run("export", "run", "--format", "safetensors")[0] == 0


def test_saving_replaces_what_was_saved_and_nothing_else(
    clf: GAMLPClassifier, tiny_graph: Data, tmp_path: Path
) -> None:
    clf.save(tmp_path / "run")
    before = (tmp_path / "run/model.safetensors").read_bytes()
    clf.set_params(random_state=4).fit(tiny_graph).save(tmp_path / "run")
    assert (tmp_path / "run/model.safetensors").read_bytes() != before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/config.yaml").write_text("of something else")
    with pytest.raises(InputError, match=r"mine: holds files that are not of a run; choose another folder"):
        clf.save(tmp_path / "mine")
    interrupted_run(tmp_path / "unfinished")
    with pytest.raises(InputError, match="holds a run with a checkpoint to go on from; choose another folder"):
        clf.save(tmp_path / "unfinished")
    with pytest.raises(InputError, match="a model file has no place for accuracies"):
        clf.save(tmp_path / "model.safetensors", tiny_graph)


def test_a_report_from_python(clf: GAMLPClassifier, tiny_graph: Data, tmp_path: Path) -> None:
    clf.report(tmp_path / "page.html")
    embedded = (tmp_path / "page.html").read_text().split('id="data">')[1].split("</script>")[0]
    assert not {"out", "dataset"} & {*json.loads(embedded)["runs"][0]["config"]}
    assert json.loads(embedded)["runs"][0]["confusion"] is None
    clf.report(tmp_path / "page.html", tiny_graph)
    scored = (tmp_path / "page.html").read_text()
    assert "<title>pdadmm-g: page</title>" in scored
    assert '"confusion":{"nodes":"test"' in scored
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_model_that_overflows_is_saved_without_figures(
    clf: GAMLPClassifier, tiny_graph: Data, tmp_path: Path
) -> None:
    with torch.no_grad():
        for parameter in clf.model_.parameters():
            parameter.fill_(3e38)
    with pytest.warns(UserWarning, match="row 0 of the features is NaN or infinite"):
        clf.save(tmp_path / "run", tiny_graph)
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert (summary["test_accuracy"], summary["metrics"], summary["confusion"]) == (None, {}, None)
