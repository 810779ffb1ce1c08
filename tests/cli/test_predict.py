from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas as pd
import torch
from torch_geometric.data import Data

from helpers.commands import SMALL, assert_refused, save


def test_predict_on_another_unlabelled_graph(run, graph_file: Path, tiny_graph: Data, tmp_path: Path) -> None:
    run("train", "--dataset", graph_file, "--out", "run", *SMALL)
    other = save(tmp_path / "other.npz", Data(x=tiny_graph.x[:7], edge_index=torch.tensor([[0, 1], [1, 2]])))
    assert run("predict", "run", "--dataset", other, "--out", "preds.csv")[0] == 0
    assert len(Path("preds.csv").read_text().splitlines()) == 8
    code, _, err = run("evaluate", "run", "--dataset", other)
    assert code == 2
    assert "no labels" in err


def test_predictions_go_to_standard_output(run) -> None:
    run("train", "--dataset", "graph.npz", "--out", "run", *SMALL)
    assert run("predict", "run", "--out", "preds.csv")[0] == 0
    code, out, err = run("predict", "run", "--out", "-")
    assert (code, out) == (0, Path("preds.csv").read_text())
    assert err == "20 predictions written to standard output\n"
    assert run("predict", "run", "--out", "-", "--quiet")[1:] == (out, "")
    assert not Path("-").exists()
    assert_refused(*run("predict", "run", "--out", "-", "--json"), "--out - and --json")


def write_tables(data: Data) -> None:
    """nodes.csv, with a label for all but the last two nodes of each clique and no split, and edges.csv."""
    nodes = pd.DataFrame(data.x.numpy(), columns=list("abcde"))
    labels = [None if node % 10 > 7 else ["ant", "bee, small"][label] for node, label in enumerate(data.y)]
    nodes.assign(id=[f"n{node}" for node in range(20)], label=labels).to_csv("nodes.csv", index=False)
    edges = pd.DataFrame(data.edge_index.T.numpy(), columns=["source", "target"])
    edges.map("n{}".format).to_csv("edges.csv", index=False)


def test_tables_from_training_to_predictions(run, tiny_graph: Data) -> None:
    """The run finds its tables again; nodes that validate are set aside, and the same ones are scored afterwards."""
    write_tables(tiny_graph)
    code, out, err = run("train", "--nodes", "nodes.csv", "--edges", "edges.csv", "--validation", "0.2", *SMALL)
    assert code == 0, err
    assert "there is no train_mask: all 16 nodes with a label are for training" in out
    assert "there is no val_mask: 4 of the 16 nodes" in out
    assert "written to runs/nodes-0" in out
    summary = json.loads(Path("runs/nodes-0/summary.json").read_text())
    code, out, _ = run("evaluate", "runs/nodes-0", "--json")
    assert code == 0
    parts = ("train_accuracy", "val_accuracy", "test_accuracy", "metrics", "estimate")
    assert json.loads(out) == {part: summary[part] for part in parts}
    assert summary["val_accuracy"] is not None
    assert run("predict", "runs/nodes-0", "--out", "preds.csv", "--probabilities")[0] == 0
    with Path("preds.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["node", "label", "probability", "probability_ant", "probability_bee, small"]
    assert [row[0] for row in rows] == [f"n{node}" for node in range(20)]
    assert [row[1] for row in rows] == [["ant", "bee, small"][label] for label in tiny_graph.y]
    assert all(row[2] == max(row[3:]) for row in rows)
    assert run("predict", "runs/nodes-0", "--nodes", "nodes.csv", "--edges", "edges.csv", "--out", "other.csv")[0] == 0
    assert [line.split(",")[0] for line in Path("other.csv").read_text().splitlines()][1:] == [row[0] for row in rows]


def test_edges_go_with_a_table_of_nodes(run, graph_file: Path) -> None:
    assert_refused(*run("train", "--dataset", graph_file, "--edges", "edges.csv", *SMALL), "edges goes with a table")
    assert_refused(*run("train", "--nodes", "n.xlsx", "--edges", "edges.csv"), "ends in .csv", "save n.xlsx as one")
    Path("nodes.csv").write_text("a,label\n1,x\n2,y\n3,x\n4,y\n")
    Path("edges.csv").write_text("source,target\n0,1\n")
    assert run("train", "--nodes", "nodes.csv", "--edges", "edges.csv", "--out", "run", *SMALL)[0] == 0
    for command in (("train", *SMALL), ("predict", "run", "--out", "-"), ("evaluate", "run")):
        assert_refused(*run(*command, "--nodes", "nodes.csv"), "nodes.csv: there are no edges")
    alone = ("--augment", "none", "--out", "alone", "--layers", "2", "--epochs", "3", "--weight-decay", "0.1")
    assert run("train", "--nodes", "nodes.csv", *alone)[0] == 0
    assert run("predict", "alone", "--nodes", "nodes.csv", "--out", "-")[0] == 0
    Path("nodes.csv").write_text("a\n1\n2\n3\n4\n")
    tables = ("--nodes", "nodes.csv", "--edges", "edges.csv")
    refused = run("train", *tables, *SMALL)
    assert_refused(*refused, "nodes.csv: labels 'y' are missing; in a table they are the column 'label'")
    for content in ("a\n1\n2\n", "a,label\n1,\n2,\n"):
        Path("nodes.csv").write_text(content)
        assert_refused(*run("evaluate", "run", *tables), "nodes.csv: there are no labels (in a table 'label')")
    Path("nodes.csv").write_text("b\n1\n2\n")
    assert_refused(
        *run("predict", "run", *tables, "--out", "-"), "nodes.csv: features 'a' are missing, which the model"
    )
