"""Several labels a node, and numbers, on the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from helpers.columns import ring
from helpers.commands import FIXED, SMALL, assert_refused, save
from pdadmm_g import GAMLPClassifier, GAMLPRegressor, load_dataset

NAMES = ("red", "round", "new")


def write_tables(kind: str) -> None:
    """nodes.csv with a column for each label or number, a third of the nodes without, a third test; and edges.csv."""
    data = ring(kind)
    known = ~data.val_mask.numpy()[:, None]
    nodes = pd.DataFrame(data.x.numpy()).add_prefix("f")
    nodes[list(NAMES)] = np.where(known, data.y.numpy().astype(object), None)
    nodes["split"] = np.where(data.test_mask, "test", None)
    nodes.to_csv("nodes.csv", index=False)
    pd.DataFrame(data.edge_index.T.numpy(), columns=["source", "target"]).to_csv("edges.csv", index=False)


@pytest.mark.parametrize("kind", ["multilabel", "regression"])
def test_from_tables_to_predictions(run, kind: str, tmp_path: Path) -> None:
    write_tables(kind)
    target = ["--target", kind] if kind == "regression" else []
    given = ["--nodes", "nodes.csv", "--edges", "edges.csv", "--labels", ",".join(NAMES), *target]
    settings = ["--layers", "3", "--hidden", "16", "--epochs", "40", *FIXED[2:-2], "--weight-decay", "0.03"]
    code, out, err = run("train", *given, *settings, "--checkpoint-every", "10", "--out", "out")
    assert code == 0, err
    figure = {"multilabel": "f1_micro", "regression": "r2"}[kind]
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["target"] == kind
    assert summary["metrics"]["test"][figure] > 0.6
    assert f"{figure.replace('_', ' ')}: train " in out
    assert f"test {summary['metrics']['test'][figure]:.3f}" in out
    assert summary["outputs"]["names"] == list(NAMES)
    assert (summary["test_accuracy"] is None) == (kind == "regression")

    found = json.loads(run("evaluate", "out", "--json")[1])
    assert found["metrics"] == summary["metrics"]
    assert f"{figure.replace('_', ' ')}: " in run("evaluate", "out")[1]

    more = ["--probabilities"] if kind == "multilabel" else []
    assert run("predict", "out", "--out", "found.csv", *more)[0] == 0
    with Path("found.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["node", *NAMES, *(f"probability_{name}" for name in NAMES if more)]
    model = (GAMLPRegressor if kind == "regression" else GAMLPClassifier).load("out")
    data = load_dataset("nodes.csv", edges="edges.csv", labels=NAMES, target=kind)
    np.testing.assert_allclose([[float(row[name]) for name in NAMES] for row in rows], model.predict(data), rtol=1e-4)

    assert run("report", "out")[0] == 0
    page = Path("out/report.html").read_text()
    assert '"outputs":{"nodes":"test","names":["red","round","new"]' in page
    assert f'"figure":"{figure}"' in page
    assert run("export", "out", "--format", "torch-export", "--out", "model.pt2")[0] == 0


def test_refused(run) -> None:
    save(Path("labels.npz"), ring("multilabel"))
    save(Path("numbers.npz"), ring("regression"))
    for arguments, message in (
        (("numbers.npz",), "must sum to one"),
        (("labels.npz", "--labels", "red"), "labels is about a table of nodes"),
        (("labels.npz", "--target", "classification"), "labels 'y' have shape (120, 3), expected (120,)"),
    ):
        assert_refused(*run("train", "--dataset", *arguments, *SMALL, "--out", "out"), message)
    assert not Path("out").exists()
    write_tables("regression")
    tables = ("--nodes", "nodes.csv", "--edges", "edges.csv", *SMALL)
    Path("clean.csv").write_text("size,age\n1,2\n3,4\n5,5\n")
    clean = ("--nodes", "clean.csv", "--augment", "none")
    assert_refused(*run("train", *clean, "--labels", "blue"), "there is no column 'blue', which --labels names")
    assert_refused(*run("train", *tables, "--labels", "red,red"), "labels names a column twice")
    assert_refused(*run("train", *tables, "--labels", ",".join(NAMES)), "labels must be 0 or 1 in each column")
