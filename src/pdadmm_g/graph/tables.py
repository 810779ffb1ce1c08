"""From tables of nodes and of edges to a graph: the one way, for pandas tables and for CSV, TSV and Parquet files.

Nodes: ``id`` (text or numbers; without it, in a pandas table, the index), ``label`` (empty where none is known),
``split`` (train, val, test or empty; or columns ``train_mask`` and so on), and each other column a feature, or one
column ``x`` of lists. Edges: ``source`` and ``target``, by the ids of nodes, and perhaps ``weight``.

Files become pandas tables first, numbers as numbers and text as categories. What the columns of features mean is found
out by :mod:`.columns`.
"""

from __future__ import annotations

import copy
import csv
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from ..config import NODE_TABLES, TargetKind
from ..errors import InputError
from .checks import bad_weights
from .columns import NOTHING, Column, matrix_of, understood
from .graph import MASKS, Graph, as_tensor, check_file, first_bad, is_missing, reading
from .readers import as_features, as_matrix
from .targets import NO, YES, asked, factorized, set_targets

Array = NDArray[Any]
#: Columns of a node table that are no features.
KNOWN = ("id", "label", "split", *MASKS)
#: Columns of an edge table that say who is joined.
ENDS = ("source", "target")
FEATURES = f"every column is a feature but {', '.join(KNOWN)}"
#: What a split may be called.
SPLITS = {"train": "train_mask", "val": "val_mask", "valid": "val_mask", "validation": "val_mask", "test": "test_mask"}
SPLITS |= dict.fromkeys(NO_WORD := ("", "nan", "none", "<na>"), "")
#: What a mask may say of a node.
FLAGS = dict.fromkeys(YES, True) | dict.fromkeys((*NO, *NO_WORD), False)
#: Bytes of a text file that are parsed at a time; a row must fit.
BLOCK = 1 << 24


# -------------------------------------------------------------------------------------------------------------- files


def read_table(path: Path, labels: Collection[str] = ()) -> pd.DataFrame:
    """The table in a file, numbers as numbers and text as categories. ``labels`` are columns besides ``label``."""
    check_file(path)
    if path.suffix not in NODE_TABLES:
        raise InputError(f"{path}: must end in {', '.join(NODE_TABLES)}: a table of nodes or edges")
    text = path.suffix != ".parquet"
    with reading(path, "a table" if text else "Parquet"):
        return _as_frame(_read_text(path) if text else pq.read_table(path), labels, numbers=text)


def _read_text(path: Path) -> pa.Table:
    separator = "\t" if path.suffix == ".tsv" else ","
    with path.open(encoding="utf-8-sig", newline="") as file:  # spreadsheets begin with a mark of the byte order
        header = next(csv.reader(file, delimiter=separator), [])
    names = [name.strip() for name in header]
    if not names or len(set(names)) < len(names):
        raise InputError(f"{path}: the first row must name the columns, each once")
    table = arrow_csv.read_csv(
        path,
        arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK),  # with threads an error does not name the row
        arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.string()), null_values=[""], strings_can_be_null=True
        ),
    ).rename_columns(names)
    last = table.column(-1)[-1].as_py() if len(table) else None
    if last and "\n" in last:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 8))
            if not file.read().rstrip().endswith(b'"'):
                raise InputError(f"{path}: a quote that is opened in the last row is not closed")
    return table


def _as_frame(table: pa.Table, labels: Collection[str] = (), *, numbers: bool = False) -> pd.DataFrame:
    """A pandas table, text as categories.

    Labels that are all whole numbers become such, and, of a text file, other columns ``numbers`` if their values all
    are. A zero before the id 007, the label 01 or the code 01234 is a part of it. Words for nothing, such as NA, are
    what they are for pandas, but for ids.
    """
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            trimmed = pc.utf8_trim_whitespace(column)
            if numbers and name not in ("id", *ENDS):
                nothing = pc.is_in(trimmed, pa.array(NOTHING))
                column, trimmed = (pc.if_else(nothing, None, each) for each in (column, trimmed))
            with suppress(pa.ArrowInvalid):
                if name in ("label", *labels):
                    whole = trimmed.cast(pa.int64())
                    column = whole if whole.cast(column.type).equals(trimmed) else column
                elif numbers and name not in (*KNOWN, *ENDS) and not _are_codes(trimmed):
                    column = trimmed.cast(pa.float64())
        columns[name] = column
    return pa.table(columns).to_pandas(strings_to_categorical=True)


