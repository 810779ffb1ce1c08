"""Graphs in files that people have: tables of nodes and edges (CSV, TSV, Parquet), and GraphML.

Nodes: ``id`` (text or numbers; without it nodes are numbered in their order), ``label`` (empty where none is known),
``split`` (train, val, test or empty; or columns ``train_mask`` and so on), and each other column a feature. Edges:
``source`` and ``target``, by the ids of nodes, and perhaps ``weight``.
"""

from __future__ import annotations

import csv
import mmap
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..config import NODE_TABLES, TargetKind
from ..errors import InputError
from .adapters import from_networkx
from .columns import ENDS, FEATURES, KNOWN, graph_of_columns, row_name
from .feature_names import check_lists_alone
from .graph import Graph
from .graph_files import check_file, first_line
from .labels import object_array

Array = NDArray[Any]
#: What separates the columns of a table by its ending; None where it is no text.
SEPARATORS = dict(zip(NODE_TABLES, (",", "\t", None), strict=True))
#: Bytes from which on the time to read a table is worth that to load a library for it.
LARGE = 1 << 20
#: Rows that are turned into numbers at a time.
ROWS = 20_000
NUMBER = re.compile(r"[+-]?\d{1,18}")


class Columns(NamedTuple):
    """What was read of a table."""

    #: Columns by name, as they stand.
    text: dict[str, Any]
    #: Those that are numbers, side by side, and their names where they have any; None if there are none.
    matrix: Array | None
    names: list[str]
    #: The names of all columns, also of those that were not read.
    header: list[str]


def read_tables(nodes: Path, edges: Path | None, target: TargetKind = "auto", labels: Sequence[str] = ()) -> Graph:
    """The graph of a table of nodes and one of edges; without the latter, one that has no 'edge_index'.

    What is learned is in the columns ``labels``, by default ``label``.
    """
    columns, matrix, names, header = _read(nodes, tuple(dict.fromkeys((*KNOWN, *labels))))
    if matrix is not None:
        columns |= {"x": matrix, "feature_names": names}
    own = _label_columns(columns, header, labels, nodes)
    if len(own) == 1:
        (values,) = own.values()
        columns["label"] = values if target in ("multilabel", "regression") else _whole_numbers(values)
    elif own:
        columns["label"] = np.stack([np.asarray(values, dtype=object) for values in own.values()], axis=1)
    ends = None
    if edges is not None:
        read, weight, _, header = _read(edges, ENDS, ("weight",))
        if weight is not None:
            read["weight"] = weight[:, 0]
        ends = {name: read.get(name) for name in header}
    target = "multilabel" if len(own) > 1 and target == "auto" else target  # a class takes one column
    data = graph_of_columns(columns, ends, culprit=str(nodes), edge_culprit=str(edges), target=target)
    if own and target in ("multilabel", "regression"):
        data.label_names = np.array([*own])
    return data


def _label_columns(columns: dict[str, Any], header: list[str], labels: Sequence[str], path: Path) -> dict[str, Any]:
    """Take the columns that are learned out of the others, all of them or none."""
    label = columns.pop("label", None)
    if not labels:
        return {} if label is None else {"label": label}
    if not {*labels} & {*header}:
        return {}
    for name in labels:
        if name in KNOWN and name != "label":
            raise InputError(f"{path}: column {name!r} cannot be learned: it says which node, or which part, a row is")
        if name not in header:
            raise InputError(f"{path}: column {name!r} of the labels is missing; there are {', '.join(header)}")
    return {name: label if name == "label" else columns.pop(name) for name in labels}


def read_graphml(path: Path, target: TargetKind = "auto") -> Graph:
    """The graph of a GraphML file; its attributes are as those of a ``networkx`` graph."""
    import networkx

    check_file(path)
    try:
        graph = networkx.read_graphml(path)
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror or 'damaged'}") from None
    except Exception as error:  # the parser raises many kinds on a file of another kind
        raise InputError(f"{path}: cannot read as GraphML: {first_line(error)}") from None
    return from_networkx(graph, str(path), target)


def _read(path: Path, text: Sequence[str], numbers: Sequence[str] | None = None) -> Columns:
    """Columns by their names, those in ``text`` as they stand, and ``numbers``, or all others, as one matrix."""
    check_file(path)
    if path.suffix not in SEPARATORS:
        raise InputError(f"{path}: must end in {', '.join(SEPARATORS)}: a table of nodes or edges")
    separator = SEPARATORS[path.suffix]
    if separator is None:
        read = _read_parquet(path, text, numbers)
    else:
        read = _read_plain(path, separator, text, numbers) or _read_text(path, separator, text, numbers)
    columns = (*read.text.values(), () if read.matrix is None else read.matrix)
    if numbers is None and not any(len(column) for column in columns):
        raise InputError(f"{path}: there is no row")
    return read


