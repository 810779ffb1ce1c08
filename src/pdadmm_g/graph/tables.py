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
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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
from .columns import NOTHING, Column, listed, matrix_of, standardized, understood
from .facts import distinct
from .graph import MASKS, Graph, as_tensor, check_file, first_bad, is_missing, reading
from .readers import as_features, as_matrix
from .targets import NO, YES, asked, factorized, set_targets, target_of

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
        first = file.readlines(1)
        lines = itertools.chain(first, file)
        # Another separator is meant where the usual one is not in the first row at all.
        among = [mark for mark in (usual, *",;\t|") if mark in "".join(first)] or [usual]
        separator = among[0] if usual in among else max(among, key="".join(first).count)
        header = next(csv.reader(lines, delimiter=separator), [])
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
    try:
        with _opened(path, "rt", encoding=UTF8) as file:
            while file.read(BLOCK):
                pass
    except UnicodeDecodeError:
        if b"\0" not in start:  # text, then
            warnings.warn(f"{path}: is not in UTF-8 and is read as Windows-1252: save it as UTF-8", stacklevel=2)
            return "cp1252"
    return UTF8


def _as_frame(table: pa.Table, labels: Collection[str] = (), *, numbers: bool = False) -> pd.DataFrame:
    """A pandas table, text as categories.

    Labels that are all numbers become such, and, of a text file, other columns ``numbers`` if their values all
    are. A zero before the id 007, the label 01 or the code 01234 is a part of it. Words for nothing, such as NA, are
    what they are for pandas, but for ids.
    """
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            trimmed = pc.utf8_trim_whitespace(column)
            if numbers and name.lower() not in ("id", *ENDS):
                nothing = pc.is_in(trimmed, pa.array(NOTHING))
                column, trimmed = (pc.if_else(nothing, None, each) for each in (column, trimmed))
            is_label = name in labels or name.lower() == "label"
            if (is_label or (numbers and name.lower() not in (*KNOWN, *ENDS))) and not _are_codes(trimmed):
                column = _numbers(trimmed, column, sure=is_label or name.lower() == "weight")
        columns[name] = column
    return pa.table(columns).to_pandas(strings_to_categorical=True)


def _numbers(text: pa.ChunkedArray, otherwise: pa.ChunkedArray, *, sure: bool) -> pa.ChunkedArray:
    """A column of text as whole numbers, as numbers, also with a decimal comma, or as it is ``otherwise``.

    Unless it is ``sure`` to be decimal, a comma as in 1,234 is left to :mod:`.columns`.
    """
    for kind in (pa.int64(), pa.float64()):
        with suppress(pa.ArrowInvalid):
            return text.cast(kind)
    if not sure and pc.any(pc.match_substring_regex(text, r"^[-+]?[1-9][0-9]{0,2},[0-9]{3}$")).as_py():
        return otherwise
    with suppress(pa.ArrowInvalid):
        return pc.replace_substring_regex(text, r"^([-+]?[0-9]*),([0-9]+)$", r"\1.\2").cast(pa.float64())
    return otherwise


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

    def frame(self, names: list[str], labels: Collection[str] = ()) -> pd.DataFrame:
        """Some columns of all rows."""
        if not names:
            return pd.DataFrame(index=range(self.number))
        parts = []
        for path in self.files:
            with reading(path, "Parquet"):
                parts.append(pq.read_table(path, columns=names))
        with reading(self.files[0], "Parquet"):
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


