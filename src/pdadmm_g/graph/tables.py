"""From tables of nodes and of edges to a graph: the one way, for pandas tables and for CSV, TSV and Parquet files.

Nodes: ``id`` (text or numbers; without it, in a pandas table, the index), ``label`` (empty where none is known),
``split`` (train, val, test or empty; or columns ``train_mask`` and so on), and each other column a feature, or one
column ``x`` of lists. Edges: ``source`` and ``target``, by the ids of nodes, and perhaps ``weight``.

Files become pandas tables first, numbers as numbers and text as categories. What the columns of features mean is found
out by :mod:`.columns`.
"""

from __future__ import annotations

import codecs
import copy
import csv
import gzip
import itertools
import re
import warnings
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
from .columns import BOOLEANS, NOTHING, Column, matrix_of, numbers_of, standardized, understood, words_of
from .graph import LARGEST, MASKS, Graph, check_file, is_missing, listed, reading
from .parts import distinct
from .readers import as_features, as_matrix
from .targets import asked, factorized, set_targets, target_of

Array = NDArray[Any]
#: Columns of a node table that are no features.
KNOWN = ("id", "label", "split", *MASKS)
#: Columns of an edge table that say who is joined.
ENDS = ("source", "target")
#: What a split may be called.
SPLITS = {
    "train": "train_mask", "val": "val_mask", "valid": "val_mask", "validation": "val_mask", "test": "test_mask",
    "none": "",
}  # fmt: skip
#: What a mask may say of a node.
FLAGS = BOOLEANS | {"1": 1.0, "1.0": 1.0, "0": 0.0, "0.0": 0.0}
#: Bytes of a text file that are parsed at a time; a row must fit.
BLOCK = 1 << 24
#: Spreadsheets begin with a mark of the byte order.
UTF8 = "utf-8-sig"


# -------------------------------------------------------------------------------------------------------------- files


def read_table(path: Path, labels: Collection[str] = ()) -> pd.DataFrame:
    """The table in a file, numbers as numbers and text as categories. ``labels`` are columns besides ``label``."""
    check_file(path)
    if not path.name.endswith(NODE_TABLES):
        raise InputError(f"{path}: must end in {', '.join(NODE_TABLES)}: a table of nodes or edges")
    text = path.suffix != ".parquet"
    with reading(path, "a table" if text else "Parquet"):
        return _as_frame(_read_text(path) if text else pq.read_table(path), labels, numbers=text)


def _read_text(path: Path) -> pa.Table:
    usual = "\t" if ".tsv" in path.suffixes[-2:] else ","
    encoding = _encoding(path)
    with _opened(path, "rt", encoding=encoding, newline="") as file:
        first = next(file, "")
        # Another separator is meant where the usual one is not in the first row at all.
        separator = usual if usual in first else max((usual, *",;\t|"), key=first.count)
        header = next(csv.reader(itertools.chain([first], file), delimiter=separator), [])
    names = [name.strip() for name in header]
    if not names or len(set(names)) < len(names):
        raise InputError(f"{path}: the first row must name the columns, each once")
    table = arrow_csv.read_csv(
        path,
        arrow_csv.ReadOptions(  # with threads an error does not name the row
            use_threads=False, block_size=BLOCK, encoding="utf8" if encoding == UTF8 else encoding
        ),
        arrow_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.string()), null_values=[""], strings_can_be_null=True
        ),
    ).rename_columns(names)
    last = table.column(-1)[-1].as_py() if len(table) else None
    if last and "\n" in last:
        with _opened(path, "rt", encoding=encoding) as file:
            if not "".join(deque(file, maxlen=8)).rstrip().endswith('"'):
                raise InputError(f"{path}: a quote that is opened in the last row is not closed")
    return table


def _opened(path: Path, mode: str, **options: Any) -> Any:
    return gzip.open(path, mode, **options) if path.suffix == ".gz" else path.open(mode, **options)


def _encoding(path: Path) -> str:
    """UTF-16 where the file begins with its mark, else UTF-8, or Windows-1252 where it is none."""
    with _opened(path, "rb") as file:
        start = file.read(4096)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    with suppress(UnicodeDecodeError), _opened(path, "rt", encoding=UTF8) as file:
        while file.read(BLOCK):
            pass
        return UTF8
    if b"\0" in start:  # no text; the reader says so
        return UTF8
    warnings.warn(f"{path}: is not in UTF-8 and is read as Windows-1252: save it as UTF-8", stacklevel=2)
    return "cp1252"