def _read_plain(path: Path, separator: str, text: Sequence[str], numbers: Sequence[str] | None) -> Columns | None:
    """What :func:`_read_text` gives, several times faster, of a large table without quotes; None where it is not one.

    Where anything is out of order it is None as well: what is wrong is then found, and said, by the other.
    """
    try:
        if path.stat().st_size < LARGE or not _is_plain(path):
            return None
        import pyarrow as pa
        from pyarrow import csv as arrow

        with path.open(encoding="utf-8-sig", newline="") as file:
            header = [name.strip() for name in next(csv.reader(file, delimiter=separator, strict=True))]
        if not header or len(set(header)) < len(header):
            return None
        wanted = [name for name in header if (name in numbers if numbers is not None else name not in text)]
        own = [name for name in text if name in header]
        kinds = dict.fromkeys(own, pa.string()) | dict.fromkeys(wanted, pa.float64())
        table = arrow.read_csv(
            path,
            arrow.ReadOptions(column_names=header, skip_rows=1),
            arrow.ParseOptions(delimiter=separator, quote_char=False),
            arrow.ConvertOptions(
                column_types=kinds, include_columns=[*own, *wanted], null_values=[], strings_can_be_null=False
            ),
        )
    except (ImportError, OSError, ValueError, csv.Error, StopIteration):  # pyarrow's errors are of the third kind
        return None
    if not len(table):
        return None
    matrix = np.empty((len(table), len(wanted)), dtype=np.float32) if wanted else None
    for place, name in enumerate(wanted):
        assert matrix is not None
        matrix[:, place] = table.column(name).to_numpy()
    return Columns({name: table.column(name).to_numpy() for name in own}, matrix, wanted, header)


def _is_plain(path: Path) -> bool:
    """Is every line of a table a row, and everything between two separators a value?"""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return re.search(rb'["\0]|\r(?!\n)', content) is None


def _read_text(path: Path, separator: str, text: Sequence[str], numbers: Sequence[str] | None) -> Columns:
    try:
        # A mark of the byte order, which spreadsheets write, is no part of the first name.
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, delimiter=separator, strict=True)
            header = [name.strip() for name in next(rows, [])]
            places = {name: place for place, name in enumerate(header)}
            if len(places) < len(header) or not header:
                raise InputError(f"{path}: the first row must name the columns, each once")
            wanted = [name for name in header if (name in numbers if numbers is not None else name not in text)]
            remedy = f"; {FEATURES}" if numbers is None else ""
            own: dict[str, list[str]] = {name: [] for name in text if name in places}
            blocks = []
            for first, block in _blocks(rows, header, path):
                for name, values in own.items():
                    values += [row[places[name]] for row in block]
                if wanted:
                    blocks.append(_matrix(block, first, {name: places[name] for name in wanted}, path, remedy))
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text at byte {error.start}") from None
    except csv.Error as error:
        raise InputError(f"{path}: line {rows.line_num}: {error}") from None
    matrix = np.concatenate(blocks) if blocks else None
    known = {name: np.array(values, dtype=object) for name, values in own.items()}
    return Columns(known, matrix, wanted, header)


def _blocks(rows: Iterator[list[str]], header: list[str], path: Path) -> Iterator[tuple[int, list[list[str]]]]:
    """Rows in blocks, each with the number of its first; empty lines are left out."""
    rows, first = (row for row in rows if row), 0
    while block := list(islice(rows, ROWS)):
        for number, row in enumerate(block, start=first):
            if len(row) != len(header):
                raise InputError(f"{path}: {row_name(number)} has {len(row)} columns, the header {len(header)}")
        yield first, block
        first += len(block)


def _matrix(block: list[list[str]], first: int, places: dict[str, int], path: Path, remedy: str) -> Array:
    """The columns at these places as numbers."""
    order = list(places.values())
    try:
        return np.array([[row[place] for place in order] for row in block], dtype=np.float32)
    except ValueError:
        for number, row in enumerate(block, start=first):
            for name, place in places.items():
                try:
                    float(row[place])
                except ValueError:
                    rule = f"column {name!r} must be numbers, but {row_name(number)} has {row[place]!r}"
                    raise InputError(f"{path}: {rule}{remedy}") from None
        raise


def _whole_numbers(labels: Array) -> Array:
    """Labels that are all whole numbers, or none, as such: text has no other way to say so."""
    values = labels.tolist()
    if any(isinstance(value, str) and value.strip() and not NUMBER.fullmatch(value.strip()) for value in values):
        return labels
    numbers = [int(value) if isinstance(value, str) and value.strip() else value for value in values]
    return np.array(numbers, dtype=object)


def _read_parquet(path: Path, text: Sequence[str], numbers: Sequence[str] | None) -> Columns:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(f"{path}: Parquet tables need pyarrow: pip install pyarrow") from None
    from .parquet import floats

    try:
        table = pq.read_table(path)
        names = table.column_names
        own = {name: table.column(name).to_pylist() for name in text if name in names}
    except Exception:  # pyarrow raises many kinds on a damaged file
        raise InputError(f"{path}: cannot read as Parquet: damaged, or of another kind") from None
    wanted = [name for name in names if (name in numbers if numbers is not None else name not in text)]
    remedy = f"; {FEATURES}" if numbers is None else ""
    columns = [floats(table.column(name), f"{path}: column {name!r}", remedy) for name in wanted]
    matrix = None
    if any(column.ndim == 2 for column in columns):
        check_lists_alone(wanted, str(path))
        matrix, wanted = columns[0], []  # lists, whose entries have no names
    elif columns:
        matrix = np.stack(columns, axis=1)
    return Columns({name: object_array(values) for name, values in own.items()}, matrix, wanted, names)
