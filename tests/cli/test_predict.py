from __future__ import annotations

from pathlib import Path

import torch
from torch_geometric.data import Data

from helpers.commands import SMALL, save


def test_predict_on_another_unlabelled_graph(run, graph_file: Path, tiny_graph: Data, tmp_path: Path) -> None:
    run("train", "--dataset", graph_file, "--out", "run", *SMALL)
    other = save(tmp_path / "other.npz", Data(x=tiny_graph.x[:7], edge_index=torch.tensor([[0, 1], [1, 2]])))
    assert run("predict", "run", "--dataset", other, "--out", "preds.csv")[0] == 0
    assert len(Path("preds.csv").read_text().splitlines()) == 8
    code, _, err = run("evaluate", "run", "--dataset", other)
    assert code == 2
    assert "no labels" in err
