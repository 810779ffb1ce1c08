from __future__ import annotations

from pathlib import Path

import pytest
from torch_geometric.data import Data

from helpers.commands import save


@pytest.mark.filterwarnings("default::UserWarning")
def test_labels_that_the_model_does_not_know(run, graph_file: Path, tiny_graph: Data, tmp_path: Path) -> None:
    options = ["--layers", "2", "--epochs", "3", "--augment", "average", "--weight-decay", "0.1", "--out", "run"]
    assert run("train", "--dataset", graph_file, *options)[0] == 0
    other = save(tmp_path / "other.npz", tiny_graph, y=tiny_graph.y + 5)
    code, _, err = run("evaluate", "run", "--dataset", other)
    assert code == 0
    assert "warning: the model was trained without the labels [5, 6], and cannot predict them" in err