def _as_frame(table: pa.Table, labels: Collection[str] = (), *, numbers: bool = False) -> pd.DataFrame:
    """A pandas table, text as categories.

    Labels that are all numbers become such, and, of a text file, other columns ``numbers`` if their values all
    are. A zero before the id 007, the label 01 or the code 01234 is a part of it. Words for nothing, such as NA, are
    what they are for pandas, but for ids.
    """
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            known, is_label = name.lower(), name in labels or name.lower() == "label"
            trimmed = pc.utf8_trim_whitespace(column)
            if numbers and known not in ("id", *ENDS):
                nothing = pc.is_in(trimmed, pa.array(NOTHING))
                column, trimmed = (pc.if_else(nothing, None, each) for each in (column, trimmed))
            may_be_numbers = is_label or (numbers and known not in (*KNOWN, *ENDS))
            if may_be_numbers and not _any_like(trimmed, r"^[-+]?0[0-9]"):
                column = _numbers(trimmed, column, sure=is_label or known == "weight")
        columns[name] = column
    return pa.table(columns).to_pandas(strings_to_categorical=True)


def _numbers(text: pa.ChunkedArray, otherwise: pa.ChunkedArray, *, sure: bool) -> pa.ChunkedArray:
    """A column of text as whole numbers, as numbers, also with a decimal comma, or as it is ``otherwise``.

    Unless it is ``sure`` to be decimal, a comma as in 1,234 is left to :mod:`.columns`.
    """
    for kind in (pa.int64(), pa.float64()):
        with suppress(pa.ArrowInvalid):
            return text.cast(kind)
    if sure or not _any_like(text, r"^[-+]?[1-9][0-9]{0,2},[0-9]{3}$"):
        with suppress(pa.ArrowInvalid):
            return pc.replace_substring_regex(text, r"^([-+]?[0-9]*),([0-9]+)$", r"\1.\2").cast(pa.float64())
    return otherwise


def _any_like(column: pa.ChunkedArray, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(column, pattern)).as_py())


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

    def frame(self, names: list[str], labels: Collection[str] = ()) -> pd.DataFrame:
        """Some columns of all rows."""
        if not names:
            return pd.DataFrame(index=range(self.number))
        with reading(self.files[0].parent, "Parquet"):
            parts = [file.read(columns=names) for file in self._opened]
            return _as_frame(pa.concat_tables(parts, promote_options="permissive"), labels)

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
        for path, file in zip(self.files, self._opened, strict=True):
            for number in range(file.metadata.num_row_groups):
                size = file.metadata.row_group(number).num_rows
                if start < size and stop > 0:
                    with reading(path, "Parquet"):
                        group = file.read_row_group(number, columns=names)
                    yield path, _as_frame(group[max(start, 0) : stop])
                start, stop = start - size, stop - size


# ----------------------------------------------------------------------------------------------------- names of columns

#: A column that every table with edges has.
DEGREE = "number of neighbours"
#: Columns that may have the ids of nodes, those that rather are features, and names that labels have elsewhere.
ID_LIKE = re.compile(r"(.*[_ ])?(id|uid|uuid|key)|.*[a-z]I[dD]|node|name|user|userid|nodeid", re.IGNORECASE)
NAMES = ("name", "key", "user")
#: A column that names this share of the different ends of edges may have the ids, whatever it is called.
NEARLY = 0.9
LABEL_LIKE = re.compile(r".*(label|class|target|outcome|category|status).*|y|type|group|topic", re.IGNORECASE)
#: What the ends of an edge may be called, the first and the second.
PAIRS = (
    ENDS, ("from", "to"), ("src", "dst"), ("src", "tgt"), ("src", "dest"), ("source_id", "target_id"), ("u", "v"),
    ("from_id", "to_id"), ("follower", "followee"), ("citing", "cited"),
    *((f"{stem}1", f"{stem}2") for name in ("user", "node", "id", "numeric_id") for stem in (name, f"{name}_")),
)  # fmt: skip


