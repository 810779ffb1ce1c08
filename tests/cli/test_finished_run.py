from __future__ import annotations

from pathlib import Path

import numpy as np
from torch_geometric.data import Data

from helpers.commands import SMALL, assert_refused, save


def test_bad_run_folders(run, graph_file: Path, tmp_path: Path, tiny_graph: Data) -> None:
    assert_refused(*run("evaluate", "nowhere"), "nowhere: no such run folder")
    Path("empty").mkdir()
    assert_refused(*run("predict", "empty", "--out", "preds.csv"), "no such model file")
    run("train", "--dataset", graph_file, "--out", "run", *SMALL)
    narrow = save(tmp_path / "narrow.npz", tiny_graph, x=np.zeros((20, 3)))
    assert_refused(*run("evaluate", "run", "--dataset", narrow), "data has 3 features, the model was trained with 5")
    assert_refused(*run("predict", "run", "--out", "no/such/folder/preds.csv"), "cannot write")
    Path("file").write_text("")
    assert_refused(
        *run("train", "--dataset", graph_file, "--out", "file", *SMALL),
        "file: cannot write the run folder: file is no folder",
    )
