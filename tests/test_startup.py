"""What a run loads: a small graph trains in less time than some libraries take to be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pdadmm_g.graph.graph import Graph

FIRST_LINE = """
import io
import os
import sys
from pdadmm_g.cli import main

class Watched(io.StringIO):
    def write(self, text):
        super().write(text)
        if text:
            print(text.strip(), "torch" in sys.modules, flush=True)
            os._exit(0)

sys.stderr = Watched()
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    "options", [["--dataset", "none.npz"], ["--resume", "--out", "none"]], ids=["fresh", "resumed"]
)
def test_the_first_line_comes_before_torch(options: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", FIRST_LINE, "train", *options]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ended.stdout.split() == ["starting", "False"], ended.stderr


def test_warnings_may_be_errors(tmp_path: Path) -> None:
    """Those of other libraries at their import too, here of torch_geometric, which reads a .pt."""
    torch.save(Graph(x=torch.rand(4, 2), edge_index=torch.tensor([[0], [1]])), tmp_path / "graph.pt")
    script = "import sys; from pdadmm_g import load_dataset; load_dataset(sys.argv[1]).to_pyg()"
    for command in ([script, str(tmp_path / "graph.pt")], ["from pdadmm_g.cli import main; main(['--version'])"]):
        done = subprocess.run([sys.executable, "-W", "error", "-c", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
