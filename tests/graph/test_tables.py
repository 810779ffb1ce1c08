"""Tables as people have them are the graph that they say, in files of any kind and in memory."""

from __future__ import annotations

import gzip
import warnings
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from pdadmm_g import Graph, InputError, as_graph, load_dataset

IDS = [f"n, {number}" for number in range(20)]  # with a comma, which must be quoted


def tables(data: Graph) -> tuple[pd.DataFrame, pd.DataFrame]:
    nodes = pd.DataFrame(data.x.double().numpy(), columns=list("abcde"))
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
def test_tables_are_the_graph_that_they_were_made_of(tiny_graph: Graph, tmp_path: Path, kind: str) -> None:
    nodes, edges = write(tmp_path, kind, *tables(tiny_graph))
    data = load_dataset(nodes, edges=edges)
    assert np.array_equal(data.table.to_numpy(), tiny_graph.x.numpy())
    assert torch.equal(data.edge_index, tiny_graph.edge_index)
    assert data.ids.tolist() == IDS
    assert data.label_names.tolist() == ["ant", "bee"]
    labelled = torch.arange(20) % 10 <= 7
    assert torch.equal(data.y, tiny_graph.y.where(labelled, -1))
    assert torch.equal(data.train_mask, tiny_graph.train_mask)
    assert torch.equal(data.val_mask, tiny_graph.val_mask)
    assert "test_mask" not in data


def test_graphml(tiny_graph: Graph, tmp_path: Path) -> None:
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


def written(folder: Path, nodes: str, edges: str | None = None, **options: Any) -> Graph:
    """The graph of tables with this text."""
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8", newline="")
    if edges is not None:
        (folder / "edges.csv").write_text(edges)
        options["edges"] = folder / "edges.csv"
    return load_dataset(folder / "nodes.csv", **options)


def test_numbers_as_ids_and_labels(tmp_path: Path) -> None:
    """Labels that are whole numbers stay so, a zero before an id is part of it, and weights are read."""
    edges = "weight,source,target\n0.5,007,8\n2,7,8\n\n"
    data = written(tmp_path, "\ufeffid,label,a\n007,3,1\n7,,2\n8,5,3\n", edges)
    assert data.y.tolist() == [3, -1, 5]
    assert data.get("label_names") is None
    assert data.edge_index.tolist() == [[0, 1], [2, 2]]
    assert data.edge_weight.tolist() == [0.5, 2]


WEIGHT = "edges.csv: column 'weight' must be positive and finite numbers"
REFUSED = [
    ("id,a\n", "source,target\n", "there is no row"),
    ("", "source,target\n", "the first row must name the columns"),
    ("a,a\n1,2\n", "source,target\n", "the first row must name the columns, each once"),
    ("a,b\n1,2\n3,4,5\n", "source,target\n", "Row #3: Expected 2 columns, got 3"),
    ("id,a\nx,1\n", "source,target\nx,z\n", "edges.csv: row 0 (the first is 0) names node 'z'"),
    ("id,a\nx,1\nx,2\n", "source,target\nx,x\n", "names node 'x' twice"),
    ("id,a\nx,1\n", "source,when,b\nx,x,x\n", "column 'target' is missing; there are source, when, b"),
    ("split,a\nnever,1\n", "source,target\n0,0\n", "'split' must be train, val or test, got 'never'"),
    ("a\n1\n2\n", "source,target,weight\n0,1,1\n1,0,0\n", WEIGHT + ", but row 1"),
    ("a\n1\n2\n", "source,target,weight\n0,1,1e30\n", WEIGHT),
    ("a\n1\n2\n", "source,target,weight\n0,1,1\n1,0,much\n", WEIGHT + ", but row 1 (the first is 0) has 'much'"),
    ("a\n1\n2\n", "source,target\n0,1\n0,\n", "edges.csv: row 1 (the first is 0) has no target"),
    ("id,a\nx,1\n,2\n", "source,target\nx,x\n", "nodes.csv: column 'id' has none in row 1"),
    ('id,label\na,x\nb,"y\nc,z\n', "source,target\n", "a quote that is opened in the last row is not closed"),
]


@pytest.mark.parametrize(("nodes", "edges", "message"), REFUSED)
def test_damaged_tables_are_refused_in_one_line(tmp_path: Path, nodes: str, edges: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        written(tmp_path, nodes, edges)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"load_dataset\('n\.csv', edges='e\.csv'\)"):
        as_graph("n.csv", "e.csv")
    for name in ("nodes.csv", "nodes.parquet", "graph.graphml"):
        (tmp_path / name).write_bytes(b"\x89\xff\x00")
        with pytest.raises(InputError, match=name):
            load_dataset(tmp_path / name)
    with pytest.raises(InputError, match="has its edges with it"):
        load_dataset("digits", edges="edges.csv")
    with pytest.raises(InputError, match=r"absent\.csv: no such file"):
        load_dataset(tmp_path / "absent.csv")


PLAIN = "id,label,a,b\nn1,x, 1.5,2\n\nn2,,-3e-2,4\nn3,y y,0.1,1e5\n"


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig"])
@pytest.mark.parametrize("kind", [".csv", ".tsv.gz"])
def test_encodings_and_packed_files(encoding: str, kind: str, tmp_path: Path) -> None:
    mark, path = "\t" if kind == ".tsv.gz" else ";", tmp_path / f"nodes{kind}"
    text = PLAIN.replace("y y", '"größe\nĀ"' if encoding == "utf-16" else '"größe €"').replace(",", mark)
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt", encoding=encoding) as file:
        file.write(text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = load_dataset(path)
    assert data.ids.tolist() == ["n1", "n2", "n3"]
    assert data.label_names.tolist() == ["größe\nĀ" if encoding == "utf-16" else "größe €", "x"]
    assert data.table["b"].tolist() == [2, 4, 1e5]
    said = [f"{path}: is not in UTF-8 and is read as Windows-1252: save it as UTF-8"] * (encoding == "cp1252")
    assert [str(each.message) for each in caught] == said


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_a_zero_before_a_label_is_part_of_it(kind: str, tmp_path: Path) -> None:
    for labels, expected in ((["01", "1"], ["01", "1"]), (["10", "1"], [10, 1])):
        nodes = pd.DataFrame({"label": labels, "a": [1.0, 2.0]})
        path, _ = write(tmp_path, kind, nodes, nodes)
        data = load_dataset(path)
        names = data.get("label_names")
        assert [*(data.y if names is None else names[data.y]).tolist()] == expected


def test_numbers_are_read_to_the_last_bit(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((500, 3))
    pd.DataFrame(x, columns=list("abc")).to_csv(tmp_path / "nodes.csv", index=False)
    assert np.array_equal(load_dataset(tmp_path / "nodes.csv").table.to_numpy(), x)


def test_parquet_tables_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "nodes.parquet"
    damaged = pa.array([b"ab\x80", b"cd"], pa.binary()).view(pa.string())
    empty = pa.table({"x": []}, pa.schema([("x", pa.list_(pa.float32()))]))
    for table, message in ((pa.table({"label": damaged, "a": [1.0, 2.0]}), "Invalid UTF8"), (empty, "there is no row")):
        pq.write_table(table, path)
        with pytest.raises(InputError, match=rf"nodes\.parquet: .*{message}"):
            load_dataset(path)