@dataclass(frozen=True, kw_only=True)
class Naming:
    """What the columns of tables are called, where that is not what it usually is."""

    #: Columns of the nodes that are learned.
    labels: Sequence[str] = ()
    id_column: str | None = None
    source_column: str | None = None
    target_column: str | None = None
    #: Leave out edges of nodes that the table of nodes does not have.
    skip_unknown: bool = False


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
    nodes: pd.DataFrame, naming: Naming, edges: pd.DataFrame | None, culprit: str, features: Collection[str] = ()
) -> tuple[Any, list[str]]:
    """The table with its columns called as we know them, and a sentence on each that was guessed.

    ``features`` are columns that a model knows, which are no ids.
    """
    given, notes, renamed = naming.id_column, list[str](), dict[Any, str]()
    if nodes.columns.has_duplicates:
        return nodes, notes
    if given is not None:
        if given not in nodes:
            raise InputError(f"{culprit}: column {given!r} of the ids is missing; there are {listed(nodes)}")
        _checked_ids(whole(nodes[given]).to_numpy(), f"{culprit}: column {given!r}")
        return nodes.drop(columns=["id"] if given != "id" else [], errors="ignore").rename(columns={given: "id"}), notes
    for name in nodes.columns:
        known = str(name).lower()
        same = [other for other in nodes.columns if str(other).lower() == known]
        if known in KNOWN and name not in KNOWN and len(same) == 1 and name not in naming.labels:
            renamed[name] = known
            notes.append(f"column {name!r} of the nodes is taken for {known!r}")
    nodes = nodes.rename(columns=renamed)
    if "id" not in nodes and nodes.index.name is None and nodes.index.dtype.kind in "iu":
        found = _column_of_ids(nodes, naming, edges, culprit, features)
        if found is not None:
            notes.append(f"column {found!r} has the ids of the nodes: id_column names another")
            nodes = nodes.rename(columns={found: "id"})
    return nodes, notes


def _column_of_ids(
    nodes: pd.DataFrame, naming: Naming, edges: pd.DataFrame | None, culprit: str, features: Collection[str]
) -> Any | None:
    """The column that names the nodes, each otherwise, and most that edges name, or that a model does not know."""
    ends, repeated = _different_ends(edges), list[Any]()
    rows = len(ends) > 0 and bool(ends.isin([*map(str, nodes.index)]).all())
    for name in nodes.columns:
        if not ID_LIKE.fullmatch(str(name)) or name in naming.labels or str(name) in features:
            continue
        column = whole(nodes[name].dropna())
        own = pd.Index([*map(str, column.tolist())], dtype=object)
        if column.dtype.kind == "f" or not len(own):
            continue
        named = len(ends) > 0 and ends.isin(own).mean() > 0.5
        if len(own) < len(nodes) or not own.is_unique:
            repeated += [name] * bool(named)
        elif (
            named
            or (features and not rows)
            or (own.isin(ends).mean() > 0.5 if len(ends) else str(name).lower() not in NAMES)
        ):
            return name
    if repeated and not rows:
        name = repeated[0]
        _checked_ids(whole(nodes[name]).to_numpy(), f"{culprit}: column {name!r}, which the edges go by,")
    others = nodes.drop(columns=[name for name in nodes if str(name) in {*KNOWN, *naming.labels, *features}])
    return _any_column_of_ids(others, ends, naming, culprit, new=bool(features) and not rows)


def _any_column_of_ids(nodes: pd.DataFrame, ends: pd.Index, naming: Naming, culprit: str, *, new: bool) -> Any | None:
    """The column, whatever it is called, by which the edges go, unless it may as well be the numbers of the rows.

    Where a model does not know the columns (``new``), it is the only one that may have ids.
    """
    names = dict(_possible_ids(nodes))
    if new and len(names) == 1:
        return next(iter(names))
    rows = _fit(pd.Index([*map(str, nodes.index)], dtype=object), ends, naming.skip_unknown)
    fits = {name: _fit(own, ends, naming.skip_unknown) for name, own in names.items()}
    best = max(fits.values(), default=0)
    found = [name for name, fit in fits.items() if fit == best]
    if not best or best < rows:
        return None
    if best == rows or len(found) > 1:
        may = f"{'columns' if found[1:] else 'column'} {listed(map(repr, found))}"
        may += " or by the numbers of the rows" * (best == rows)
        remedy = f"say id_column={found[0]!r} (--id-column {found[0]}), or call the column of the ids 'id'"
        raise InputError(f"{culprit}: the edges may go by {may}, which fit alike: {remedy}")
    return found[0]


def _different_ends(edges: pd.DataFrame | None) -> pd.Index:
    if edges is None:
        return pd.Index([], dtype=object)
    ends = pd.unique(edges[[*ENDS]].apply(whole).astype(object).to_numpy().ravel())
    return pd.Index([*map(str, ends)], dtype=object)


