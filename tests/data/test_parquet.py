"""Parquet tables of nodes and edges, as people have them, are the graph that they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdadmm_g.data.datasets import load_dataset
from pdadmm_g.data.sharding import shard_graph
from pdadmm_g.data.shards import ShardFolder
from pdadmm_g.data.tables import open_table
from pdadmm_g.errors import InputError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

EDGES = {"source": ["a", "b", "d", "b"], "target": ["b", "c", "a", "a"]}
NODES: dict[str, Any] = {
    "id": ["c", "a", "d", "b"],
    "label": [1, 0, None, 2],
    "split": ["train", "val", None, "test"],
    "x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]],
}


def write(folder: Path, nodes: dict[str, Any], edges: dict[str, Any], *, split: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    tables = {"nodes": pa.table(nodes), "edges": pa.table(edges)}
    for name, table in tables.items():
        (folder / name).mkdir(exist_ok=True)
        parts = [table.slice(0, 3), table.slice(3)] if split else [table]
        for old in (folder / name).iterdir():
            old.unlink()
        for number, part in enumerate(parts):
            pq.write_table(part, folder / name / f"part-{number}.parquet", row_group_size=2)
    return folder


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("kind", ["text", "numbers", "as they stand"])
def test_tables_are_the_graph(tmp_path: Path, kind: str, split: bool) -> None:
    nodes, edges = dict(NODES), dict(EDGES)
    if kind != "text":
        number = {"c": 0, "a": 1, "d": 2, "b": 3}
        factor = 10**12 if kind == "numbers" else 1
        nodes["id"] = [factor * number[name] for name in NODES["id"]]
        edges = {name: [factor * number[end] for end in ends] for name, ends in EDGES.items()}
    shard_graph(open_table(str(write(tmp_path / "in", nodes, edges, split=split))), 2, tmp_path / "out")
    part = ShardFolder(tmp_path / "out").part(0, 1)
    columns = {name: part.column(name) for name in part.whole.arrays}
    assert columns["x"].tolist() == NODES["x"]
    assert columns["y"].tolist() == [1, 0, -1, 2]
    assert [columns[name].tolist() for name in ("train_mask", "val_mask", "test_mask")] == [
        [True, False, False, False], [False, True, False, False], [False, False, False, True],
    ]  # fmt: skip
    neighbours = [
        shard.arrays["columns"][shard.arrays["starts"][row] : shard.arrays["starts"][row + 1]].tolist()
        for shard in part.shards
        for row in range(shard.count)
    ]
    assert neighbours == [[3], [2, 3], [1], [0, 1]]
    if kind == "as they stand":
        assert "id" not in columns
    else:
        assert columns["id"].tolist() == [name.encode() if kind == "text" else name for name in nodes["id"]]


def test_each_other_column_is_a_feature(tmp_path: Path) -> None:
    nodes = {"height": [1.0, 2.0], "train_mask": [True, None], "tall": [False, True], "age": [3, 4]}
    table = open_table(str(write(tmp_path / "in", nodes, {"source": [0], "target": [1]})))
    assert table.x(0, 2).tolist() == [[1.0, 0.0, 3.0], [2.0, 1.0, 4.0]]
    assert table.columns["train_mask"].tolist() == [True, False]
    assert [[ends.tolist() for ends in block] for block in table.edges(10, 0)] == [[[0], [1]]]
    assert list(table.edges(10, 1)) == []
    assert table.feature_names == ("height", "tall", "age")


def test_labels_may_be_unsigned(tmp_path: Path) -> None:
    labels = pa.array(NODES["label"], pa.uint8())
    assert open_table(str(write(tmp_path / "in", NODES | {"label": labels}, EDGES))).columns["y"].tolist() == [
        1,
        0,
        -1,
        2,
    ]


def test_what_is_damaged_within_is_refused_in_one_line(tmp_path: Path) -> None:
    """The head and the tail of a file may be whole, so that it opens."""
    folder = write(tmp_path / "in", {"f": np.random.default_rng(0).random(20_000)}, {"source": [0], "target": [1]})
    (file,) = (folder / "nodes").iterdir()
    pq.write_table(pa.table({"f": np.random.default_rng(0).random(20_000)}), file, compression="gzip")
    content = bytearray(file.read_bytes())
    content[5_000:90_000] = bytes(85_000)
    file.write_bytes(content)
    with pytest.raises(InputError, match="cannot read as Parquet"):
        open_table(str(folder))


def test_mistakes_name_file_and_column(tmp_path: Path) -> None:
    def said(nodes: dict[str, Any], edges: dict[str, Any]) -> str:
        folder = write(tmp_path / "in", NODES | nodes, EDGES | edges)
        with pytest.raises(InputError) as caught:
            shard_graph(open_table(str(folder)), 1, tmp_path / "out", overwrite=True)
        return str(caught.value).removeprefix(f"{folder}/")

    nodes, edges = "nodes/part-0.parquet", "edges/part-0.parquet"
    assert said({}, {"source": ["a", "b", "z", "b"]}) == f"{edges}: names node 'z', which is not among the nodes"
    assert said({}, {"source": ["a", "b", None, "b"]}) == f"{edges}: an edge has no source or no target"
    assert said({"id": ["a", "b", "a", "c"]}, {}) == f"{nodes}: column 'id' names node 'a' twice"
    assert said({"label": ["x", "y", "x", "y"]}, {}) == (
        f"{nodes}: column 'label' must be whole numbers from 0 on, not string: number the classes"
    )
    assert said({"split": ["train", "dev", None, "test"]}, {}) == (
        f"{nodes}: column 'split' has 'dev'; known: train, val, test"
    )
    assert said({"x": [[1.0], [2.0, 3.0], [4.0], [5.0]]}, {}).endswith("must be lists of numbers, all of one length")
    assert said({"x": [[1.0], [np.nan], [4.0], [5.0]]}, {}) == (
        f"{nodes}: features contain NaN or infinity, first in row 1"
    )
    assert said({"x": ["a", "b", "c", "d"]}, {}).startswith(f"{nodes}: column 'x' must be numbers, not string")
    weights = f"{edges}: column 'weight': weights of edges are not for a folder of shards: leave them out, or train on "
    assert said({}, {"weight": [1.0, 2.0, 1.0, 1.0]}) == f"{weights}the tables with --nodes and --edges"
    beside = f"{nodes}: column 'x' of lists is all features, but 'age' stands beside it: "
    assert said({"age": [1, 2, 3, 4]}, {}).startswith(beside)
    with pytest.raises(InputError, match="column 'x' of lists is all features, but 'age' stands beside it"):
        load_dataset(tmp_path / "in" / nodes, edges=tmp_path / "in" / edges)
    (tmp_path / "in" / edges).write_bytes(b"no")
    with pytest.raises(InputError, match="cannot read as Parquet: damaged, or of another kind"):
        open_table(str(tmp_path / "in"))