def _are_codes(column: pa.ChunkedArray) -> bool:
    return bool(pc.any(pc.match_substring_regex(column, r"^[-+]?0[0-9]")).as_py())


class ParquetRows:
    """The rows of several Parquet files, one after the other, of which some are read at a time."""

    def __init__(self, files: list[Path], culprit: Path) -> None:
        if not files:
            raise InputError(f"{culprit}: there are no tables {culprit.name}*.parquet")
        self.files = files
        self._opened: list[pq.ParquetFile] = []
        for path in files:
            with reading(path, "Parquet"):
                self._opened.append(pq.ParquetFile(path))
            if self._opened[-1].schema_arrow.names != self._opened[0].schema_arrow.names:
                raise InputError(f"{path}: has other columns than {files[0]}: give all tables the same")
        self.names: list[str] = self._opened[0].schema_arrow.names
        self.number = sum(file.metadata.num_rows for file in self._opened)

    def frame(self, names: list[str]) -> pd.DataFrame:
        """Some columns of all rows."""
        if not names:
            return pd.DataFrame(index=range(self.number))
        parts = []
        for path in self.files:
            with reading(path, "Parquet"):
                parts.append(pq.read_table(path, columns=names))
        with reading(self.files[0], "Parquet"):
            return _as_frame(pa.concat_tables(parts, promote_options="permissive"))

    def batches(self, names: list[str], size: int) -> Iterator[tuple[Path, int, pd.DataFrame]]:
        """Blocks of so many rows at the most, each with its file and the number of its first row in that."""
        for path, file in zip(self.files, self._opened, strict=True):
            first = 0
            with reading(path, "Parquet"):
                for block in file.iter_batches(batch_size=size, columns=names):
                    yield path, first, _as_frame(pa.Table.from_batches([block]))
                    first += len(block)

    def between(self, start: int, stop: int, names: list[str]) -> Iterator[tuple[Path, pd.DataFrame]]:
        """The rows from ``start`` to ``stop``, by the groups that they are stored in."""
        place = 0
        for path, file in zip(self.files, self._opened, strict=True):
            for number in range(file.metadata.num_row_groups):
                size = file.metadata.row_group(number).num_rows
                first, last = max(start, place), min(stop, place + size)
                if first < last:
                    with reading(path, "Parquet"):
                        group = file.read_row_group(number, columns=names)
                    yield path, _as_frame(group.slice(first - place, last - first))
                place += size


# -------------------------------------------------------------------------------------------------------------- nodes


#: The roles that columns are said to have, what a model learned of them, or () for numbers as they are.
Columns = Mapping[str, str] | Sequence[Column] | None


def graph_of_nodes(
    nodes: pd.DataFrame,
    target: TargetKind = "auto",
    labels: Sequence[str] = (),
    culprit: str = "nodes",
    columns: Columns = None,
) -> Graph:
    """A graph without edges of a table of nodes. What is learned is in the columns ``labels``, by default ``label``."""
    twice = nodes.columns[nodes.columns.duplicated()]
    if len(twice):
        raise InputError(f"{culprit}: column {twice[0]!r} is there twice: give each its own name")
    if not len(nodes):
        raise InputError(f"{culprit}: there is no row")
    data = Graph(num_nodes=len(nodes))
    ids = nodes["id"].to_numpy() if "id" in nodes else nodes.index.to_numpy()
    if ids.dtype.kind not in "iu" or not np.array_equal(ids, np.arange(len(nodes))):
        data.ids = _checked_ids(ids, f"{culprit}: column 'id'")
    learned = _label_columns(nodes, labels, culprit)
    if learned:
        several = len(learned) > 1
        if several and target == "auto":
            target = "multilabel"  # a class takes one column
        y = nodes[learned].to_numpy(dtype=object) if several else nodes[learned[0]].to_numpy()
        set_targets(data, y, f"{culprit}: labels", target)
        if labels and target in ("multilabel", "regression"):
            data.label_names = np.array(learned)
    features = [name for name in nodes.columns if name not in KNOWN and name not in learned]
    if features:
        give_features(data, nodes[features], columns, culprit)
    for mask, given in _masks(nodes, culprit).items():
        data[mask] = torch.from_numpy(given)
    return asked(data, target)


