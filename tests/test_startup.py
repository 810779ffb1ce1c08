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


def test_early_interrupt_has_no_traceback(tmp_path: Path) -> None:
    """While libraries are imported."""
    script = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); print('up', flush=True)\n"
    script += "sys.argv = ['pdadmm-g', 'train', '--out', 'run', '--epochs', '100000']\n"
    script += "from pdadmm_g.__main__ import main\n"
    script += "import threading, os; threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
    script += "main()\n"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False
    )
    assert result.returncode == 130, result.stderr
    assert "Traceback" not in result.stderr
