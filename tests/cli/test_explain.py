from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from helpers.commands import SMALL, assert_refused
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
