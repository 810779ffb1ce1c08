"""A graph in shards is the graph: the same rows of the same matrix, whatever it was read from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from helpers.communities import communities
from pdadmm_g.data import sharding
from pdadmm_g.data.graph import MASKS
from pdadmm_g.data.propagation import renormalized_adjacency
from pdadmm_g.data.sharding import GraphInBlocks, graph_source, open_source, shard_graph
from pdadmm_g.data.shards import ShardFolder, is_sharded
from pdadmm_g.errors import InputError


def graph() -> Data:
    """With a self-loop, an edge in both directions and one that is there twice."""
    data = communities(nodes=50, noise=1.0)
    more = torch.tensor([[3, 7, 8, 1, 1], [3, 8, 7, 2, 2]])
    data.edge_index = torch.cat([data.edge_index, more], 1)
    return data


def write_arrays(folder: Path, data: Data, *, turned: bool = False) -> Path:
    folder.mkdir()
    for name in ("x", "y", *MASKS):
        np.save(folder / f"{name}.npy", data[name].numpy())
    edges = data.edge_index.numpy()
    np.save(folder / "edge_index.npy", np.ascontiguousarray(edges.T) if turned else edges)
    return folder


def dense(folder: Path) -> torch.Tensor:
    """The adjacency that the shards hold together."""
    whole = ShardFolder(folder).whole
    A = torch.zeros(whole.nodes, whole.nodes)
    for shard in ShardFolder(folder).part(0, 1).shards:
        starts, columns = shard.arrays["starts"], shard.arrays["columns"]
        for row in range(shard.count):
            A[shard.first + row, columns[starts[row] : starts[row + 1]]] += 1
    return A


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
@pytest.mark.parametrize("kind", ["memory", "arrays", "turned"])
def test_shards_are_the_graph(tmp_path: Path, shards: int, kind: str) -> None:
    data = graph()
    table = graph_source(data, "mark")
    if kind != "memory":
        table = open_source(str(write_arrays(tmp_path / "arrays", data, turned=kind == "turned")))
    whole = shard_graph(table, shards, tmp_path / "out")
    assert is_sharded(tmp_path / "out")
    expected = renormalized_adjacency(data.edge_index, 50).to_dense() > 0
    expected.fill_diagonal_(False)
    assert torch.equal(dense(tmp_path / "out"), expected.float())
    assert (whole.nodes, whole.features, whole.edges) == (50, 20, int(expected.sum()) // 2)
    part = ShardFolder(tmp_path / "out").part(0, 1)
    for name in ("x", "y", *MASKS):
        column = part.column(name)
        assert column is not None
        assert np.array_equal(column, data[name].numpy())


def test_the_names_of_features_go_along(tmp_path: Path) -> None:
    data = graph()
    plain = shard_graph(graph_source(data, ""), 2, tmp_path / "plain")
    assert plain.feature_names is None
    assert "feature_names" not in (tmp_path / "plain" / "description.json").read_text()  # as before there were any
    data.feature_names = tuple(f"word {i}" for i in range(20))
    named = shard_graph(graph_source(data, ""), 2, tmp_path / "named")
    found = ShardFolder(tmp_path / "named").whole
    assert found == named
    assert found.feature_names == list(data.feature_names)
    assert (found.digests, found.digest != plain.digest) == (plain.digests, True)
    file = tmp_path / "named" / "description.json"
    file.write_text(file.read_text().replace('"word 1"', '"word 0"'))
    with pytest.raises(InputError, match="its feature_names are not a list of different names, one a column"):
        ShardFolder(tmp_path / "named")


@pytest.mark.parametrize("ids", [np.arange(50) + 7, np.array([f"nœud {number}" for number in range(50)])])
def test_the_ids_of_nodes_go_along(ids: np.ndarray, tmp_path: Path) -> None:
    data = graph()
    data.ids = ids
    shard_graph(graph_source(data, ""), 3, tmp_path / "out")
    found = ShardFolder(tmp_path / "out").part(0, 1).column("id")
    assert found is not None
    assert (np.char.decode(found, "utf-8") if found.dtype.kind == "S" else found).tolist() == ids.tolist()


def test_a_sparse_matrix_is_written_dense(tmp_path: Path) -> None:
    data = graph()
    x = data.x.relu()
    data.x = x.to_sparse_csr()
    shard_graph(graph_source(data, ""), 3, tmp_path / "out")
    assert np.array_equal(ShardFolder(tmp_path / "out").part(0, 1).column("x"), x.numpy())


@pytest.mark.parametrize("stop", range(1, 9))
def test_interrupted_work_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int) -> None:
    """Stopped at any step, the second call does the rest and the folder is that of one that was not stopped."""
    monkeypatch.setattr(sharding, "EDGES", 6)
    table = open_source(str(write_arrays(tmp_path / "arrays", graph())))
    steps: list[str] = []

    def interrupt(what: str, done: int, total: int) -> None:
        steps.append(what)
        if len(steps) == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shard_graph(table, 3, tmp_path / "out", on_progress=interrupt)
    assert not is_sharded(tmp_path / "out")
    first = tmp_path / "out" / "shard-1-of-3" / "edges.tmp"
    if first.exists():
        with first.open("ab") as file:
            file.write(b"what a process wrote before it was killed")
    again: list[str] = []
    whole = shard_graph(table, 3, tmp_path / "out", on_progress=lambda what, *_: again.append(what))
    assert len(again) <= len(shard_steps(table, tmp_path)) - stop + 1
    assert whole == shard_graph(table, 3, tmp_path / "other")
    assert torch.equal(dense(tmp_path / "out"), dense(tmp_path / "other"))
    assert not list((tmp_path / "out").rglob("*.tmp"))


def shard_steps(table: GraphInBlocks, tmp_path: Path) -> list[str]:
    steps: list[str] = []
    shard_graph(table, 3, tmp_path / "other", on_progress=lambda what, *_: steps.append(what))
    return steps


def test_a_finished_folder_is_left_as_it_is(tmp_path: Path) -> None:
    table = graph_source(graph(), "mark")
    shard_graph(table, 2, tmp_path / "out")
    before = (tmp_path / "out" / "description.json").stat().st_mtime_ns
    shard_graph(table, 2, tmp_path / "out", on_progress=lambda *_: pytest.fail("nothing is left to do"))
    assert (tmp_path / "out" / "description.json").stat().st_mtime_ns == before
    with pytest.raises(InputError, match=r"out: already holds other shards; choose another --out or add --overwrite"):
        shard_graph(table, 3, tmp_path / "out")
    shard_graph(table, 3, tmp_path / "out", overwrite=True)
    assert ShardFolder(tmp_path / "out").whole.shards == 3


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    with pytest.raises(InputError, match="is a folder with something else in it"):
        shard_graph(graph_source(graph(), ""), 2, tmp_path)
    (tmp_path / "sharding.json").write_text(json.dumps({"id": "other", "edges": 0, "sizes": [0, 0]}))
    with pytest.raises(InputError, match="holds unfinished shards of other data; add --overwrite"):
        shard_graph(graph_source(graph(), ""), 2, tmp_path)
    shard_graph(graph_source(graph(), ""), 2, tmp_path, overwrite=True)
    assert (tmp_path / "letters.txt").read_text() == "mine"


def test_bad_input_names_file_and_place(tmp_path: Path) -> None:
    arrays = write_arrays(tmp_path / "arrays", graph())

    def refused(name: str, array: np.ndarray) -> str:
        before = np.load(arrays / f"{name}.npy")
        np.save(arrays / f"{name}.npy", array)
        with pytest.raises(InputError) as caught:
            shard_graph(open_source(str(arrays)), 2, tmp_path / "out", overwrite=True)
        np.save(arrays / f"{name}.npy", before)
        return str(caught.value).removeprefix(f"{arrays}/")

    edges, x = np.load(arrays / "edge_index.npy"), np.load(arrays / "x.npy")
    edges[1, 5] = 50
    assert refused("edge_index", edges).endswith("edge_index names node 50, but nodes are 0..49")
    assert "edge_index must hold integers" in refused("edge_index", edges / 2)
    assert refused("edge_index", edges[0]) == "edge_index.npy: must have shape (2, edges) or (edges, 2)"
    x[31, 2] = np.nan
    assert refused("x", x) == "x.npy: features contain NaN or infinity, first in row 31"
    x[31, 2] = 1e20
    assert refused("x", x) == "x.npy: features exceed 1e+15, first in row 31: rescale them"
    assert "labels 'y' have shape (40,)" in refused("y", np.arange(40))
    assert "labels 'y' must be integers" in refused("y", np.array(["a"] * 50))
    assert "train_mask names a node outside 0..49" in refused("train_mask", np.array([50]))
    np.save(arrays / "edge_weight.npy", np.ones(len(edges[0])))
    with pytest.raises(InputError, match=r"edge_weight.npy: weights of edges are not for a folder of shards"):
        open_source(str(arrays))
    (arrays / "edge_weight.npy").unlink()
    with pytest.raises(InputError, match="shards = 51, but there are 50 nodes: set shards to 50 at most"):
        shard_graph(open_source(str(arrays)), 51, tmp_path / "out")
    (arrays / "x.npy").unlink()
    with pytest.raises(InputError, match=r"holds neither x.npy nor tables nodes\*.parquet and edges\*.parquet"):
        open_source(str(arrays))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"edge_weight": torch.ones(3)}, "weights of edges are not for a folder of shards"),
        ({"label_names": np.array(["a", "b", "c"])}, "labels that are no whole numbers are not for a folder of shards"),
        ({"val_mask": torch.ones(90, 2, dtype=torch.bool)}, "masks of several splits are not for a folder of shards"),
    ],
)
def test_what_shards_cannot_keep_is_refused(entry: dict[str, object], message: str) -> None:
    data = communities()
    for name, value in entry.items():
        data[name] = value
    with pytest.raises(InputError, match=message):
        graph_source(data, "mark")


def test_a_graph_that_lost_its_edges_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("id,label,f\n0,0,1.5\n1,1,2.5\n")
    np.savez(tmp_path / "graph.npz", x=np.ones((2, 1), dtype=np.float32))
    remedy = "put nodes.parquet and edges.parquet into a folder, and name that"
    with pytest.raises(InputError, match=rf"nodes.csv: there are no edges: {remedy}$"):
        open_source(str(tmp_path / "nodes.csv"))
    with pytest.raises(InputError, match=r"graph.npz: there are no edges: 'edge_index' is missing$"):
        open_source(str(tmp_path / "graph.npz"))
    np.savez(tmp_path / "graph.npz", x=np.ones((2, 1), dtype=np.float32), edge_index=np.empty((2, 0), dtype=np.int64))
    assert shard_graph(open_source(str(tmp_path / "graph.npz")), 1, tmp_path / "out").edges == 0
