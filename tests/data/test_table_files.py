"""Graphs in the files that people have."""

from __future__ import annotations

from pathlib import Path

import networkx
import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

from pdadmm_g import GAMLPClassifier, InputError, load_dataset
from pdadmm_g.data import table_files
from pdadmm_g.data.table_files import read_tables

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

IDS = [f"n, {number}" for number in range(20)]  # with a comma, which must be quoted


def tables(data: Data) -> tuple[pd.DataFrame, pd.DataFrame]:
    nodes = pd.DataFrame(data.x.numpy(), columns=list("abcde"))
    labels = [None if number % 10 > 7 else ["ant", "bee"][label] for number, label in enumerate(data.y)]
    split = [("train" * (number % 10 < 3)) or ("val" * (number % 10 < 6)) or None for number in range(20)]
    nodes = nodes.assign(id=IDS, label=labels, split=split)
    sources, targets = ([IDS[end] for end in ends] for ends in data.edge_index.tolist())
    return nodes, pd.DataFrame({"source": sources, "target": targets, "note": "any text"})


def write(folder: Path, kind: str, nodes: pd.DataFrame, edges: pd.DataFrame) -> tuple[Path, Path]:
    paths = folder / f"nodes{kind}", folder / f"edges{kind}"
    for path, table in zip(paths, (nodes, edges), strict=True):
        if kind == ".parquet":
            table.to_parquet(path)
        else:
            table.to_csv(path, index=False, sep="\t" if kind == ".tsv" else ",")
    return paths


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".parquet"])
def test_tables_are_the_graph_that_they_were_made_of(tiny_graph: Data, tmp_path: Path, kind: str) -> None:
    nodes, edges = write(tmp_path, kind, *tables(tiny_graph))
    data = load_dataset(nodes, edges=edges)
    torch.testing.assert_close(data.x, tiny_graph.x)
    assert torch.equal(data.edge_index, tiny_graph.edge_index)
    assert data.ids.tolist() == IDS
    assert data.label_names.tolist() == ["ant", "bee"]
    labelled = torch.arange(20) % 10 <= 7
    assert torch.equal(data.y, tiny_graph.y.where(labelled, -1))
    assert torch.equal(data.train_mask, tiny_graph.train_mask)
    assert torch.equal(data.val_mask, tiny_graph.val_mask)
    assert "test_mask" not in data


def test_graphml(tiny_graph: Data, tmp_path: Path) -> None:
    graph = networkx.Graph()
    for number in range(20):
        features = dict(zip("abcde", tiny_graph.x[number].tolist(), strict=True))
        graph.add_node(
            IDS[number], **features, **({} if number % 10 > 7 else {"label": f"class {tiny_graph.y[number]}"})
        )
    graph.add_edges_from((IDS[a], IDS[b]) for a, b in tiny_graph.edge_index.T.tolist())
    networkx.write_graphml(graph, tmp_path / "graph.graphml")
    data = load_dataset(tmp_path / "graph.graphml")
    torch.testing.assert_close(data.x.float(), tiny_graph.x)
    assert {tuple(edge) for edge in data.edge_index.T.tolist()} == {tuple(e) for e in tiny_graph.edge_index.T.tolist()}
    assert data.label_names.tolist() == ["class 0", "class 1"]
    assert data.ids.tolist() == IDS


def test_numbers_as_ids_and_labels(tmp_path: Path) -> None:
    """Labels that are whole numbers stay so, a zero before an id is part of it, and weights are read."""
    (tmp_path / "nodes.csv").write_text("\ufeffid,label,a\n007,3,1\n7,,2\n8,5,3\n", encoding="utf-8")
    (tmp_path / "edges.csv").write_text("weight,source,target\n0.5,007,8\n2,7,8\n\n")
    data = load_dataset(tmp_path / "nodes.csv", edges=tmp_path / "edges.csv")
    assert data.y.tolist() == [3, -1, 5]
    assert data.get("label_names") is None
    assert data.edge_index.tolist() == [[0, 1], [2, 2]]
    assert data.edge_weight.tolist() == [0.5, 2]


def test_without_ids_nodes_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("a,train_mask\n1,true\n2,0\n")
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    data = load_dataset(tmp_path / "nodes.csv", edges=tmp_path / "edges.csv")
    assert data.edge_index.tolist() == [[0], [1]]
    assert data.train_mask.tolist() == [True, False]
    assert data.get("ids") is None