def _possible_ids(nodes: pd.DataFrame) -> Iterator[tuple[Any, pd.Index]]:
    """The columns without gaps and repeats that are no fractions, as text, but for the numbers of the rows."""
    for name in nodes.columns:
        column = nodes[name]
        with suppress(TypeError):  # of lists
            if column.dtype.kind not in "bMmc" and column.is_unique and not column.isna().any():
                column = whole(column)
                own = pd.Index([*map(str, column.tolist())], dtype=object)
                if column.dtype.kind != "f" and not own.equals(pd.Index([*map(str, nodes.index)], dtype=object)):
                    yield name, own


def _fit(own: pd.Index, ends: pd.Index, skip_unknown: bool) -> int:
    """2 where these ids name all ends of edges, 1 where nearly all; with ``skip_unknown`` also the other way round."""
    if not len(ends):
        return 0
    share = max(ends.isin(own).mean(), own.isin(ends).mean() if skip_unknown else 0)
    return int(share >= NEARLY) + int(share == 1)


def named_edges(edges: pd.DataFrame, naming: Naming, culprit: str = "edges") -> tuple[pd.DataFrame, list[str]]:
    """The table with its ends called ``source`` and ``target`` and first, and a sentence where they were guessed."""
    pair = ends_of(edges)
    if pair is None and len(edges.columns) == 2:
        pair = (edges.columns[0], edges.columns[1])
    notes = [] if pair in (None, ENDS) else [f"edges go from column {pair[0]!r} to column {pair[1]!r}"]
    own = naming.source_column, naming.target_column
    if any(own):
        pair, notes = tuple(mine or other for mine, other in zip(own, pair or ENDS, strict=True)), []  # type: ignore[assignment]
    for name in pair or ENDS:
        if name not in edges:
            remedy = "say which are the ends with source_column and target_column"
            raise InputError(f"{culprit}: column {name!r} is missing; there are {listed(edges) or 'none'}: {remedy}")
    first, second = pair or ENDS
    rest = [name for name in edges.columns if name not in (first, second, *ENDS)]
    return edges[[first, second, *rest]].rename(columns={first: "source", second: "target"}), notes


def ends_of(edges: Any) -> tuple[Any, Any] | None:
    """The columns of a table that usual names say are the ends of edges."""
    lower: dict[str, Any] = {}
    for name in edges.columns:
        lower.setdefault(str(name).lower(), name)
    return next(((lower[a], lower[b]) for a, b in PAIRS if a in lower and b in lower), None)


@contextmanager
def told(errors: list[str]) -> Iterator[None]:
    """Keep what is wrong, to be told with all the rest."""
    try:
        yield
    except InputError as error:
        errors.append(str(error))


#: The roles that columns are said to have, what a model learned of them, or () for numbers as they are.
Columns = Mapping[str, str] | Sequence[Column] | None


def graph_of_tables(
    nodes: pd.DataFrame,
    edges: pd.DataFrame | None,
    target: TargetKind = "auto",
    naming: Naming | None = None,
    columns: Columns = None,
    culprits: tuple[str, str] = ("nodes", "edges"),
) -> Graph:
    """The graph of a table of nodes and perhaps one of edges; all that is wrong with them is told at once."""
    naming, errors, said = naming or Naming(), list[str](), list[str]()
    with told(errors):
        if edges is not None:
            edges, said = named_edges(edges, naming, culprits[1])
    notes, features = list[str](), () if columns is None or isinstance(columns, Mapping) else columns
    try:
        known = {column.name for column in features}
        nodes, notes = named_nodes(nodes, naming, None if errors else edges, culprits[0], known)
    except InputError as error:
        errors.append(str(error))
        nodes = nodes.reset_index(drop=True)
    data, (own, degree) = Graph(num_nodes=len(nodes)), _apart(columns)
    try:
        data = graph_of_nodes(nodes, target, naming.labels, culprits[0], own)
    except InputError as error:
        errors.append(str(error))
        with suppress(InputError):  # for the edges
            data.ids = _ids_of(nodes, culprits[0])
    data.notes = (*notes, *said, *data.get("notes", ())) or None
    if edges is not None and "source" in edges and "target" in edges and (data.get("ids") is not None or not errors):
        with told(errors):
            set_edges(data, edges, culprits[1], naming.skip_unknown)
    if errors:
        raise InputError("; ".join(errors))
    _add_degree(data, degree)
    return data