def named_nodes(
    nodes: pd.DataFrame,
    edges: pd.DataFrame | None,
    culprit: str,
    *,
    labels: Sequence[str] = (),
    id_column: str | None = None,
    features: Collection[str] = (),
    skip_unknown: bool = False,
) -> tuple[pd.DataFrame, Any, list[str]]:
    """The table with its columns called as we know them but for the ids, the column of these, if any, and sentences.

    A sentence tells of each that was guessed. ``features`` are columns that a model knows, which are no ids.
    """
    if id_column is not None:
        if id_column not in nodes:
            raise InputError(f"{culprit}: column {id_column!r} of the ids is missing; there are {listed(nodes)}")
        return nodes.drop(columns="id", errors="ignore") if id_column != "id" else nodes, id_column, []
    lower = {name: str(name).lower() for name in nodes if name not in labels}
    alike = Counter(lower.values())
    renamed = {name: known for name, known in lower.items() if name != known in KNOWN and alike[known] == 1}
    notes = [f"column {name!r} of the nodes is taken for {known!r}" for name, known in renamed.items()]
    nodes = nodes.rename(columns=renamed)
    found = "id" if "id" in nodes else None
    if found is None and nodes.index.name is None and nodes.index.dtype.kind in "iu":
        others = nodes[[name for name in nodes if str(name) not in {*KNOWN, *labels, *features}]]
        found = _column_of_ids(others, edges, culprit, of_a_model=bool(features), skip_unknown=skip_unknown)
        if found is not None:
            notes.append(f"column {found!r} has the ids of the nodes: id_column names another")
    return nodes, found, notes


def _column_of_ids(
    nodes: pd.DataFrame, edges: pd.DataFrame | None, culprit: str, *, of_a_model: bool, skip_unknown: bool
) -> Any | None:
    """The column that names the nodes, each otherwise, and most that edges name, or that a model does not know.

    It is called like one of ids, or is any column by which the edges go, but not as well by the numbers of the rows.
    """
    rows = names_of(nodes.index)
    ends = names_of([] if edges is None else pd.concat([edges[name] for name in ENDS])).dropna().unique()
    by_rows = len(ends) > 0 and bool(ends.isin(rows).all())
    unknown, candidates = of_a_model and not by_rows, dict[Any, pd.Index]()

    def share(names: pd.Index, among: pd.Index) -> float:
        return float(names.isin(among).mean()) if len(ends) else 0.0

    repeated: Any = None
    for name in nodes:
        like, column = ID_LIKE.fullmatch(str(name)) is not None, whole(nodes[name].dropna())
        with suppress(TypeError):  # of lists
            different = len(column) == len(nodes) and column.is_unique
            if column.dtype.kind in "bMmcf" or not len(column) or not (different or like):
                continue
            own = names_of(column)
            named = share(ends, own) > 0.5
            if not different:
                repeated = name if named and repeated is None else repeated
            elif like and (named or unknown or share(own, ends) > 0.5 or not (len(ends) or name.lower() in NAMES)):
                return name
            elif not own.equals(rows):
                candidates[name] = own
    if repeated is not None and not by_rows:
        return repeated  # which is refused
    if unknown and len(candidates) == 1:
        return next(iter(candidates))
    # 2 where the names are all ends of edges, 1 where nearly all, or with skip_unknown the other way round.
    fits = {
        name: sum(max(share(ends, own), skip_unknown * share(own, ends)) >= least for least in (NEARLY, 1))
        for name, own in [*candidates.items(), (None, rows)]
    }
    best = max(fits.values())
    found = [name for name, fit in fits.items() if fit == best > 0]
    if len(found) > 1 or found == [None]:
        if found[0] is None:
            return None
        may = f"columns {listed(map(repr, filter(None, found)))}{' or by the numbers of the rows' * (None in found)}"
        remedy = f"say id_column={found[0]!r} (--id-column {found[0]}), or call the column of the ids 'id'"
        raise InputError(f"{culprit}: the edges may go by {may}, which fit alike: {remedy}")
    return found[0] if found else None


def names_of(values: Any) -> pd.Index:
    """Names of nodes as text, as which those of tables of several kinds are compared."""
    return pd.Index(words_of(pd.Series(values), nothing=()), dtype=object)