def give_features(data: Graph, table: pd.DataFrame, columns: Columns, culprit: str = "data") -> None:
    """Make the features of a graph of the table of these, which it keeps, with what was learned of the columns."""
    if columns == () or ("x" in table and np.ndim(table["x"].iloc[0]) == 1):
        x, names = feature_matrix(table, [*table], culprit)
        data.columns = None
    else:
        data.columns = (
            understood(table, columns, culprit) if columns is None or isinstance(columns, Mapping) else columns
        )
        x, names = matrix_of(table, data.columns, culprit)
    data.table, data["num_nodes"] = table, len(table)
    data.x, data.feature_names = (as_features(x, f"{culprit}: features"), names) if x.shape[1] else (None, None)
    if data.x is not None:
        del data["num_nodes"]


def with_columns(data: Graph, columns: Columns) -> Graph:
    """The graph with the features that these columns make of its table; as it is where it has none, or has these."""
    table, own = data.get("table"), data.get("columns")
    if isinstance(columns, Mapping) and table is None and data.x is not None:
        raise InputError("columns says what the columns of a table are, and the features are no table: leave it out")
    roles = {column.name: column.role for column in own or ()}
    same = columns == (own or ()) if not isinstance(columns, Mapping) else columns.items() <= roles.items()
    if table is None or columns is None or same:
        return data
    data = copy.copy(data)
    give_features(data, table, columns)
    return data


def feature_matrix(nodes: pd.DataFrame, names: Sequence[Any], culprit: str) -> tuple[Array, tuple[str, ...] | None]:
    """The columns of these names as one matrix, and what its columns are called, if they are called anything."""
    if "x" in names and nodes["x"].dtype == object and len(nodes) and np.ndim(nodes["x"].iloc[0]) == 1:
        for name in names:
            if name != "x":
                remedy = "leave it out, or put its values into the lists"
                raise InputError(f"{culprit}: column 'x' of lists is all features, but {name!r} is one too: {remedy}")
        return as_matrix([np.asarray(row) for row in nodes["x"]], f"{culprit}: column 'x'"), None
    matrix = np.empty((len(nodes), len(names)), dtype=np.float32)
    for place, name in enumerate(names):
        column = nodes[name]
        if column.dtype.kind not in "biuf":
            numbers = pd.to_numeric(column.astype(object), errors="coerce").to_numpy(dtype=float, na_value=np.nan)
            row = int(np.flatnonzero(np.isnan(numbers) & column.notna().to_numpy())[:1].sum())
            has = f"but {row_name(row)} has {column.iloc[row]!r:.60}"
            raise InputError(f"{culprit}: column {name!r} must be numbers, {has}; {FEATURES}")
        matrix[:, place] = column.to_numpy(dtype=np.float64, na_value=np.nan)
    # Numbers of columns say no more than their places.
    return matrix, tuple(names) if all(isinstance(name, str) for name in names) else None


def _label_columns(nodes: pd.DataFrame, labels: Sequence[str], culprit: str) -> list[str]:
    """The columns that are learned, all of those that were asked for or none."""
    labels = labels or ("label",)
    if not {*labels} & {*nodes.columns}:
        return []
    for name in labels:
        if name in KNOWN and name != "label":
            raise InputError(
                f"{culprit}: column {name!r} cannot be learned: it says which node, or which part, a row is"
            )
        if name not in nodes:
            there = ", ".join(map(str, nodes.columns))
            raise InputError(f"{culprit}: column {name!r} of the labels is missing; there are {there}")
    return [*dict.fromkeys(labels)]


def _checked_ids(ids: Array, culprit: str) -> Array:
    places, values = factorized(ids, f"{culprit} must be text or numbers")
    lacking = places < 0
    if values.dtype == object:
        lacking = np.array([*map(is_missing, values), True])[places]
    if lacking.any():
        raise InputError(f"{culprit} has none in {row_name(int(lacking.argmax()))}")
    if len(values) < len(ids):
        raise InputError(f"{culprit} names node {values[np.bincount(places) > 1][0]!r} twice")
    return ids


def _masks(nodes: pd.DataFrame, culprit: str) -> dict[str, NDArray[np.bool_]]:
    rule = "must be true or false"
    masks = {mask: _meant(nodes[mask], FLAGS, f"{culprit}: {mask} {rule}") for mask in MASKS if mask in nodes}
    if "split" in nodes:
        named = _meant(nodes["split"], SPLITS, f"{culprit}: 'split' must be train, val or test")
        masks |= {mask: named == mask for mask in MASKS if bool((named == mask).any())}
    return masks


