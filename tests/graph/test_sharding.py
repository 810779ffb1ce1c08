"""A graph in shards is the graph, whatever it was read from and however many processes read it."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.communities import communities
from helpers.lines import on_threads
from pdadmm_g import Graph, InputError, as_graph
from pdadmm_g.cli.data import shard
from pdadmm_g.graph import shards as sharding
from pdadmm_g.graph.checks import check_graph
from pdadmm_g.graph.datasets import load_dataset
from pdadmm_g.graph.graph import MASKS, arranged, id_order, natural, reordered
from pdadmm_g.graph.parts import are_directed, summed
from pdadmm_g.graph.shards import ShardFolder, graph_source, is_sharded, open_source, shard_graph
from pdadmm_g.graph.tables import with_values


@pytest.fixture(autouse=True)
def _one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's parser, by which numpy reads the head of a file, is not for threads that stand in for processes."""
    lock, mapped = threading.Lock(), sharding._mapped

    def locked(*arguments: Any) -> Any:
        with lock:
            return mapped(*arguments)

    monkeypatch.setattr(sharding, "_mapped", locked)


# Labels of so many nodes.
LABELS: dict[str, Callable[[Any, int], dict[str, Any]]] = {
    "none": lambda rng, n: {},
    "classes": lambda rng, n: {"y": torch.from_numpy(rng.integers(-1, 3, n))},
    "names": lambda rng, n: {"y": torch.from_numpy(rng.integers(-1, 3, n)), "label_names": np.array(["c", "a", "é"])},
    "soft": lambda rng, n: {"y": torch.from_numpy(rng.dirichlet(np.ones(3), n)).float()},
    "several": lambda rng, n: {"y": torch.from_numpy(rng.integers(0, 2, (n, 3)))},
    "numbers": lambda rng, n: {"y": torch.from_numpy(rng.standard_normal((n, 2))), "target_kind": "regression"},
}
IDS: dict[str, Callable[[Any, int], Any]] = {
    "none": lambda rng, n: None,
    "numbers": lambda rng, n: 3 * rng.permutation(n),
    "text": lambda rng, n: np.array([f"nœud {number}" for number in rng.permutation(n)]),
    "large": lambda rng, n: rng.permutation(n).astype(np.uint64) + np.uint64(2**63),
}
WAYS = ("any", "up", "down", "both")