def whole(column: Any) -> Any:
    """Fractions that are all whole as whole numbers: 1.0 is the same id as 1."""
    numbers = column.dtype.kind == "f" and bool((column % 1 == 0).all())
    return column.astype(np.int64) if numbers and isinstance(column.dtype, np.dtype) else column


def named_edges(
    edges: pd.DataFrame, ends: Sequence[str | None] = (None, None), culprit: str = "edges"
) -> tuple[pd.DataFrame, list[str]]:
    """The table with its ends called ``source`` and ``target`` and first, and a sentence where they were guessed."""
    guessed = ends_of(edges) or (tuple(edges.columns) if len(edges.columns) == 2 else ENDS)
    first, second = (own or other for own, other in zip(ends, guessed, strict=True))
    for name in (first, second):
        if name not in edges:
            remedy = "say which are the ends with source_column and target_column"
            raise InputError(f"{culprit}: column {name!r} is missing; there are {listed(edges) or 'none'}: {remedy}")
    usual = any(ends) or guessed == ENDS
    rest = [name for name in edges.columns if name not in (first, second, *ENDS)]
    return (
        edges[[first, second, *rest]].rename(columns={first: "source", second: "target"}),
        [] if usual else [f"edges go from column {first!r} to column {second!r}"],
    )


def ends_of(edges: Any) -> tuple[Any, Any] | None:
    """The columns of a table that usual names say are the ends of edges."""
    lower = {str(name).lower(): name for name in reversed(edges.columns)}
    return next(((lower[a], lower[b]) for a, b in PAIRS if a in lower and b in lower), None)


# ---------------------------------------------------------------------------------------------------- nodes and edges

#: The roles that columns are said to have, what a model learned of them, or () for numbers as they are.
Columns = Mapping[str, str] | Sequence[Column] | None


@contextmanager
def told(errors: list[str]) -> Iterator[None]:
    """Keep what is wrong, to be told with all the rest."""
    try:
        yield
    except InputError as error:
        errors.append(str(error))


def graph_of_tables(
    nodes: pd.DataFrame,
    edges: pd.DataFrame | None,
    target: TargetKind = "auto",
    columns: Columns = None,
    *,
    labels: Sequence[str] = (),
    id_column: str | None = None,
    ends: Sequence[str | None] = (None, None),
    skip_unknown: bool = False,
    culprits: tuple[str, str] = ("nodes", "edges"),
) -> Graph:
    """The graph of a table of nodes and perhaps one of edges; all that is wrong with them is told at once.

    What the columns are called is said as for :func:`~pdadmm_g.graph.readers.as_graph`.
    """
    culprit, errors, notes = culprits[0], list[str](), list[str]()
    for twice in nodes.columns[nodes.columns.duplicated()]:
        raise InputError(f"{culprit}: column {twice!r} is there twice: give each its own name")
    if not len(nodes):
        raise InputError(f"{culprit}: there is no row")
    with told(errors):
        if edges is not None:
            edges, notes = named_edges(edges, ends, culprits[1])
    data, learned, ids = Graph(num_nodes=len(nodes)), list[str](), None
    with told(errors):
        edges = None if errors else edges
        features = {column.name for column in columns or () if isinstance(column, Column)}
        nodes, ids, said = named_nodes(
            nodes, edges, culprit, labels=labels, id_column=id_column, features=features, skip_unknown=skip_unknown
        )
        data.notes = (*said, *notes) or None
        data.ids = _ids_of(nodes, ids, culprit)
    edges = None if errors else edges  # which go by ids
    with told(errors):
        learned = _label_columns(nodes, labels, culprit)
        if len(learned) > 1 and target == "auto":
            target = "multilabel"  # a class takes one column
        if learned:
            y = (nodes[learned] if len(learned) > 1 else nodes[learned[0]]).to_numpy()
            data.label_column = str(learned[0]) if y.dtype.kind == "f" else None  # for an error
            set_targets(data, y, f"{culprit}: labels", target)
            if labels and target in ("multilabel", "regression"):
                data.label_names = np.array(learned)
        else:
            data.maybe_label = _maybe_label(nodes)
    with told(errors):
        for mask, given in _masks(nodes, culprit).items():
            data[mask] = torch.from_numpy(given)
    with told(errors):
        if edges is not None:
            set_edges(data, edges, culprits[1], skip_unknown=skip_unknown)
    with told(errors):
        own = [name for name in nodes.columns if name not in (*KNOWN, *learned, ids)]
        if own:
            give_features(data, nodes[own], columns, culprit)
        data = asked(data, target)
    if errors:
        raise InputError("; ".join(errors))
    return data