def test_a_graph_of_ids_and_labels_alone_trains(tiny_graph: Data, tmp_path: Path) -> None:
    nodes, edges = tables(tiny_graph)
    paths = write(tmp_path, ".csv", nodes[["id", "label"]], edges)
    data = load_dataset(paths[0], edges=paths[1])
    clf = GAMLPClassifier(layers=2, epochs=10, weight_decay=0.1, unlabelled=0, random_state=0).fit(data)
    assert clf.predict(data).tolist() == np.array(["ant", "bee"])[tiny_graph.y].tolist()


def test_rows_are_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pdadmm_g.data.table_files.ROWS", 3)
    (tmp_path / "nodes.csv").write_text("a,b\n" + "".join(f"{n},{-n}\n" for n in range(10)))
    (tmp_path / "edges.csv").write_text("source,target\n" + "".join(f"{n},{n + 1}\n" for n in range(9)))
    data = load_dataset(tmp_path / "nodes.csv", edges=tmp_path / "edges.csv")
    assert data.x.tolist() == [[n, -n] for n in range(10)]
    assert data.edge_index.tolist() == [list(range(9)), list(range(1, 10))]
    (tmp_path / "nodes.csv").write_text("a,b\n" + "".join(f"{n},{'?' if n == 7 else n}\n" for n in range(10)))
    with pytest.raises(InputError, match=r"column 'b' must be numbers, but row 7 \(the first is 0\) has '\?'"):
        load_dataset(tmp_path / "nodes.csv", edges=tmp_path / "edges.csv")


