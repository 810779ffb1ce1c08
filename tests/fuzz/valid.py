"""The valid inputs that cases start from: a graph, and the files of a run on it."""

from __future__ import annotations

import contextlib
import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from pdadmm_g.config import RunConfig
from pdadmm_g.runs.run import train_run
from pdadmm_g.training.records import Record

from .limits import inside


def valid_graph() -> Data:
    """Two cliques of six nodes."""
    return _valid_graph().clone()


def valid_arrays() -> dict[str, NDArray[Any]]:
    """The attributes of that graph."""
    return {name: value.numpy() for name, value in valid_graph().to_dict().items()}


@functools.cache
def _valid_graph() -> Data:
    y = torch.arange(12) // 6
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)) + y[:, None]
    pairs = [(i, j) for i in range(12) for j in range(12) if i != j and i // 6 == j // 6]
    data = Data(x=x, edge_index=torch.tensor(pairs).T, y=y)
    for mask, nodes in (("train_mask", (0, 1)), ("val_mask", (2, 3)), ("test_mask", (4, 5))):
        data[mask] = torch.tensor([node % 6 in nodes for node in range(12)])
    return data


@functools.cache
def trained() -> dict[str, bytes]:
    """The files of a run that was stopped after a checkpoint, model.safetensors of the finished run among them."""
    with tempfile.TemporaryDirectory() as name, inside(Path(name)):
        torch.save(valid_graph(), "graph.pt")
        config = RunConfig(dataset="graph.pt", out="run", layers=3, hidden=4, epochs=2, weight_decay=0.1,
                           augment="average", normalize="centered", quantize="pq", bits=4,
                           checkpoint_every=1)  # fmt: skip

        def stop(record: Record) -> None:
            if record["epoch"] == 3:
                raise StopIteration

        with contextlib.suppress(StopIteration):
            train_run(config, on_epoch=stop)
        files = {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}
        train_run(config, overwrite=True)
        files |= {str(path): path.read_bytes() for path in Path().rglob("run/[ms]*[ry]*") if path.is_file()
                  and path.name != "metrics.jsonl"}  # fmt: skip
    return files


def unpack(folder: Path, *, finished: bool) -> None:
    """Write those files to ``folder``: of the finished run, or of the one that was stopped."""
    for name, content in trained().items():
        if "checkpoints" in name if finished else name in ("run/summary.json", "run/model.safetensors"):
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    # Configuration and checkpoint name the graph by its full path, which was another one.
    for path in folder.glob("run/checkpoints/*/meta.json"):
        meta = json.loads(path.read_text())
        meta["settings"]["dataset"] = str((folder / "graph.pt").resolve())
        path.write_text(json.dumps(meta))
    config = folder / "run/config.yaml"
    lines = [f"dataset: {folder / 'graph.pt'}" if line.startswith("dataset:") else line
             for line in config.read_text().splitlines()]  # fmt: skip
    config.write_text("\n".join(lines) + "\n")