def _ids_of(nodes: pd.DataFrame, name: Any, culprit: str) -> Array | None:
    """The ids of nodes in the column of that name, or the index, None where they are 0, 1, 2, ..."""
    culprit += ": the index" if name is None else f": column {name!r}"
    ids = whole(nodes.index if name is None else nodes[name]).to_numpy()
    if ids.dtype.kind in "iu" and np.array_equal(ids, np.arange(len(nodes))):
        return None
    places, values = factorized(ids, f"{culprit} must be text or numbers")
    lacking = np.array([*map(is_missing, values), True])[places] if values.dtype == object else places < 0
    if lacking.any():
        raise InputError(f"{culprit} has none in {row_name(int(lacking.argmax()))}: give each node its own")
    if len(values) < len(ids):
        first, second = np.flatnonzero(places == np.flatnonzero(np.bincount(places) > 1)[0])[:2]
        where = f"in rows {first} and {second} (the first is 0)"
        raise InputError(f"{culprit} names node {ids[[first]].tolist()[0]!r} twice, {where}: give each node one row")
    return ids


def _label_columns(nodes: pd.DataFrame, labels: Sequence[str], culprit: str) -> list[str]:
    """The columns that are learned, all of those that were asked for or none."""
    labels = labels or ("label",)
    if not {*labels} & {*nodes.columns}:
        return []
    for name in labels:
        if name in KNOWN and name != "label":
            raise InputError(f"{culprit}: column {name!r} cannot be learned: it says which node or part a row is")
        if name not in nodes:
            raise InputError(f"{culprit}: column {name!r} of the labels is missing; there are {listed(nodes)}")
    return [*dict.fromkeys(labels)]


def _maybe_label(nodes: pd.DataFrame) -> str | None:
    """A column that may have the labels: it is called so, or else it has few values and the most gaps."""
    for name in nodes:
        if LABEL_LIKE.fullmatch(str(name)):
            return str(name)
    words = [name for name in nodes if name not in KNOWN and nodes[name].dtype.kind not in "fMbiu"]
    gaps = nodes[words].isna().mean()
    return str(gaps.idxmax()) if gaps.any() else None


def _masks(nodes: pd.DataFrame, culprit: str) -> dict[str, NDArray[np.bool_]]:
    rule = "must be true or false"
    masks = {mask: _meant(nodes[mask], FLAGS, f"{culprit}: {mask} {rule}") == 1 for mask in MASKS if mask in nodes}
    if "split" in nodes:
        named = _meant(nodes["split"], SPLITS, f"{culprit}: 'split' must be train, val or test")
        masks |= {mask: named == mask for mask in MASKS if mask in {*named}}
    return {mask: given.to_numpy(dtype=bool, copy=True) for mask, given in masks.items()}


def _meant(column: pd.Series, meanings: Mapping[str, Any], rule: str) -> pd.Series:
    """What each value of a column means."""
    words = words_of(column).str.lower()
    for word in words.dropna().unique():
        if word not in meanings:
            raise InputError(f"{rule}, got {word!r}")
    return words.map(meanings)


def set_edges(data: Graph, edges: pd.DataFrame, culprit: str = "edges", *, skip_unknown: bool = False) -> None:
    """Give the graph the edges of a table, by the ids of its nodes, or by numbers where there is no table of these."""
    given, edges = len(edges), edges.assign(**{name: whole(edges[name]) for name in ENDS})
    if data.x is None and "num_nodes" not in data:
        for name in ENDS:
            if edges[name].dtype.kind not in "iu":
                raise InputError(f"{culprit}: column {name!r} must be whole numbers where no table of nodes has ids")
        ends = edges[[*ENDS]].to_numpy(dtype=np.int64).T.copy()
    else:
        ends = EndsById(data)(edges, culprit, skip_unknown=skip_unknown)
        known = np.asarray((ends >= 0).all(0))
        ends, edges = ends[:, known], edges[known]
    data.edge_index = torch.from_numpy(ends)
    data.notes = (*data.get("notes", ()), *_about_edges(edges, ends, given)) or None
    if "weight" in edges:
        weights = np.array(pd.to_numeric(edges["weight"], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan))
        bad = ~(weights > 0) | (weights > LARGEST)
        if bad.any():
            row = int(bad.argmax())
            has = f"but {row_name(row)} has {edges['weight'].iloc[[row]].tolist()[0]!r:.60}"
            raise InputError(f"{culprit}: column 'weight' must be positive and finite numbers, {has}")
        data.edge_weight = torch.from_numpy(weights)


