"""Targets: tables of nodes and edges, GraphML files, and folders of shards."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from pdadmm_g.data.datasets import load_dataset
from pdadmm_g.data.sharding import open_source, shard_graph
from pdadmm_g.data.shards import ShardFolder

from .graphs import check_data, npy
from .limits import Violation
from .mutations import NUMBERS, TEXTS, any_value, mutate_bytes, mutate_json, odd_file
from .valid import valid_arrays

Columns = dict[str, list[Any]]
#: Names by which columns mean something, and some that should mean nothing.
NAMES = ("id", "label", "split", "train_mask", "source", "target", "weight", "x", "0", "", "\x00", "é", "y", "index")
#: An entity that is made of others ten times over, and so on.
LAUGHS = "".join(f'<!ENTITY e{i + 1} "{f"&e{i};" * 10}">' for i in range(9))


def tables(rng: random.Random, folder: Path) -> None:
    """Graphs from a table of nodes, and mostly one of edges."""
    nodes, edges = valid_columns()
    ending = rng.choice((".csv", ".csv", ".tsv", ".parquet"))
    paths = [folder / f"nodes{ending}", folder / f"edges{ending}"]
    for path, columns in zip(paths, (nodes, edges), strict=True):
        write_table(rng, path, mutate_columns(rng, columns) if rng.random() < 0.6 else columns)
    check_data(load_dataset(paths[0], edges=paths[1] if rng.random() < 0.9 else None))


def valid_columns() -> tuple[Columns, Columns]:
    """The tables of the valid graph, with text for ids and labels."""
    arrays = valid_arrays()
    nodes: Columns = {"id": [f"n{i}" for i in range(12)], "label": [("red", "blue")[i] for i in arrays["y"]]}
    nodes["split"] = [("train", "val", "test")[i % 6 // 2] for i in range(12)]
    nodes |= {f"x{i}": arrays["x"][:, i].tolist() for i in range(3)}
    source, target = arrays["edge_index"].tolist()
    edges: Columns = {"source": [f"n{i}" for i in source], "target": [f"n{i}" for i in target]}
    return nodes, edges | {"weight": [1.0 + i % 3 for i in source]}


def mutate_columns(rng: random.Random, columns: Columns) -> Columns:
    """Other values, names, lengths and columns."""
    columns = {name: list(values) for name, values in columns.items()}
    for _ in range(rng.choice((1, 1, 2, 3))):
        name = rng.choice(list(columns))
        values = columns[name]
        match rng.randrange(6):
            case 0 if values:
                values[rng.randrange(len(values))] = any_value(rng)
            case 1:
                columns[rng.choice(NAMES)] = columns.pop(name)
            case 2:
                columns[name] = [any_value(rng) for _ in values]
            case 3:
                columns[rng.choice(NAMES)] = [rng.choice((0, 1, True, "train", None, "n1")) for _ in values]
            case 4 if len(columns) > 1:
                del columns[name]
            case 5:
                count = rng.choice((0, 1, len(values) - 1))
                columns = {each: column[:count] for each, column in columns.items()}
    return columns


def write_table(rng: random.Random, path: Path, columns: Columns) -> None:
    """The columns as a file, whose rows or bytes may be damaged."""
    if odd_file(rng, path):
        return
    content = _parquet(columns) if path.suffix == ".parquet" else _text(rng, columns, path.suffix)
    path.write_bytes(mutate_bytes(rng, content) if rng.random() < 0.2 else content)


def _parquet(columns: Columns) -> bytes:
    import pyarrow
    from pyarrow import parquet

    arrays = {}
    for name, values in columns.items():
        for attempt in (values, list(map(str, values))):
            with contextlib.suppress(pyarrow.ArrowException, OverflowError, UnicodeError):
                arrays[name] = pyarrow.array(attempt)
                break
    target = io.BytesIO()
    try:
        parquet.write_table(pyarrow.table(arrays), target)
    except (pyarrow.ArrowException, ValueError):  # a struct without fields has no form in a file
        return b"PAR1"
    return target.getvalue()


def _text(rng: random.Random, columns: Columns, ending: str) -> bytes:
    target = io.StringIO()
    writer = csv.writer(target, delimiter="\t" if ending == ".tsv" else ",")
    rows = [list(columns), *map(list, zip(*columns.values(), strict=False))]
    if rng.random() < 0.1:
        row = rng.choice(rows)
        row[:] = row[: rng.randrange(len(row) + 1)] if rng.random() < 0.5 else [*row, any_value(rng)]
    if rng.random() < 0.05:
        rows.append(rows[-1])
    writer.writerows(rows)
    encoding = rng.choice(("utf-8",) * 8 + ("utf-8-sig", "utf-16"))
    return target.getvalue().encode(encoding, "replace")


def graphml(rng: random.Random, folder: Path) -> None:
    """Graphs from GraphML files."""
    path = folder / "graph.graphml"
    if not odd_file(rng, path):
        text = _valid_graphml()
        for _ in range(rng.choice((0, 1, 1, 2))):
            old = rng.choice(("double", "string", "node", "edge", "key", "attr.name", "d0", "d1", "n1", "train", "red"))
            new = rng.choice((*TEXTS[:24], "int", "boolean", "long", "yfiles", "graph", "n2", "&e9;", "1e999"))
            text = text.replace(old, new, rng.choice((1, -1)))
        if rng.random() < 0.1:
            text = text.replace("?>", f'?><!DOCTYPE graphml [<!ENTITY e0 "ha">{LAUGHS}]>', 1)
        content = text.encode(errors="replace")
        path.write_bytes(mutate_bytes(rng, content) if rng.random() < 0.3 else content)
    check_data(load_dataset(path))


@functools.cache
def _valid_graphml() -> str:
    import networkx

    nodes, edges = valid_columns()
    graph = networkx.Graph()
    for row in zip(*nodes.values(), strict=True):
        name, *values = row
        graph.add_node(name, **dict(zip(list(nodes)[1:], values, strict=True)))
    graph.add_weighted_edges_from(zip(*edges.values(), strict=True))
    return "<?xml version='1.0' encoding='utf-8'?>\n" + "\n".join(networkx.generate_graphml(graph))


def shards(rng: random.Random, folder: Path) -> None:
    """Folders of shards, of which one or two files are damaged."""
    files = dict(_valid_shards())
    for _ in range(rng.choice((0, 1, 1, 2))):
        name = rng.choice(list(files))
        if rng.random() < 0.05:
            del files[name]
        elif name.endswith(".json") and rng.random() < 0.8:
            files[name] = json.dumps(mutate_json(rng, json.loads(files[name]))).encode()
        elif name.endswith(".npy") and rng.random() < 0.4:
            shape = tuple(rng.choice((*NUMBERS, 4, 5, 12)) for _ in range(rng.randrange(3)))
            files[name] = npy(repr(shape), rng.choice(("<f4", "<i8", "|b1", "|O"))) + files[name][128:]
        else:
            files[name] = mutate_bytes(rng, files[name])
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    whole = ShardFolder(folder / "sharded")
    for place in range(parts := rng.choice((1, 2, 3))):
        part = whole.part(place, parts)
        x = part.column("x")
        if x is None or x.shape != (part.count, whole.whole.features):
            raise Violation(f"accepted an unsound shard: {x}")


@functools.cache
def _valid_shards() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arrays: Any = valid_arrays()
        np.savez(folder / "graph.npz", **arrays)
        shard_graph(open_source(str(folder / "graph.npz")), 3, folder / "sharded")
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted((folder / "sharded").rglob("*"))
            if path.is_file()
        }
