"""A graph in shards is the graph: the same rows of the same matrix, whatever it was read from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from helpers.communities import communities
from pdadmm_g.data import sharding
from pdadmm_g.data.datasets import load_dataset
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shard_graph(graph_source(communities(nodes=60), "mark"), 4, tmp_path / "graph")
    return tmp_path / "graph"


def refusal(folder: Path, parts: int = 1) -> str:
    """What is said to whoever reads all parts."""
    with pytest.raises(InputError) as caught:
        [ShardFolder(folder).part(place, parts) for place in range(parts)]
    return str(caught.value).replace(str(folder), "F")


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_part_reads_its_own_shards_alone(folder: Path) -> None:
    first, second = (ShardFolder(folder).part(place, 2) for place in range(2))
    assert [shard.folder.name for shard in second.shards] == ["shard-3-of-4", "shard-4-of-4"]
    assert (first.first, first.count, second.first, second.count) == (0, 30, 30, 30)
    shutil.rmtree(folder / "shard-1-of-4")
    assert ShardFolder(folder).part(1, 2).count == 30


HOSTILE = {
    "digits": b"(9999999999999999999999,)", "minus": b"(-1, -1)", "open": b"(((", "nothing": b"(0, 0)", "object": b"|O",
}  # fmt: skip


@pytest.mark.parametrize("kind", [*HOSTILE, "empty", "archive"])
def test_an_array_whose_header_lies(folder: Path, kind: str) -> None:
    """Found by fuzzing: the reader of headers ends in many ways. An archive is no array, though numpy would read it."""
    file = folder / "shard-2-of-4/x.npy"
    if kind == "archive":
        with file.open("wb") as target:
            np.savez(target, x=np.zeros(3))
    else:
        shape = b"(3,)" if kind == "object" else HOSTILE.get(kind, b"")
        dtype = HOSTILE[kind] if kind == "object" else b"<f4"
        header = b"{'descr': '" + dtype + b"', 'fortran_order': False, 'shape': " + shape + b", }\n"
        file.write_bytes(b"" if kind == "empty" else b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    assert refusal(folder).startswith("F/shard-2-of-4/x.npy: ")


def test_a_missing_shard(folder: Path) -> None:
    shutil.rmtree(folder / "shard-3-of-4")
    expected = "F/shard-3-of-4: is missing: bring it here, or make the folder anew with 'pdadmm-g shard'"
    assert refusal(folder) == refusal(folder, 4) == expected


def test_a_shard_too_many(folder: Path) -> None:
    shutil.copytree(folder / "shard-1-of-4", folder / "shard-1-of-5")
    assert refusal(folder) == "F/shard-1-of-5: is none of the 4 shards here: remove it"


def test_a_shard_of_another_folder(folder: Path, tmp_path: Path) -> None:
    shard_graph(graph_source(communities(nodes=60, seed=1), "other"), 4, tmp_path / "other")
    shutil.rmtree(folder / "shard-2-of-4")
    shutil.copytree(tmp_path / "other" / "shard-2-of-4", folder / "shard-2-of-4")
    expected = "F/shard-2-of-4/description.json: is of another data set than F/description.json: bring the one of this"
    assert refusal(folder) == expected
    shutil.rmtree(folder / "shard-2-of-4")
    shutil.copytree(folder / "shard-1-of-4", folder / "shard-2-of-4")
    assert refusal(folder) == expected


def test_an_edge_out_of_range(folder: Path) -> None:
    file = folder / "shard-4-of-4" / "columns.npy"
    columns = np.load(file)
    columns[3] = 60
    np.save(file, columns)
    assert refusal(folder) == "F/shard-4-of-4/columns.npy: names node 60, but nodes are 0..59"
    np.save(file, columns[1:])
    assert refusal(folder).startswith("F/shard-4-of-4/columns.npy: has shape (")
    np.save(file, columns.astype(np.int64))
    assert refusal(folder) == "F/shard-4-of-4/columns.npy: holds int64, but the description says int32"
    file.write_bytes(file.read_bytes()[:-5])
    assert refusal(folder) == "F/shard-4-of-4/columns.npy: cannot read as an array: damaged, or cut off"
    file.unlink()
    assert refusal(folder) == "F/shard-4-of-4/columns.npy: is missing: bring it here, or make the folder anew"


def test_starts_that_do_not_fit(folder: Path) -> None:
    file = folder / "shard-1-of-4" / "starts.npy"
    starts = np.load(file)
    starts[4] = starts[-1] + 1
    np.save(file, starts)
    assert refusal(folder) == "F/shard-1-of-4/starts.npy: does not fit columns.npy: damaged"


def test_shards_that_cannot_be_dealt(folder: Path) -> None:
    assert refusal(folder, 3) == "F: its 4 shards cannot be dealt to 3 processes: set shards to 1, 2, 4"


def test_a_description_that_is_none(folder: Path) -> None:
    file = folder / "description.json"
    for changes, culprit in (
        ({"format": 2}, "format"),
        ({"nodes": 61}, ""),
        ({"counts": [60, 0]}, "counts"),
    ):
        edit(file, **{"format": 1} | changes)
        said = refusal(folder)
        assert said.startswith("F/description.json: cannot read the description: ")
        assert culprit in said
        assert said.endswith("; make it anew with 'pdadmm-g shard'")
    file.write_text("{")
    assert refusal(folder).startswith("F/description.json: cannot read the description: ")
    file.unlink()
    assert refusal(folder) == "F/description.json: cannot read the description: No such file or directory"


def test_it_is_no_data_set_of_one_process(folder: Path) -> None:
    with pytest.raises(InputError, match="is a folder of shards, for 'pdadmm-g train', 'predict' and 'evaluate' alone"):
        load_dataset(folder)