def _about_edges(edges: pd.DataFrame, ends: Array, given: int) -> Iterator[str]:
    if len(edges) < given:
        yield f"{given - len(edges)} of {given} edges name unknown nodes and are left out"
    source, target = ends
    repeated = len(edges) - len(pd.unique(source * (1 + ends.max(initial=0)) + target))
    if repeated:
        once = "their weights add up" if "weight" in edges else "each counts once"
        yield f"of {len(edges)} edges {repeated} repeat another ({once})"
    if loops := int((source == target).sum()):
        yield f"of {len(edges)} edges {loops} join a node with itself (left out)"
    if unused := [str(name) for name in edges if name not in (*ENDS, "weight")]:
        names = listed(map(repr, unused))
        yield f"columns {names} of the edges are not used: 'weight' is the place for a number an edge"


class EndsById:
    """Looks up the nodes of a graph by their ids, for the rows of a table of edges."""

    def __init__(self, data: Graph) -> None:
        ids = data.get("ids")
        self._own = pd.RangeIndex(data.num_nodes) if ids is None else pd.Index(ids, tupleize_cols=False)

    @cached_property
    def _names(self) -> pd.Index:
        """The ids as text: text and numbers may name the same node, in a table that was read as text beside another."""
        names = names_of(self._own)
        if names.has_duplicates:
            first, second = self._own[names == names[names.duplicated()][0]][:2]
            both = f"nodes {first!r} and {second!r} have the same name"
            raise InputError(f"{both}, as the edges write it: give all of them text, or numbers")
        return names

    def __call__(
        self, edges: pd.DataFrame, culprit: str, first: int = 0, *, skip_unknown: bool = False
    ) -> NDArray[np.int64]:
        """The nodes that each edge joins (2, edges), -1 for an unknown one; rows are counted from the ``first``."""
        if all(ids.dtype.kind in "iu" for ids in (self._own, edges["source"], edges["target"])):
            ends = np.stack([self._own.get_indexer(edges[name].to_numpy()) for name in ENDS])
        else:
            different = [pd.factorize(edges[name]) for name in ENDS]
            ends = np.stack(
                [np.append(self._names.get_indexer(names_of(names)), -1)[places] for places, names in different]
            )
        unknown = np.flatnonzero((ends < 0).any(0))
        if len(unknown) and (not skip_unknown or len(unknown) == len(edges)):
            row = int(unknown[0])
            name = ENDS[int(ends[0, row] >= 0)]
            value = edges[name].iloc[[row]].tolist()[0]
            if is_missing(value):
                raise InputError(f"{culprit}: {row_name(first + row)} has no {name}")
            ours = listed(map(repr, self._own[:3].tolist()))
            unnamed = f"names node {value!r}, which no node is called, while nodes are called {ours}"
            remedy = (
                "as_graph(..., skip_unknown=True) (--skip-unknown) leaves such edges out, "
                "as_graph(..., id_column=NAME) (--id-column NAME) names another column of ids"
            )
            many = f"{len(unknown)} of {len(edges)} edges name unknown nodes"
            raise InputError(f"{culprit}: {row_name(first + row)} {unnamed}: {many}: {remedy}")
        return ends