def _apart(columns: Columns) -> tuple[Columns, Column | str | None]:
    """What is said of the columns of a table, and of the number of neighbours, which is none of its own."""
    if isinstance(columns, Mapping):
        return {name: role for name, role in columns.items() if name != DEGREE}, columns.get(DEGREE)
    own = next((column for column in columns or () if column.name == DEGREE), None)
    return columns if own is None else tuple(column for column in columns or () if column is not own), own


def _add_degree(data: Graph, degree: Column | str | None) -> None:
    """Add the number of its neighbours to the features of each node of a table, unless these are counts of words."""
    if data.edge_index is None or not standardized(data.get("columns")) or DEGREE in data.feature_names:
        return
    counts = pd.DataFrame({DEGREE: _degrees(data)})
    roles = {DEGREE: degree} if isinstance(degree, str) else None
    column = degree if isinstance(degree, Column) else understood(counts, roles)[0]
    if column.role == "ignore" and degree is None:  # they all have as many
        return
    x, names = matrix_of(counts, [column])
    data.x = torch.cat([data.x, as_features(x, DEGREE)], dim=1)
    data.columns, data.feature_names = (*data.columns, column), (*data.feature_names, *names)


def _degrees(data: Graph) -> Array:
    pairs = distinct(data.edge_index.sort(0).values, data.num_nodes)
    return torch.bincount(pairs.flatten(), minlength=data.num_nodes).numpy()


def _ids_of(nodes: pd.DataFrame, culprit: str) -> Array | None:
    """The ids of nodes, None where they are 0, 1, 2, ..."""
    ids = whole(nodes.get("id", nodes.index)).to_numpy()
    if ids.dtype.kind in "iu" and np.array_equal(ids, np.arange(len(nodes))):
        return None
    return _checked_ids(ids, f"{culprit}: column 'id'" if "id" in nodes else f"{culprit}: the index")


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
    data, errors, learned = Graph(num_nodes=len(nodes)), list[str](), list[str]()
    with told(errors):
        data.ids = _ids_of(nodes, culprit)
    with told(errors):
        learned = _label_columns(nodes, labels, culprit)
    if not learned:
        data.maybe_label = _maybe_label(nodes)
    with told(errors):
        several = len(learned) > 1
        if several and target == "auto":
            target = "multilabel"  # a class takes one column
        if learned:
            y = nodes[learned].to_numpy(dtype=object) if several else nodes[learned[0]].to_numpy()
            set_targets(data, y, f"{culprit}: labels", target)
            data.label_column = str(learned[0]) if y.dtype.kind == "f" else None  # for an error
        if learned and labels and target in ("multilabel", "regression"):
            data.label_names = np.array(learned)
    features = [name for name in nodes.columns if name not in KNOWN and name not in learned]
    with told(errors):
        if features:
            give_features(data, nodes[features], columns, culprit)
    with told(errors):
        for mask, given in _masks(nodes, culprit).items():
            data[mask] = torch.from_numpy(given)
    if errors:
        raise InputError("; ".join(errors))
    return asked(data, target)


def _maybe_label(nodes: pd.DataFrame) -> str | None:
    """A column that may have the labels: it is called so, or else it has few values and the most gaps."""
    called = [str(name) for name in nodes.columns if LABEL_LIKE.fullmatch(str(name))]
    few = {str(name): nodes[name].isna().mean() for name in nodes.columns if nodes[name].dtype.kind not in "fMbiu"}
    partly = [name for name, share in few.items() if share > 0 and name not in KNOWN]
    return next(iter([*called, *sorted(partly, key=lambda name: -few[name])]), None)


def give_features(data: Graph, table: pd.DataFrame, columns: Columns, culprit: str = "data") -> None:
    """Make the features of a graph of the table of these, which it keeps, with what was learned of the columns."""
    if columns == () or ("x" in table and np.ndim(table["x"].iloc[0]) == 1):
        x, names = feature_matrix(table, [*table], culprit)
        data.columns = None
    else:
        data.columns = (
            understood(table, columns, culprit) if columns is None or isinstance(columns, Mapping) else columns
        )
        x, names = matrix_of(table, data.columns)
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
    data, (columns, degree) = copy.copy(data), _apart(columns)
    give_features(data, table, columns)
    _add_degree(data, degree)
    return data


