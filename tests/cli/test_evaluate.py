from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from torch_geometric.data import Data

from helpers.commands import SMALL, assert_refused, save
from helpers.estimators import classifier
from pdadmm_g import InputError


def test_figures_of_all_masks_and_without_any(run, graph_file: Path, tiny_graph: Data, tmp_path: Path) -> None:
    assert run("train", "--dataset", graph_file, *SMALL, "--out", "run")[0] == 0
    code, out, _ = run("evaluate", "run")
    assert code == 0
    assert re.search(r"^val accuracy: 1.000$", out, re.MULTILINE)
    assert re.search(r"^f1 macro: train 1.000, validation 1.000, test 1.000$", out, re.MULTILINE)
    found = json.loads(run("evaluate", "run", "--json")[1])
    assert list(found["metrics"]) == ["train", "val", "test"]
    assert found["test_accuracy"] == found["metrics"]["test"]["accuracy"] == 1.0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["metrics"] == found["metrics"]
    assert "expected" not in out
    code, out, _ = run("evaluate", "run", "--dataset", save(tmp_path / "no-test.npz", tiny_graph, test_mask=None))
    assert re.search(r"^expected accuracy: 1.000, 90% .*\nexpected AUROC: 1.000.*\nno test nodes", out, re.MULTILINE)
    found = json.loads(run("evaluate", "run", "--dataset", "no-test.npz", "--json")[1])
    assert found["estimate"] == json.loads((tmp_path / "run" / "summary.json").read_text())["estimate"] is not None
    bare = tiny_graph.clone()
    del bare.train_mask, bare.val_mask, bare.test_mask
    _, out, _ = run("evaluate", "run", "--dataset", save(tmp_path / "bare.npz", bare))
    assert "no node is marked as train, validation or test: these are figures of all 20 nodes with a label\n" in out
    found = json.loads(run("evaluate", "run", "--dataset", "bare.npz", "--json")[1])
    assert (found["test_accuracy"], found["accuracy"], found["roc_auc_ovr"]) == (None, 1.0, 1.0)


@pytest.mark.filterwarnings("default::UserWarning")
def test_labels_that_the_model_does_not_know(run, graph_file: Path, tiny_graph: Data, tmp_path: Path) -> None:
    assert run("train", "--dataset", graph_file, *SMALL, "--out", "run")[0] == 0
    other = save(tmp_path / "other.npz", tiny_graph, y=tiny_graph.y + 5)
    code, _, err = run("evaluate", "run", "--dataset", other)
    assert code == 0
    assert "warning: the model was trained without the labels [5, 6], and cannot predict them" in err


def test_labels_of_another_kind_than_the_models(run, graph_file: Path, tiny_graph: Data) -> None:
    clf = classifier()
    named = tiny_graph.clone()
    named.y = np.array(["ant", "bee"])[named.y.numpy()]
    clf.fit(named).save("run")
    assert_refused(
        *run("evaluate", "run", "--dataset", graph_file), "trained with text, such as ant: give the data these"
    )
    with pytest.raises(InputError, match="the labels of the data are numbers"):
        clf.score(tiny_graph)