def random_graph(seed: int, labels: str, ids: str, ways: str, weighted: bool) -> Graph:
    """Nodes with edges one way or both, some of them several times or from a node to itself."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(6, 30))
    edges = rng.integers(0, nodes, (2, int(rng.integers(1, 4 * nodes))))
    edges = {"up": np.sort(edges, 0), "down": np.sort(edges, 0)[::-1]}.get(ways, edges)
    weights = rng.integers(1, 9, edges.shape[1]) / 7
    if ways == "both":
        edges, weights = np.concatenate([edges, edges[::-1]], axis=1), np.tile(weights, 2)
    masks = {"train_mask": rng.random((nodes, 2)) < 0.5, "val_mask": rng.random(nodes) < 0.5}
    return Graph(
        x=torch.from_numpy(rng.standard_normal((nodes, 4)).astype(np.float32)),
        edge_index=torch.from_numpy(np.ascontiguousarray(edges)),
        edge_weight=torch.from_numpy(weights) if weighted else None,
        ids=IDS[ids](rng, nodes),
        **{name: torch.from_numpy(mask) for name, mask in masks.items() if rng.random() < 0.7},
        **LABELS[labels](rng, nodes),
    )


def prepared(data: Graph) -> Graph:
    """As it is for training."""
    data = check_graph(with_values(data))
    names = data.get("feature_names")
    data = arranged(data, None if names is None else sorted(names, key=natural))
    return reordered(data, id_order(data))


def read(folder: Path, parts: int = 1) -> list[Graph]:
    return on_threads(parts, ShardFolder(folder).graph)  # type: ignore[arg-type]


def assert_is(folder: Path, data: Graph, parts: int) -> None:
    """The folder holds the graph, in all parts together."""
    found = read(folder, parts)
    assert [part.part.first for part in found] == np.cumsum([0, *(part.part.count for part in found)])[:-1].tolist()
    assert torch.equal(torch.cat([part.x for part in found]), data.x.to_dense().float())
    W = summed(data.edge_index, data.num_nodes, data.get("edge_weight")).toarray()
    W = W if "edge_weight" in data else np.sign(W)
    np.fill_diagonal(W, 0)
    directed = are_directed(data)
    for part in found:
        assert part.digest == ShardFolder(folder).whole.digest
        for name in ("y", *MASKS):
            assert (name in part) == (name in data)
            if name in data:
                assert part[name].dtype == data[name].dtype
                assert torch.allclose(part[name].double(), data[name].double(), rtol=0, atol=0, equal_nan=True)
        for name in ("ids", "label_names"):
            own = data.get(name)
            kind = str if name == "ids" and own is not None and own.dtype != np.int64 else lambda each: each
            assert (None if name not in part else part[name].tolist()) == (
                None if own is None else [kind(each) for each in own.tolist()]
            )
        for name in ("target_kind", "feature_names", "columns", "structural", "notes"):
            assert part.get(name) == data.get(name)
        assert (part.num_nodes, part.edges, part.directed) == (data.num_nodes, (W + W.T > 0).sum() // 2, directed)
        starts, columns, out, into = part.neighbours
        assert starts.dtype == columns.dtype
        assert (out is not None) == (into is not None) == (directed or data.get("edge_weight") is not None)
        for row in range(part.part.count):
            node, own = part.part.first + row, slice(starts[row], starts[row + 1])
            neighbours = np.flatnonzero(W[node] + W[:, node])
            assert columns[own].tolist() == neighbours.tolist()
            if out is not None:
                assert np.array_equal(out[own], W[node, neighbours])
                assert np.array_equal(into[own], W[neighbours, node])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 10**6), st.sampled_from([*LABELS]), st.sampled_from([*IDS]), st.sampled_from(WAYS), st.booleans(),
    st.sampled_from([(1, 1), (3, 1), (2, 2), (6, 3)]),
)  # fmt: skip
def test_parts_are_the_graph(
    tmp_path: Path, seed: int, labels: str, ids: str, ways: str, weighted: bool, shards: tuple[int, int]
) -> None:
    data = random_graph(seed, labels, ids, ways, weighted)
    whole = shard_graph(graph_source(data), shards[0], tmp_path / "out", overwrite=True)
    assert is_sharded(tmp_path / "out")
    assert whole.shards == shards[0]
    assert_is(tmp_path / "out", prepared(data), shards[1])


# ---------------------------------------------------------------------------------------------------- graphs in blocks


@pytest.mark.parametrize("labels", [*LABELS])
@pytest.mark.parametrize("turned", [False, True])
def test_a_folder_of_arrays_is_the_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: str, turned: bool
) -> None:
    monkeypatch.setattr(sharding, "EDGES", 7)
    monkeypatch.setattr(sharding, "BYTES", 64)
    monkeypatch.setattr(sharding, "ROWS", 3)
    data = random_graph(5, labels, "none", "any", turned)
    (tmp_path / "in").mkdir()
    arrays = {name: data[name].numpy() for name in ("x", "edge_index", "edge_weight", "y", *MASKS) if name in data}
    if turned:
        arrays["edge_index"] = arrays["edge_index"].T.astype(np.int32)
    if "label_names" in data:
        arrays["y"] = np.where(arrays["y"] < 0, "", data.label_names[arrays["y"]])
    arrays["ids"] = np.arange(data.num_nodes) + 5
    data.ids = arrays["ids"]
    for name, array in arrays.items():
        np.save(tmp_path / "in" / f"{name}.npy", array)
    source = open_source(str(tmp_path / "in"), target=data.get("target_kind", "auto"))
    shard_graph(source, 3, tmp_path / "out")
    assert_is(tmp_path / "out", check_graph(data), 3)


def tables(nodes: int = 50) -> tuple[pd.DataFrame, pd.DataFrame]:
    """With columns of several kinds, and with gaps; ids in order, so that the order of rows is theirs."""
    rng = np.random.default_rng(0)
    table = {
        "key": [f"k{number:03d}" for number in range(nodes)],
        "age": np.where(rng.random(nodes) < 0.2, np.nan, rng.integers(0, 90, nodes)),
        "city": rng.choice(["Ulm", "Bern", "Oslo"], nodes),
        "born": pd.date_range("2020-01-01", periods=nodes).astype(str),
        "price": rng.random(nodes),
        "kind": rng.choice(np.array(["ant", "bee", None], dtype=object), nodes),
        "split": rng.choice(["train", "val", "test"], nodes),
    }
    ends = {name: rng.choice(table["key"], 3 * nodes) for name in ("from", "to")}
    return pd.DataFrame(table), pd.DataFrame(ends | {"weight": rng.integers(1, 9, 3 * nodes) / 7})


def write_folder(folder: Path, nodes: Any, edges: Any) -> str:
    folder.mkdir(exist_ok=True)
    nodes, edges = pd.DataFrame(nodes), pd.DataFrame(edges)
    nodes[:20].to_parquet(folder / "nodes-0.parquet", row_group_size=6)
    nodes[20:].to_parquet(folder / "nodes-1.parquet", row_group_size=6)
    (folder / "edges").mkdir(exist_ok=True)
    edges.to_parquet(folder / "edges" / "part.parquet", row_group_size=11)
    return str(folder)


@pytest.mark.parametrize("label", ["kind", "price"])
def test_a_folder_of_tables_is_the_graph_of_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: str
) -> None:
    monkeypatch.setattr(sharding, "EDGES", 13)
    monkeypatch.setattr(sharding, "BYTES", 500)
    nodes, edges = tables()
    nodes = nodes.drop(columns="price" if label == "kind" else "kind")
    target: Any = "auto" if label == "kind" else "regression"
    edges.loc[3, "from"] = "nobody"
    naming = {"labels": (label,), "id_column": "key", "skip_unknown": True}
    source = open_source(
        write_folder(tmp_path / "in", nodes, edges), target=target, columns={"age": "number"}, **naming
    )
    shard_graph(source, 3, tmp_path / "out")
    data = prepared(as_graph(nodes, edges, target=target, columns={"age": "number"}, **naming))
    assert data.feature_names == tuple(sorted(data.feature_names, key=natural))
    assert "number of neighbours" in data.feature_names
    data.notes = None
    assert_is(tmp_path / "out", data, 3)


# ------------------------------------------------------------------------------------------------------------- writing


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("weighted", [False, True])
def test_interrupted_at_any_point_it_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weighted: bool
) -> None:
    source, steps = graph_source(random_graph(3, "soft", "text", "any", weighted)), [0]
    monkeypatch.setattr(sharding, "EDGES", source.number_of_edges // 3)
    shard_graph(source, 3, tmp_path / "whole")

    def stopped(name: str) -> Callable[..., None]:
        """Does it, and in the end is killed, or does half of it."""
        real = getattr(sharding, name)

        def work(*arguments: Any) -> None:
            steps[0] -= 1
            if not steps[0]:
                for file in (tmp_path / "out").rglob("edges.tmp"):
                    file.write_bytes(file.read_bytes() + b"what was written in vain")
                raise KeyboardInterrupt
            real(*arguments)

        return work

    monkeypatch.setattr(os, "fsync", lambda _: None)  # which takes its time
    for name in ("write_atomically", "_on_disk"):
        monkeypatch.setattr(sharding, name, stopped(name))
    for stop in range(1, 200):
        steps[0] = stop
        try:
            shard_graph(source, 3, tmp_path / "out", overwrite=True)
        except KeyboardInterrupt:
            assert not is_sharded(tmp_path / "out")
            shard_graph(source, 3, tmp_path / "out")
        assert content(tmp_path / "out") == content(tmp_path / "whole")
        if steps[0] > 0:
            break
        shutil.rmtree(tmp_path / "out")
    assert 20 < stop < 199


def test_only_what_may_be_replaced_is(tmp_path: Path) -> None:
    source, out = graph_source(communities(nodes=50)), tmp_path / "out"
    whole = shard_graph(source, 2, out)
    assert shard_graph(source, 2, out, on_progress=lambda *_: pytest.fail("nothing is left to do")) == whole
    with pytest.raises(InputError, match=r"out: holds something else; .* --overwrite"):
        shard_graph(source, 3, out)
    (out / "letters.txt").write_text("mine")
    assert shard_graph(source, 3, out, overwrite=True).shards == ShardFolder(out).whole.shards == 3
    assert {path.name for path in out.glob("shard*")} == {f"shard-{number}-of-3" for number in (1, 2, 3)}
    assert (out / "letters.txt").read_text() == "mine"
    (out / "description.json").unlink()
    with pytest.raises(InputError, match=r"out: holds something else"):
        shard_graph(source, 2, out)


def test_the_command_reads_tables_as_train_does(tmp_path: Path) -> None:
    nodes, edges = (tmp_path / f"{name}.csv" for name in ("nodes", "edges"))
    for path, table in zip((nodes, edges), tables(), strict=True):
        table.to_csv(path, index=False)
    naming = ["--id-column", "key", "--labels", "price", "--target", "regression", "--columns", "kind=ignore"]
    command = [str(nodes), "--edges", str(edges), *naming, "--shards", "2", "--out", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(shard, command, catch_exceptions=False, standalone_mode=False)
    assert json.loads(done.stdout.splitlines()[-1])["nodes"] == 50
    found = load_dataset(
        nodes, edges=edges, labels="price", id_column="key", target="regression", columns={"kind": "ignore"}
    )
    assert_is(tmp_path / "out", prepared(found), 2)
    with pytest.raises(InputError, match="labels is about a table"):
        CliRunner().invoke(shard, ["digits", *naming, "--shards", "2", "--out", "no"], catch_exceptions=False)


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("name", "change", "culprit"),
    [
        ("edge_index", lambda edges: np.where(edges == 9, 50, edges), "edge_index.npy: edge_index names node 50"),
        ("edge_index", lambda edges: edges / 2, "integers"),
        ("edge_index", lambda edges: edges[0], "edge_index.npy: must have shape"),
        ("edge_weight", lambda w: -w, "edge_weight.npy must be positive and finite numbers, but edge 0"),
        ("edge_weight", lambda w: w[1:], "edge_weight.npy: has shape"),
        ("x", lambda x: np.where(np.arange(50)[:, None] == 31, np.nan, x), "NaN or infinity, first in row 31"),
        ("x", lambda x: np.where(np.arange(50)[:, None] == 31, 1e20, x), r"exceed 1e\+15.*, first in row 31"),
        ("x", lambda x: x[:, 0], "x.npy: must be a matrix"),
        ("y", lambda y: y[1:], r"'y' have shape \(49,\)"),
        ("train_mask", lambda mask: np.array([50]), "train_mask names a node outside 0..49"),
        ("ids", lambda ids: ids[1:], "ids must be 50 names"),
    ],
)
def test_bad_arrays_are_named(tmp_path: Path, name: str, change: Callable[[Any], Any], culprit: str) -> None:
    data = communities(nodes=50)
    data.edge_weight, data.ids = torch.ones(data.edge_index.shape[1]), torch.arange(50)
    for own in ("x", "y", "edge_index", "edge_weight", "ids", *MASKS):
        np.save(tmp_path / f"{own}.npy", change(data[own].numpy()) if own == name else data[own].numpy())
    with pytest.raises(InputError, match=culprit):
        shard_graph(open_source(str(tmp_path)), 2, tmp_path / "out")


TABLE = {"id": ["c", "a", "d", "b"], "split": ["train", "val", None, "test"], "x": [[1.0], [2.0], [3.0], [4.0]]}
ENDS = {"source": ["a", "b", "d", "b"], "target": ["b", "c", "a", "a"]}


@pytest.mark.parametrize(
    ("nodes", "edges", "culprits"),
    [
        ({}, {"source": ["a", "b", "z", "b"]}, ("part.parquet: row 2", "'z'")),
        ({}, {"source": ["a", "b", None, "b"]}, ("part.parquet: row 2", "source")),
        ({}, {"weight": [1.0, 2.0, 0.0, 1.0]}, ("part.parquet: column 'weight'", "row 2")),
        ({"id": ["a", "b", "a", "c"]}, {}, ("nodes-0.parquet", "'id'", "'a' twice")),
        ({"split": ["train", "dev", None, "test"]}, {}, ("nodes-0.parquet", "got 'dev'")),
        ({"x": [[1.0], [2.0, 3.0], [4.0], [5.0]]}, {}, ("nodes-0.parquet", "column 'x'")),
        ({"x": [[1.0], [np.nan], [4.0], [5.0]]}, {}, ("nodes-0.parquet", "NaN or infinity, first in row 1")),
        ({"age": [1, 2, 3, 4]}, {}, ("nodes-0.parquet", "'x' of lists is all features, but 'age'")),
    ],
)
def test_bad_tables_are_named(tmp_path: Path, nodes: Any, edges: Any, culprits: tuple[str, ...]) -> None:
    folder = write_folder(tmp_path / "in", TABLE | nodes, ENDS | edges)
    with pytest.raises(InputError) as caught:
        shard_graph(open_source(folder), 1, tmp_path / "out")
    assert all(culprit in str(caught.value) for culprit in culprits), caught.value


def test_what_cannot_be_sharded_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "graph.npz", x=np.ones((2, 1), dtype=np.float32))
    with pytest.raises(InputError, match=r"graph.npz: there are no edges"):
        open_source(str(tmp_path / "graph.npz"))
    with pytest.raises(InputError, match="holds neither x.npy nor tables"):
        open_source(str(tmp_path))
    np.savez(tmp_path / "graph.npz", x=np.ones((2, 1), dtype=np.float32), edge_index=np.empty((2, 0), dtype=np.int64))
    with pytest.raises(InputError, match="shards = 3, but there are 2 nodes"):
        shard_graph(open_source(str(tmp_path / "graph.npz")), 3, tmp_path / "out")
    assert shard_graph(open_source(str(tmp_path / "graph.npz")), 2, tmp_path / "out").edges == 0
    assert read(tmp_path / "out", 2)[1].neighbours.columns.tolist() == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shard_graph(graph_source(communities(nodes=60)), 4, tmp_path / "graph")
    return tmp_path / "graph"


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def array(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], object]:
    """That of the last shard, with a change."""
    file = f"shard-4-of-4/{name}.npy"
    return lambda folder: np.save(folder / file, change(np.load(folder / file)))


def of_another(folder: Path, source: str | None = None) -> None:
    """A shard in the place of the second one."""
    if source is None:
        source = "../other/shard-2-of-4"
        shard_graph(graph_source(communities(nodes=60, seed=1)), 4, folder.parent / "other")
    shutil.rmtree(folder / "shard-2-of-4")
    shutil.copytree(folder / source, folder / "shard-2-of-4")


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda F: shutil.rmtree(F / "shard-3-of-4"), "F/shard-3-of-4: is missing: bring it here"),
    "other folder": (of_another, "F/shard-2-of-4/description.json: is of another data set"),
    "other place": (lambda F: of_another(F, "shard-1-of-4"), "F/shard-2-of-4/description.json: is of another data set"),
    "edge": (array("columns", lambda c: np.where(c == c[3], 60, c)), "F/shard-4-of-4/columns.npy: names a node"),
    "shape": (array("y", lambda y: y[1:]), "F/shard-4-of-4/y.npy: is int64"),
    "type": (array("columns", lambda c: c.astype(np.int64)), "F/shard-4-of-4/columns.npy: is int64"),
    "degrees": (array("degrees", lambda d: d + 1), "F/shard-4-of-4/degrees.npy: does not fit columns.npy"),
    "cut off": (lambda F: os.truncate(F / "shard-4-of-4/x.npy", 130), "F/shard-4-of-4/x.npy: cannot read as an array"),
    "empty": (lambda F: os.truncate(F / "shard-4-of-4/x.npy", 0), "F/shard-4-of-4/x.npy: cannot read as an array"),
    "no array": (lambda F: (F / "shard-4-of-4/x.npy").unlink(), "F/shard-4-of-4/x.npy: is missing"),
    "format": (lambda F: edit(F / "description.json", format=1), "F/description.json: .* make the folder anew"),
    "nodes": (lambda F: edit(F / "description.json", nodes=61), "F/description.json: cannot read"),
    "counts": (lambda F: edit(F / "description.json", counts=[60, 0]), "F/description.json: cannot read"),
    "names": (lambda F: edit(F / "description.json", feature_names=["a"] * 20), "F/description.json: .*feature_names"),
    "no description": (lambda F: (F / "description.json").unlink(), "F/description.json: cannot read"),
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("parts", [1, 2])
def test_damage_is_named_on_every_process(folder: Path, name: str, parts: int) -> None:
    damage, culprit = DAMAGES[name]
    damage(folder)

    def refused(line: Any) -> None:
        with pytest.raises(InputError) as caught:
            ShardFolder(folder).graph(line)
        assert re.match(culprit, str(caught.value).replace(str(folder), "F"))

    on_threads(parts, refused)


def test_a_folder_is_for_as_many_processes_as_divide_its_shards_and_not_for_one_in_memory(folder: Path) -> None:
    with pytest.raises(InputError, match="4 shards cannot be dealt to 3 processes"):
        ShardFolder(folder).check_parts(3)
    with pytest.raises(InputError, match="is a folder of shards"):
        load_dataset(folder)