def with_values(data: Graph) -> Graph:
    """Where numbers are to be predicted, the graph with the standardized values of numbers beside their ranks."""
    own, table = data.get("columns"), data.get("table")
    if target_of(data) != "regression" or not own or table is None:
        return data
    columns = {str(name): table[name] for name in table}
    if any(column.name == DEGREE for column in own):
        columns[DEGREE] = pd.Series(_degrees(data))
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
            numbers = pd.to_numeric(column.astype(object), errors="coerce").to_numpy(dtype=float, na_value=np.nan)
            row = int(np.flatnonzero(np.isnan(numbers) & column.notna().to_numpy())[:1].sum())
            has = f"but {row_name(row)} has {column.iloc[row]!r:.60}"
            raise InputError(f"{culprit}: column {name!r} must be numbers, {has}; {FEATURES}")
        matrix[:, place] = column.to_numpy(dtype=np.float64, na_value=np.nan)
    # Numbers of columns say no more than their places.
    return matrix, tuple(names) if all(isinstance(name, str) for name in names) else None


def whole(column: Any) -> Any:
    """Fractions that are all whole as whole numbers: 1.0 is the same id as 1."""
    numbers = column.dtype.kind == "f" and bool((column % 1 == 0).all())
    return column.astype(np.int64) if numbers and isinstance(column.dtype, np.dtype) else column


def aligned(
    nodes: pd.DataFrame, given: Any, culprit: str, edges: pd.DataFrame | None = None, naming: Naming | None = None
) -> Any:
    """What pandas knows of nodes, in their order, by its index: their ids, or the rows of their table.

    An index that only counts is of neither, unless nodes are called so.
    """
    if not hasattr(given, "reindex") or given.index.equals(nodes.index):
        return given
    with suppress(InputError):  # which the graph of these tables tells
        edges = None if edges is None else named_edges(edges, naming or Naming())[0]
        nodes = named_nodes(nodes, naming or Naming(), edges, "nodes")[0]
    index, rows = (pd.Index([*map(str, whole(each).tolist())], dtype=object) for each in (given.index, nodes.index))
    if index.has_duplicates:
        raise InputError(f"{culprit}: its index names {index[index.duplicated()][0]!r} twice: give each node one row")
    ids = pd.Index([*map(str, whole(nodes["id"]).tolist())], dtype=object) if "id" in nodes else rows
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
        raise InputError(f"{culprit} has none in {row_name(int(lacking.argmax()))}: give each node its own")
    if len(values) < len(ids):
        first, second = np.flatnonzero(places == np.flatnonzero(np.bincount(places) > 1)[0])[:2]
        where = f"in rows {first} and {second} (the first is 0)"
        raise InputError(f"{culprit} names node {ids[[first]].tolist()[0]!r} twice, {where}: give each node one row")
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


def set_edges(data: Graph, edges: pd.DataFrame, culprit: str = "edges", skip_unknown: bool = False) -> None:
    """Give the graph the edges of a table, by the ids of its nodes, or by numbers where there is no table of these."""
    numbered = data.x is None and "num_nodes" not in data
    edges = edges.assign(**{name: whole(edges[name]) for name in ENDS if name in edges})
    for name in ENDS:
        if numbered and edges[name].dtype.kind not in "iu":
            raise InputError(f"{culprit}: column {name!r} must be whole numbers where no table of nodes has ids")
    if numbered:
        data.edge_index = torch.from_numpy(edges[[*ENDS]].to_numpy(dtype=np.int64).T.copy())
    else:
        found = EndsById(data)(edges, culprit, skip_unknown=skip_unknown)
        known = np.asarray((found >= 0).all(0))
        data.edge_index, edges = torch.from_numpy(found[:, known]), edges[known]
    data.notes = (
        *data.get("notes", ()),
        *_about_edges(data, edges, len(known) if not numbered else len(edges)),
    ) or None
    if "weight" in edges:
        weights = checked_weights(edges["weight"].to_numpy(), f"{culprit}: column 'weight'", row_name)
        data.edge_weight = torch.from_numpy(weights)


