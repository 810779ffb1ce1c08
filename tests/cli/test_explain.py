from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from helpers.commands import SMALL, assert_refused
from pdadmm_g.cli.finished import _of_all
from pdadmm_g.report.collect import read_run


def test_the_command_prints_keeps_and_shows(run, graph_file: Path) -> None:
    assert run("train", "--dataset", graph_file, *SMALL, "--out", "run")[0] == 0
    code, out, _ = run("explain", "run", "--out", "table.csv")
    assert (code, out.splitlines()[0].split(" of a ")[0]) == (0, "roc auc ovr 1.000 on 8 test nodes;")
    found = json.loads(run("explain", "run", "--json")[1])
    assert [row["column"] for row in found["rows"]] == pd.read_csv("table.csv")["column"].tolist()
    assert read_run(Path("run"), "run")["importance"]["rows"] == found["rows"]
    code, out, _ = run("explain", "run", "--node", "3")
    assert out.startswith("node 3: 0, probability ")
    assert "edge to " in out
    for arguments, why in ((["--node", "x"], "no node 'x'"), (["--out", "no/table.csv"], "no/")):
        assert_refused(*run("explain", "run", *arguments), why)


def test_lines_of_nodes_that_trained_and_of_what_is_worth_nothing() -> None:
    rows = [["the graph", "trained without", 0.14], ["all columns", "own", -0.0001], ["age", "own", 0.0]]
    table = pd.DataFrame([[*row, 0.0] for row in rows], columns=["column", "whose", "lost", "spread"])
    table.attrs = {"figure": "roc_auc_ovr", "score": 0.94, "on": "training", "nodes": 180, "out_of_fold": 0.79}
    assert _of_all(table) == [
        "roc auc ovr expected out of fold 0.790; of a model that is trained again without the graph 0.650",
        "roc auc ovr 0.940 on 180 training nodes",
        "what is lost when the values of a column are exchanged between nodes:",
        "others: less than 0.001",
    ]
