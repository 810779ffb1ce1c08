from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from torch_geometric.data import Data

from helpers.commands import SMALL, assert_refused, save
from helpers.faults import MEMBER, free_port


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


@pytest.mark.timeout(120)
def test_a_lost_process_is_told_in_one_line() -> None:
    script = str(Path(__file__).with_name("lost_member.py"))
    common = os.environ | MEMBER | {"WORLD_SIZE": "2", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}
    first, second = (
        subprocess.Popen([sys.executable, script], env=common | {"RANK": rank}, stderr=subprocess.PIPE, text=True)
        for rank in "01"
    )
    line = "error: PEER_LOST: worker 1, not yet in an epoch, was lost; start again with the same command\n"
    assert first.communicate()[1] == line
    assert first.returncode == 4
    second.communicate()