def _about_edges(data: Graph, edges: pd.DataFrame, given: int) -> Iterator[str]:
    if len(edges) < given:
        yield f"{given - len(edges)} of {given} edges name unknown nodes and are left out"
    source, target = data.edge_index.numpy()
    repeated = len(source) - len(pd.unique(source * (1 + max(source.max(initial=0), target.max(initial=0))) + target))
    loops = int((source == target).sum())
    once = "their weights add up" if "weight" in edges else "each counts once"
    several = [f"{repeated} repeat another ({once})"] * bool(repeated)
    several += [f"{loops} join a node with itself (left out)"] * bool(loops)
    if several:
        yield f"of {len(source)} edges {' and '.join(several)}"
    unused = [str(name) for name in edges if name not in (*ENDS, "weight")]
    if unused:
        what = (
            f"columns {listed(map(repr, unused))} of the edges are"
            if unused[1:]
            else f"column {unused[0]!r} of the edges is"
        )
        yield f"{what} not used: 'weight' is the place for a number an edge"


class EndsById:
    """Looks up the nodes of a graph by their ids, for the rows of a table of edges."""

    def __init__(self, data: Graph) -> None:
        ids = data.get("ids")
        self._own = pd.RangeIndex(data.num_nodes) if ids is None else pd.Index(ids, tupleize_cols=False)
        self._table = data.get("table")

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

    def __call__(
        self, edges: pd.DataFrame, culprit: str, first: int = 0, *, skip_unknown: bool = False
    ) -> NDArray[np.int64]:
        """The nodes that each edge joins (2, edges), -1 for an unknown one; rows are counted from the ``first``."""
        numbers = all(ids.dtype.kind in "iu" for ids in (self._own, edges["source"], edges["target"]))
        found = []
        for name in ENDS:
            if numbers:
                rows = self._own.get_indexer(edges[name].to_numpy())
            else:
                places, values = pd.factorize(edges[name])
                names = [str(int(each) if isinstance(each, float) and each.is_integer() else each) for each in values]
                rows = np.append(self._text.get_indexer(pd.Index(names, dtype=object)), -1)[places]
            found.append(rows.astype(np.int64))
        ends = np.stack(found)
        unknown = np.flatnonzero((ends < 0).any(0))
        if len(unknown) and (not skip_unknown or len(unknown) == len(edges)):
            missing = np.flatnonzero(edges[[*ENDS]].isna().any(axis=1))  # which make fractions of all numbers
            place = int((missing if len(missing) else unknown)[0])
            name = ENDS[int(ends[0, place] >= 0)]
            if is_missing(value := edges[name].iloc[[place]].tolist()[0]):
                raise InputError(f"{culprit}: {row_name(first + place)} has no {name}")
            theirs = pd.unique(pd.concat([edges[name][own < 0] for name, own in zip(ENDS, ends, strict=True)]))[:3]
            why = f"{row_name(first + place)} names node {value!r}, which no node is called"
            many = (
                f"{len(unknown)} of {len(edges)} edges name unknown nodes, such as {listed(map(repr, theirs.tolist()))}"
            )
            ours = f"while nodes are called {listed(map(repr, self._own[:3].tolist()))}"
            remedy = "as_graph(..., skip_unknown=True) (--skip-unknown) leaves such edges out"
            if (better := self._better(edges)) is not None:
                remedy = f"column {better!r} fits them: id_column={better!r} (--id-column {better}) goes by it"
            elif len(unknown) == len(edges):
                remedy = "as_graph(..., id_column=NAME) (--id-column NAME) names another column of ids"
            raise InputError(f"{culprit}: {why}: {many}, {ours}; {remedy}")
        return ends

    def _better(self, edges: pd.DataFrame) -> Any | None:
        """A column of the table that names nearly all ends of edges, and more than the ids do."""
        ends, table = _different_ends(edges), pd.DataFrame() if self._table is None else self._table
        shares = {name: ends.isin(own).mean() for name, own in _possible_ids(table)}
        best = max(shares, key=lambda name: shares[name], default=None)
        fits = best is not None and shares[best] >= NEARLY and shares[best] > ends.isin(self._text).mean()
        return best if fits else None


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
