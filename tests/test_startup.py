"""What a run loads: a small graph trains in less time than some libraries take to be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from helpers.commands import save
from pdadmm_g.data.graph import Graph

SCRIPT = """
import sys
from pdadmm_g.cli import main
for command in " ".join(sys.argv[1:]).split(" then "):
    try:
        main(command.split())
    except SystemExit as end:
        assert not end.code, end.code
heavy = "matplotlib networkx sympy torch._dynamo torch_geometric triton".split()
print("loaded:", *(name for name in heavy if name in sys.modules))
"""
SETTINGS = ["--unlabelled", "0", "--epochs", "2", "--layers", "2", "--weight-decay", "0.1", "--augment", "average"]


def write_tables(folder: Path) -> None:
    rows = [f"{node},{node % 2},{'train' if node < 6 else 'val'},{node % 2},1" for node in range(10)]
    (folder / "nodes.csv").write_text("\n".join(["id,label,split,a,b", *rows]))
    pairs = [f"{node},{(node + 2) % 10}" for node in range(10)]
    (folder / "edges.csv").write_text("\n".join(["source,target", *pairs]))


def test_commands_load_no_library_that_they_do_not_need(tiny_graph: Graph, tmp_path: Path) -> None:
    save(tmp_path / "graph.npz", tiny_graph)
    write_tables(tmp_path)
    tables = ["nodes.csv", "--edges", "edges.csv"]
    words: list[str] = []
    for data in (["graph.npz"], tables, [*tables, "--labels", "a", "--target", "regression"]):
        words += [
            "train",
            "--dataset",
            *data,
            *SETTINGS,
            "--normalize",
            "centered",
            "--out",
            "run",
            "--overwrite",
            "then",
        ]
    words += ["evaluate", "run", "then", "predict", "run", "--out", "labels.csv", "then", "report", "run"]
    command = [sys.executable, "-c", SCRIPT, *words]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout.splitlines()[-1:]) == (0, ["loaded:"]), ended.stderr


FIRST_LINE = """
import io
import sys
from pdadmm_g.cli import main

class Watched(io.StringIO):
    said = None
    def write(self, text):
        if text and Watched.said is None:
            Watched.said = text.strip(), "torch" in sys.modules
        return super().write(text)

sys.stderr = Watched()
try:
    main(sys.argv[1:])
except SystemExit:
    print(*Watched.said)
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
