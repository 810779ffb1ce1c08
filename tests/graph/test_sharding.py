"""A graph in shards is the graph: the same rows of the same matrix, whatever it was read from."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from helpers.communities import communities
from pdadmm_g.errors import InputError
from pdadmm_g.graph import shards as sharding
from pdadmm_g.graph.datasets import load_dataset
from pdadmm_g.graph.graph import MASKS
from pdadmm_g.graph.propagation import renormalized_adjacency
from pdadmm_g.graph.shards import ShardFolder, graph_source, is_sharded, open_source, shard_graph


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


@pytest.mark.parametrize("shards", [1, 7])
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


@pytest.mark.parametrize("stop", [1, 2, 4, 6, 8])
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
    again, every = list[str](), list[str]()
    whole = shard_graph(table, 3, tmp_path / "out", on_progress=lambda what, *_: again.append(what))
    assert whole == shard_graph(table, 3, tmp_path / "other", on_progress=lambda what, *_: every.append(what))
    assert len(again) <= len(every) - stop + 1
    assert torch.equal(dense(tmp_path / "out"), dense(tmp_path / "other"))
    assert not list((tmp_path / "out").rglob("*.tmp"))


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

    def refused(name: str, array: np.ndarray, culprit: str) -> None:
        before = np.load(arrays / f"{name}.npy")
        np.save(arrays / f"{name}.npy", array)
        with pytest.raises(InputError, match=culprit):
            shard_graph(open_source(str(arrays)), 2, tmp_path / "out", overwrite=True)
        np.save(arrays / f"{name}.npy", before)

    edges, x = np.load(arrays / "edge_index.npy"), np.load(arrays / "x.npy")
    refused("edge_index", np.where(edges == 9, 50, edges), "edge_index names node 50, but nodes are 0..49")
    refused("edge_index", edges / 2, "integers")
    refused("edge_index", edges[0], "must have shape")
    for value, culprit in ((np.nan, "NaN or infinity"), (1e20, r"exceed 1e\+15")):
        x[31, 2] = value
        refused("x", x, f"{culprit}, first in row 31")
    refused("y", np.arange(40), r"'y' have shape \(40,\)")
    refused("y", np.array(["a"] * 50), "'y' must be integers")
    refused("train_mask", np.array([50]), "train_mask names a node outside 0..49")
    with pytest.raises(InputError, match="shards = 51, but there are 50 nodes"):
        shard_graph(open_source(str(arrays)), 51, tmp_path / "out")
    np.save(arrays / "edge_weight.npy", np.ones(len(edges[0])))
    with pytest.raises(InputError, match=r"edge_weight.npy"):
        open_source(str(arrays))
    (arrays / "x.npy").unlink()
    with pytest.raises(InputError, match=r"holds neither x.npy nor tables"):
        open_source(str(arrays))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"edge_weight": torch.ones(3)}, "weights of edges"),
        ({"label_names": np.array(["a", "b", "c"])}, "labels that are no whole numbers"),
        ({"val_mask": torch.ones(150, 2, dtype=torch.bool)}, "masks of several splits"),
    ],
)
def test_what_shards_cannot_keep_is_refused(entry: dict[str, object], message: str) -> None:
    data = communities()
    for name, value in entry.items():
        data[name] = value
    with pytest.raises(InputError, match=message):
        graph_source(data, "mark")


def test_a_graph_may_have_no_edge_but_must_say_so(tmp_path: Path) -> None:
    np.savez(tmp_path / "graph.npz", x=np.ones((2, 1), dtype=np.float32))
    (tmp_path / "nodes.csv").write_text("id,label,f\n0,0,1.5\n1,1,2.5\n")
    for name in ("nodes.csv", "graph.npz"):
        with pytest.raises(InputError, match=f"{name}: there are no edges"):
            open_source(str(tmp_path / name))
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


def columns(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], object]:
    """Those of the last shard, with a change."""

    def damage(folder: Path) -> None:
        file = folder / "shard-4-of-4" / "columns.npy"
        np.save(file, change(np.load(file)))

    return damage


def archive(folder: Path) -> None:
    with (folder / "shard-4-of-4/columns.npy").open("wb") as target:
        np.savez(target, x=np.zeros(3))


def other_folder(folder: Path) -> None:
    shutil.rmtree(folder / "shard-2-of-4")
    shard_graph(graph_source(communities(nodes=60, seed=1), "other"), 4, folder.parent / "other")
    shutil.copytree(folder.parent / "other" / "shard-2-of-4", folder / "shard-2-of-4")


def other_place(folder: Path) -> None:
    shutil.rmtree(folder / "shard-2-of-4")
    shutil.copytree(folder / "shard-1-of-4", folder / "shard-2-of-4")


def starts(folder: Path) -> None:
    file = folder / "shard-1-of-4" / "starts.npy"
    found = np.load(file)
    found[4] = found[-1] + 1
    np.save(file, found)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda F: shutil.rmtree(F / "shard-3-of-4"), "F/shard-3-of-4: is missing: bring it here"),
    "too many": (lambda F: shutil.copytree(F / "shard-1-of-4", F / "shard-1-of-5"), "F/shard-1-of-5: "),
    "other folder": (other_folder, "F/shard-2-of-4/description.json: is of another data set"),
    "other place": (other_place, "F/shard-2-of-4/description.json: is of another data set"),
    "edge": (columns(lambda c: np.where(c == c[3], 60, c)), "F/shard-4-of-4/columns.npy: names a node outside"),
    "shape": (columns(lambda c: c[1:]), "F/shard-4-of-4/columns.npy: has shape"),
    "type": (columns(lambda c: c.astype(np.int64)), "F/shard-4-of-4/columns.npy: holds int64"),
    "cut off": (
        lambda F: os.truncate(F / "shard-4-of-4/columns.npy", 130),
        "F/shard-4-of-4/columns.npy: cannot read as an array",
    ),
    "empty": (lambda F: os.truncate(F / "shard-4-of-4/columns.npy", 0), "F/shard-4-of-4/columns.npy: "),
    # It is no array, though numpy would read it.
    "archive": (archive, "F/shard-4-of-4/columns.npy: "),
    "no array": (lambda F: (F / "shard-4-of-4/columns.npy").unlink(), "F/shard-4-of-4/columns.npy: is missing"),
    "starts": (starts, "F/shard-1-of-4/starts.npy: does not fit columns.npy"),
    "format": (lambda F: edit(F / "description.json", format=2), "F/description.json: cannot read"),
    "nodes": (lambda F: edit(F / "description.json", nodes=61), "F/description.json: cannot read"),
    "counts": (lambda F: edit(F / "description.json", counts=[60, 0]), "F/description.json: cannot read"),
    "names": (lambda F: edit(F / "description.json", feature_names=["a"] * 20), "F/description.json: .*feature_names"),
    "no description": (lambda F: (F / "description.json").unlink(), "F/description.json: cannot read"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(folder: Path, name: str) -> None:
    damage, culprit = DAMAGES[name]
    damage(folder)
    assert re.match(culprit, refusal(folder))


def test_counting_the_nodes_of_a_mask_reads_no_graph_and_no_features(folder: Path) -> None:
    number = sum(int(np.load(file).sum()) for file in folder.glob("*/train_mask.npy"))
    for name in ("x", "starts", "columns"):
        for file in folder.glob(f"*/{name}.npy"):
            file.write_bytes(b"damaged")
    assert ShardFolder(folder).marked("train_mask") == number > 0
    (folder / "shard-2-of-4/train_mask.npy").unlink()
    with pytest.raises(InputError, match="shard-2-of-4/train_mask.npy: is missing"):
        ShardFolder(folder).marked("train_mask")


def test_a_folder_is_for_as_many_processes_as_divide_its_shards_and_not_for_one_in_memory(folder: Path) -> None:
    assert "4 shards cannot be dealt to 3 processes" in refusal(folder, 3)
    with pytest.raises(InputError, match="is a folder of shards"):
        load_dataset(folder)