REFUSED = {
    "no row": ("id,a\n", "source,target\n", "there is no row"),
    "nothing": ("", "source,target\n", "the first row must name the columns"),
    "column twice": ("a,a\n1,2\n", "source,target\n", "the first row must name the columns, each once"),
    "short row": ("a,b\n1,2\n3\n", "source,target\n", "row 1 (the first is 0) has 1 columns, the header 2"),
    "text": (
        "id,a\nx,1\ny,red\n",
        "source,target\nx,y\n",
        "column 'a' must be numbers, but row 1 (the first is 0) has",
    ),
    "unknown end": ("id,a\nx,1\n", "source,target\nx,z\n", "edges.csv: row 0 (the first is 0) names node 'z'"),
    "no target": ("id,a\nx,1\n", "source,to\nx,x\n", "column 'target' is missing; there are source, to"),
    "columns of its own": (
        "id,a\nx,1\n",
        "from,to,weight\nx,x,1\n",
        "column 'source' is missing; there are from, to, weight",
    ),
    "NaN": ("id,a,b\nx,1,nan\n", "source,target\nx,x\n", "NaN or infinity, first in row 0, column 'b'"),
    "too large": ("id,a,b\nx,1e16,1\n", "source,target\nx,x\n", "exceed 1e+15, first in row 0, column 'a'"),
    "split": ("split,a\nnever,1\n", "source,target\n0,0\n", "'split' has 'never'; known: train, val, test"),
    "weight": (
        "a\n1\n2\n",
        "source,target,weight\n0,1,1\n1,0,0\n",
        "edges.csv: column 'weight' must be positive and finite, but row 1 (the first is 0) has 0",
    ),
    "negative weight": ("a\n1\n2\n", "source,target,weight\n0,1,-2.5\n", "but row 0 (the first is 0) has -2.5"),
    "no weight": (
        "a\n1\n2\n",
        "source,target,weight\n0,1,\n",
        "edges.csv: column 'weight' must be numbers, but row 0 (the first is 0) has ''",
    ),
    "infinite weight": ("a\n1\n2\n", "source,target,weight\n0,1,inf\n", "edges.csv: column 'weight' must be"),
    "huge weight": ("a\n1\n2\n", "source,target,weight\n0,1,1e30\n", "edges.csv: column 'weight' must be"),
    "quote": ('a\n"1\n', "source,target\n", "unexpected end of data"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_damaged_tables_are_refused_in_one_line(tmp_path: Path, name: str) -> None:
    nodes, edges, message = REFUSED[name]
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "edges.csv").write_text(edges)
    with pytest.raises(InputError) as caught:
        load_dataset(tmp_path / "nodes.csv", edges=tmp_path / "edges.csv")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    for name in ("nodes.csv", "nodes.parquet", "graph.graphml"):
        (tmp_path / name).write_bytes(b"\x89\xff\x00")
        with pytest.raises(InputError, match=name):
            load_dataset(tmp_path / name)
    with pytest.raises(InputError, match="has its edges with it"):
        load_dataset("digits", edges="edges.csv")
    with pytest.raises(InputError, match=r"absent\.csv: no such file"):
        load_dataset(tmp_path / "absent.csv")


PLAIN = "id,label,a,b\nn1,x, 1.5,2\n\nn2,,-3e-2,4\nn3,y y,0.1,1e5\n"


@pytest.mark.parametrize(
    ("content", "plain"),
    [
        (PLAIN, True),
        (PLAIN.replace("\n", "\r\n"), True),
        ("\ufeff" + PLAIN, True),
        (PLAIN.replace("n1", '"n,1"'), False),
        (PLAIN.replace("\n", "\r"), False),
    ],
    ids=["plain", "windows", "marked", "quoted", "old mac"],
)
def test_a_large_table_is_read_as_a_small_one_is(
    content: str, plain: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(content, encoding="utf-8", newline="")
    small = read_tables(path, None)
    monkeypatch.setattr(table_files, "LARGE", 0)
    assert (table_files._read_plain(path, ",", ("id", "label"), None) is not None) is plain
    large = read_tables(path, None)
    assert torch.equal(large.x, small.x)
    assert torch.equal(large.y, small.y)
    assert (large.ids.tolist(), large.label_names.tolist()) == (small.ids.tolist(), small.label_names.tolist())


@pytest.mark.parametrize("large", [False, True])
def test_the_column_label_may_be_one_of_several(large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "LARGE", 0 if large else 1 << 20)
    (tmp_path / "nodes.csv").write_text("label,a,other\n1,0.5,0\n0,1.5,1\n")
    data = load_dataset(tmp_path / "nodes.csv", labels=("label", "other"))
    assert (data.y.tolist(), data.label_names.tolist()) == ([[1, 0], [0, 1]], ["label", "other"])
    (tmp_path / "nodes.csv").write_text("id,a\n1,0.5\n0,1.5\n")
    with pytest.raises(InputError, match="column 'id' cannot be learned"):
        load_dataset(tmp_path / "nodes.csv", labels=["id"])


def test_one_name_is_one_column(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("price,a\n1.5,0.5\n2.5,1.5\n")
    data = load_dataset(tmp_path / "nodes.csv", labels="price", target="regression")
    assert (data.y.tolist(), data.feature_names) == ([[1.5], [2.5]], ("a",))


def test_parquet_labels_that_are_no_text(tmp_path: Path) -> None:
    damaged = pa.array([b"ab\x80", b"cd"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"label": damaged, "a": [1.0, 2.0]}), tmp_path / "nodes.parquet")
    with pytest.raises(InputError, match=r"nodes\.parquet: cannot read as Parquet: damaged"):
        load_dataset(tmp_path / "nodes.parquet")


def test_a_parquet_table_of_lists_without_a_row(tmp_path: Path) -> None:
    pd.DataFrame({"x": [[1.0]]}).iloc[:0].to_parquet(
        tmp_path / "nodes.parquet", schema=pa.schema([("x", pa.list_(pa.float32()))])
    )
    with pytest.raises(InputError, match="there is no row"):
        load_dataset(tmp_path / "nodes.parquet")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,a\nn1,1\nn2,one\n", "column 'a' must be numbers, but row 1 .* has 'one'"),
        ("id,a\nn1,1\nn2,\n", "column 'a' must be numbers, but row 1 .* has ''"),
        ("id,a\nn1,1\nn2\n", "row 1 .* has 1 columns"),
        ("id,a,a\nn1,1,2\n", "must name the columns, each once"),
        ("id,a\n", "there is no row"),
        ("", "must name the columns"),
        ("\nid,a\nn1,1\n", "must name the columns"),
    ],
)
def test_what_is_wrong_in_a_large_table_is_said_as_of_a_small_one(
    content: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "LARGE", 0)
    (tmp_path / "nodes.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        read_tables(tmp_path / "nodes.csv", None)