def _meant(column: pd.Series, meanings: Mapping[str, Any], rule: str) -> Array:
    """What each value of a column means, looked up once for each different one."""
    try:
        places, values = pd.factorize(column)
    except TypeError:  # a value that nothing can be looked up by
        places, values = pd.factorize(column.astype(str))
    words = [str(value).strip().lower() for value in values]
    for word in words:
        if word not in meanings:
            raise InputError(f"{rule}, got {word!r}")
    return np.array([meanings[word] for word in [*words, ""]])[places]


# -------------------------------------------------------------------------------------------------------------- edges


def set_edges(data: Graph, edges: pd.DataFrame, culprit: str = "edges") -> None:
    """Give the graph the edges of a table, by the ids of its nodes, or by numbers where there is no table of these."""
    numbered = data.x is None and "num_nodes" not in data
    for name in ENDS:
        if name not in edges:
            there = ", ".join(map(str, edges.columns)) or "none"
            raise InputError(f"{culprit}: column {name!r} is missing; there are {there}")
        if numbered and edges[name].dtype.kind not in "iu":
            raise InputError(f"{culprit}: column {name!r} must be whole numbers where no table of nodes has ids")
    if numbered:
        data.edge_index = torch.from_numpy(edges[[*ENDS]].to_numpy(dtype=np.int64).T.copy())
    else:
        data.edge_index = torch.from_numpy(EndsById(data)(edges, culprit))
    data.unused_edge_columns = tuple(str(name) for name in edges if name not in (*ENDS, "weight")) or None
    if "weight" in edges:
        weights = checked_weights(edges["weight"].to_numpy(), f"{culprit}: column 'weight'", row_name)
        data.edge_weight = torch.from_numpy(weights)


class EndsById:
    """Looks up the nodes of a graph by their ids, for the rows of a table of edges."""

    def __init__(self, data: Graph) -> None:
        ids = data.get("ids")
        self._own = pd.RangeIndex(data.num_nodes) if ids is None else pd.Index(ids, tupleize_cols=False)

    @cached_property
    def _text(self) -> pd.Index:
        """The ids as text: text and numbers may name the same node, in a table that was read as text beside another."""
        text = pd.Index([*map(str, self._own.tolist())], dtype=object)
        twice = np.flatnonzero(text.duplicated(keep=False))
        if len(twice):
            first, second = self._own[text == text[twice[0]]][:2]
            both = f"nodes {first!r} and {second!r} have the same name"
            raise InputError(f"{both}, as the edges write it: give all of them text, or numbers")
        return text

    def __call__(self, edges: pd.DataFrame, culprit: str, first: int = 0) -> NDArray[np.int64]:
        """The nodes that each edge joins (2, edges); rows are counted from the ``first``."""
        numbers = all(ids.dtype.kind in "iu" for ids in (self._own, edges["source"], edges["target"]))
        found = []
        for name in ENDS:
            if numbers:
                rows = self._own.get_indexer(edges[name].to_numpy())
            else:
                places, values = pd.factorize(edges[name])
                rows = np.append(self._text.get_indexer(pd.Index([*map(str, values)], dtype=object)), -1)[places]
            unknown = np.flatnonzero(rows < 0)
            if len(unknown):
                place, value = int(unknown[0]), edges[name].iloc[int(unknown[0])]
                if is_missing(value):
                    raise InputError(f"{culprit}: {row_name(first + place)} has no {name}")
                raise InputError(f"{culprit}: {row_name(first + place)} names node {value!r}, which no node is called")
            found.append(rows.astype(np.int64))
        return np.stack(found)


def checked_weights(weights: Any, culprit: str, called: Callable[[int], str]) -> Array:
    """Weights of edges in double precision, unless one is no positive number; an error names it as it is ``called``."""
    try:
        weights = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        numbers = pd.to_numeric(pd.Series(weights, dtype=object), errors="coerce")
        row = int(np.flatnonzero(numbers.isna())[0])
        raise InputError(f"{culprit} must be numbers, but {called(row)} has {weights[row]!r:.60}") from None
    if (place := first_bad(bad_weights(as_tensor(weights, culprit)))) is not None:
        raise InputError(f"{culprit} must be positive and finite, but {called(place)} has {weights[place]:g}")
    return weights


def row_name(row: int) -> str:
    """What a row of a table is called, and how rows are counted."""
    return f"row {row} (the first is 0)"
