"""The valid inputs that cases start from: a graph, and the files of a run on it."""

from __future__ import annotations

import contextlib
import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from pdadmm_g.config import RunConfig
from pdadmm_g.graph.shards import open_source, shard_graph
from pdadmm_g.runs.run import train_run
from pdadmm_g.training.records import Record

from .limits import inside

Files = dict[str, bytes]
Columns = dict[str, list[Any]]


def arrays() -> dict[str, NDArray[Any]]:
    """Two cliques of six nodes."""
    y = np.arange(12) // 6
    x = np.random.default_rng(0).standard_normal((12, 3)).astype(np.float32) + y[:, None].astype(np.float32)
    pairs = np.array([(i, j) for i in range(12) for j in range(12) if i != j and i // 6 == j // 6])
    part = np.arange(12) % 6 // 2
    return {
        "x": x, "edge_index": pairs.T, "y": y, "train_mask": part == 0, "val_mask": part == 1, "test_mask": part == 2,
    }  # fmt: skip


def graph() -> Data:
    """The same graph as people who know PyTorch Geometric have it."""
    return Data(**{name: torch.from_numpy(array.copy()) for name, array in arrays().items()})


def columns() -> tuple[Columns, Columns]:
    """Its tables of nodes and edges, with text for ids and labels."""
    valid = arrays()
    nodes: Columns = {"id": [f"n{i}" for i in range(12)], "label": [("red", "blue")[i] for i in valid["y"]]}
    nodes["split"] = [("train", "val", "test")[i % 6 // 2] for i in range(12)]
    nodes |= {f"x{i}": valid["x"][:, i].tolist() for i in range(3)}
    source, target = valid["edge_index"].tolist()
    edges: Columns = {"source": [f"n{i}" for i in source], "target": [f"n{i}" for i in target]}
    return nodes, edges | {"weight": [1.0 + i % 3 for i in source]}


def network() -> networkx.Graph:
    """The same as a graph of networkx."""
    nodes, edges = columns()
    graph = networkx.Graph()
    for name, *values in zip(*nodes.values(), strict=True):
        graph.add_node(name, **dict(zip(list(nodes)[1:], values, strict=True)))
    graph.add_weighted_edges_from(zip(*edges.values(), strict=True))
    return graph


def files_in(folder: Path) -> Files:
    """The content of every file."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@functools.cache
def shards() -> Files:
    """The graph as a folder of three shards."""
    with tempfile.TemporaryDirectory() as name:
        np.savez(Path(name, "graph.npz"), **arrays())  # type: ignore[arg-type]
        shard_graph(open_source(str(Path(name, "graph.npz"))), 3, Path(name, "sharded"))
        return {path: content for path, content in files_in(Path(name)).items() if path.startswith("sharded")}


@functools.cache
def run(*, finished: bool) -> Files:
    """A finished run and its graph, or one that was stopped after a checkpoint."""

    def stop(record: Record) -> None:
        if record["epoch"] == 3:
            raise StopIteration

    with tempfile.TemporaryDirectory() as name, inside(Path(name)):
        torch.save(graph(), "graph.pt")
        config = RunConfig(dataset="graph.pt", out="run", layers=3, hidden=4, epochs=2, weight_decay=0.1,
                           augment="average", normalize="centered", quantize="pq", bits=4,
                           checkpoint_every=1)  # fmt: skip
        with contextlib.suppress(StopIteration):
            train_run(config, on_epoch=None if finished else stop)
        return files_in(Path(name))


def unpack(folder: Path, files: Files) -> None:
    """Write the files to ``folder``. The settings of a run name the graph by its full path, which was another one."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    for path in folder.glob("run/checkpoints/*/meta.json"):
        meta = json.loads(path.read_text())
        meta["settings"]["dataset"] = str((folder / "graph.pt").resolve())
        path.write_text(json.dumps(meta))
    for path in folder.glob("run/config.yaml"):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("dataset:")]
        path.write_text("\n".join([f"dataset: {folder / 'graph.pt'}", *lines, ""]))