def aligned(data: Graph, nodes: pd.DataFrame, given: Any, culprit: str) -> Any:
    """What pandas knows of the nodes of a graph, in their order, by its index: their ids, or the rows of their table.

    An index that only counts is of neither, unless nodes are called so.
    """
    if not hasattr(given, "reindex") or given.index.equals(nodes.index):
        return given
    index, rows = names_of(given.index), names_of(nodes.index)
    ids = names_of(np.arange(len(nodes)) if data.get("ids") is None else data.ids)
    if index.has_duplicates:
        raise InputError(f"{culprit}: its index names {index[index.duplicated()][0]!r} twice: give each node one row")
    fits = [own for own in (ids, rows) if index.isin(own).all()]
    if len(fits) > 1 and not ids.equals(rows):
        remedy = "make these the index, nodes.set_index('id')"
        raise InputError(f"{culprit}: its index may be of ids or of rows of the table of nodes: {remedy}")
    if fits:
        return given.set_axis(index).reindex(fits[0])
    if given.index.equals(pd.RangeIndex(len(nodes))):
        return given
    unknown = index[~index.isin(ids)][0]
    remedy = "give it the ids of the nodes, or leave the index out with to_numpy()"
    raise InputError(f"{culprit}: its index names node {unknown!r}, which no node is called: {remedy}")


def row_name(row: int) -> str:
    """What a row of a table is called, and how rows are counted."""
    return f"row {row} (the first is 0)"


# ----------------------------------------------------------------------------------------------------------- features


def give_features(data: Graph, table: pd.DataFrame, columns: Columns, culprit: str = "data") -> None:
    """Make the features of a graph of the table of these, which it keeps, with what was learned of the columns.

    The number of its neighbours is a feature of each node, too, unless all others are counts of words.
    """
    own: tuple[Column, ...] | None = None
    if columns == () or ("x" in table and np.ndim(table["x"].iloc[0]) == 1):
        x, names = feature_matrix(table, [*table], culprit)
    else:
        whole_table = _with_degree(data, table)
        has_degree = DEGREE in whole_table and DEGREE not in table
        if columns is None or isinstance(columns, Mapping):
            roles = dict(columns or {})
            degree = {DEGREE: role} if (role := roles.pop(DEGREE, None)) else {}
            own = understood(table, roles, culprit)
            if has_degree and standardized(own):
                own += understood(whole_table[[DEGREE]], degree, culprit)
                if own[-1].role == "ignore" and not degree:  # they all have as many
                    own = own[:-1]
        else:
            own = tuple(column for column in columns if DEGREE in whole_table or column.name != DEGREE)
        x, names = matrix_of(whole_table if any(column.name == DEGREE for column in own) else table, own)
    data.table, data.columns = table, own
    data.x, data.feature_names = (as_features(x, f"{culprit}: features"), names) if x.shape[1] else (None, None)
    data["num_nodes"] = len(table) if data.x is None else None


def _with_degree(data: Graph, table: pd.DataFrame) -> pd.DataFrame:
    if data.edge_index is None or DEGREE in table:
        return table
    pairs = distinct(data.edge_index.sort(0).values, len(table))
    return table.assign(**{DEGREE: torch.bincount(pairs.flatten(), minlength=len(table)).numpy()})


def with_columns(data: Graph, columns: Columns) -> Graph:
    """The graph with the features that these columns make of its table; as it is where it has none, or has these."""
    table, own, same = data.get("table"), data.get("columns") or (), columns is None
    if isinstance(columns, Mapping):
        if table is None and data.x is not None:
            raise InputError("columns is for the columns of a table, and the features are no table: leave it out")
        same = columns.items() <= {column.name: column.role for column in own}.items()
    if table is None or same or columns == own:
        return data
    data = copy.copy(data)
    give_features(data, table, columns)
    return data


def with_values(data: Graph) -> Graph:
    """Where numbers are to be predicted, the graph with the standardized values of numbers beside their ranks."""
    own, table = data.get("columns"), data.get("table")
    if target_of(data) != "regression" or not own or table is None:
        return data
    table = _with_degree(data, table)
    columns = {str(name): table[name] for name in table}
    return with_columns(data, tuple(column.with_value(columns[column.name]) for column in own))


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
            row = int((np.isnan(numbers_of(column)) & column.notna().to_numpy()).argmax())
            raise InputError(
                f"{culprit}: column {name!r} must be numbers, but {row_name(row)} has {column.iloc[row]!r:.60}"
            )
        matrix[:, place] = column.to_numpy(dtype=np.float64, na_value=np.nan)
    # Numbers of columns say no more than their places.
    return matrix, tuple(names) if all(isinstance(name, str) for name in names) else None
