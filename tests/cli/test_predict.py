from __future__ import annotations

from pathlib import Path

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
