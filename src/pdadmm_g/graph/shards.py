"""A graph in parts: a folder of shards, each with some consecutive nodes, of which a process reads only its own.

``description.json``               what all shards are together; it is written last, and makes the folder a whole
``shard-3-of-8/description.json``  the same id, and which files these are
``shard-3-of-8/x.npy``             features of its nodes; ``y.npy``, masks and ``ids.npy`` likewise where there are any
``shard-3-of-8/degrees.npy``       how many neighbours they have, and in ``columns.npy`` these by their number in the
                                   whole graph, in order; where edges have weights or directions, in ``out.npy`` and
                                   ``into.npy`` what the edges to each of them weigh, and those from it

Such a folder is made of a graph in memory, or of one that is read in blocks and may be larger: folders of arrays or of
Parquet tables. Edges are dealt to the shards of both ends, then sorted; then features are written. Labels, masks and
ids, a few numbers a node, are in memory, a block, and the edges of one shard. What is interrupted goes on: a journal
says how many edges are dealt and how many shards sorted, and a shard with a description is finished.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..config import TargetKind
from ..engine.team import Line, agreed
from ..errors import InputError
from ..utils import Count, Size, read_record, write_atomically, writing
from .checks import check_edges, check_features, check_graph, check_nodes
from .columns import Column, feature_names, matrix_of, standardized, understood
from .examples import shares
from .graph import LARGEST, MASKS, Graph, are_names, as_tensor, id_order, natural, reading, reordered
from .parts import Neighbours, Part
from .propagation import to_csc
from .tables import (
    DEGREE,
    ENDS,
    KNOWN,
    EndsById,
    ParquetRows,
    feature_matrix,
    graph_of_tables,
    named_edges,
    with_values,
)
from .targets import asked, set_targets, target_of

FORMAT: Literal[2] = 2
DESCRIPTION = "description.json"
REMEDY = "bring it here, or make the folder anew with 'pdadmm-g shard'"

Array = NDArray[Any]


class _Written(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a description.json."""

    format: Literal[2]
    #: Shared by all shards that were written together.
    id: str

    @property
    def fingerprint(self) -> str:
        """Equal where this description is the same."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()

    @property
    def digest(self) -> str:
        """Equal for equal content in equal shards."""
        return msgspec.structs.replace(self, id="").fingerprint


class Description(_Written, frozen=True, kw_only=True):
    """What is known of a whole folder. The last entries are those of the graph of the same names."""

    nodes: Count
    features: Count
    #: One more than the largest label, or how many columns of them there are; 0 without labels.
    classes: Size
    #: How many nodes each shard has, in order.
    counts: Annotated[list[Count], msgspec.Meta(min_length=1)]
    #: Of each shard.
    digests: list[str]
    #: Pairs of different nodes that are joined, each counted once.
    edges: Size
    #: Edges as the source lists them.
    listed: Size
    directed: bool
    feature_names: tuple[str, ...] | None = None
    label_names: list[bool | int | float | str] | None = None
    target_kind: TargetKind | None = None
    structural: bool | None = None
    columns: tuple[Column, ...] | None = None
    notes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if sum(self.counts) != self.nodes or len(self.digests) != len(self.counts):
            raise ValueError("it does not say what its shards are")
        if self.feature_names is not None and not are_names(self.feature_names, self.features):
            raise ValueError("its feature_names are not a list of different names, one a column")

    @property
    def shards(self) -> int:
        """How many there are."""
        return len(self.counts)


class ShardDescription(_Written, frozen=True, kw_only=True):
    """What a shard says of itself."""

    shard: Size
    #: A hash of its arrays, and the type and shape of each.
    content: str
    arrays: dict[str, str]


def is_sharded(path: str | Path) -> bool:
    """Is it a folder of shards? One whose description is unreadable is too: its owner meant it to be."""
    return "\0" not in str(path) and (Path(path) / DESCRIPTION).is_file()


def shard_name(shard: int, shards: int) -> str:
    """The folder of a shard, which people count from one."""
    return f"shard-{shard + 1}-of-{shards}"


class ShardFolder:
    """A folder of shards that is a whole."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.whole = read_record(Description, self.path / DESCRIPTION, "the description", f"; {REMEDY}")

    def check_parts(self, parts: int) -> None:
        """Raise unless so many processes can have as many shards each."""
        if (number := self.whole.shards) % parts:
            deal = f"its {number} shards cannot be dealt to {parts} processes"
            raise InputError(f"{self.path}: {deal}: set shards to a number that divides {number}")

    def graph(self, line: Line) -> Graph:
        """This process's part of the graph: features and neighbours of its own nodes, all else of all nodes.

        Where a process of the line cannot read its part, all raise what is wrong with it.
        """
        self.check_parts(line.size)
        whole = self.whole
        parts = shares(whole.shards, line.size)
        counts = [sum(whole.counts[part.start : part.stop]) for part in parts]
        shards = agreed(line, lambda: [self._shard(number) for number in parts[line.rank]])
        own = shards[0]
        if len(shards) > 1:
            own = {name: np.concatenate([shard[name] for shard in shards]) for name in own}
        columns = own["columns"]
        starts = np.append(0, own["degrees"].cumsum()).astype(columns.dtype)
        data = Graph(
            x=torch.from_numpy(own["x"]),
            part=Part(sum(counts[: line.rank]), counts[line.rank], line),
            num_nodes=whole.nodes,
            neighbours=Neighbours(starts, columns, own.get("out"), own.get("into")),
            label_names=None if whole.label_names is None else np.array(whole.label_names),
            **{
                name: getattr(whole, name)
                for name in ("digest", "edges", "listed", "directed", "feature_names", *PLAIN)
            },
        )
        for name in ("y", *MASKS, "ids"):
            if name in own:
                rows = np.ascontiguousarray(own[name]).view(np.uint8).reshape(len(own[name]), -1)
                found = line.concat(torch.from_numpy(rows), counts).numpy().reshape(-1).view(own[name].dtype)
                found = found.reshape(whole.nodes, *own[name].shape[1:])
                found = np.char.decode(found, "utf-8", "replace") if found.dtype.kind == "S" else found
                data[name] = found if name == "ids" else torch.from_numpy(found)
        return data

    def _shard(self, number: int) -> dict[str, Array]:
        """The arrays of a shard, mapped from disk; what is computed with must not be of something else."""
        whole, folder = self.whole, self.path / shard_name(number, self.whole.shards)
        if not folder.is_dir():
            raise InputError(f"{folder}: is missing: {REMEDY}")
        own = read_record(ShardDescription, folder / DESCRIPTION, "the shard", f"; {REMEDY}")
        if (own.id, own.digest) != (whole.id, whole.digests[number]):
            raise InputError(f"{folder / DESCRIPTION}: is of another data set than {self.path / DESCRIPTION}: {REMEDY}")
        # Copied where it is written to, which nobody does: torch has no read-only tensors, and would say so.
        arrays = {name: _mapped(folder / f"{name}.npy", "c", f": {REMEDY}") for name in own.arrays}
        for name, array in arrays.items():
            if _kind(array) != own.arrays[name]:
                raise InputError(f"{folder / name}.npy: is {_kind(array)}, expected {own.arrays[name]}: {REMEDY}")
        degrees, columns = arrays["degrees"], arrays["columns"]
        if int(degrees.min()) < 0 or int(degrees.sum()) != len(columns):
            raise InputError(f"{folder / 'degrees.npy'}: does not fit columns.npy: damaged")
        if len(columns) and not 0 <= int(columns.min()) <= int(columns.max()) < whole.nodes:
            raise InputError(f"{folder / 'columns.npy'}: names a node outside 0..{whole.nodes - 1}: damaged")
        return arrays


#: Entries of a graph that are kept as they are.
PLAIN = ("target_kind", "structural", "columns", "notes")


def _mapped(path: Path, mode: Literal["r", "c"] = "r", remedy: str = "") -> Array:
    if not path.is_file():
        raise InputError(f"{path}: is missing{remedy}")
    with reading(path, "an array", f"damaged, or cut off{remedy}"):
        array: Array = np.lib.format.open_memmap(path, mode=mode)
    return array


def _kind(array: Array) -> str:
    return f"{array.dtype} {array.shape}"


# -------------------------------------------------------------------------------------------------- graphs in blocks

#: Edges, and bytes of features, that are read at a time; and rows of a table from which its columns are understood.
EDGES, BYTES, SAMPLE = 1 << 21, 1 << 27, 200_000


class Source(NamedTuple):
    """A graph that is read a block at a time."""

    nodes: int
    #: All but features and edges.
    data: Graph
    #: Given how many neighbours each node has, says in ``data`` what features are called, and reads those of the nodes
    #: from one to another as float32.
    features: Callable[[Array], Callable[[int, int], Array]]
    number_of_edges: int
    weighted: bool
    #: Blocks of so many edges at the most, after those with the first so many of all: nodes (2, edges), below zero
    #: where an edge is left out, and weights.
    edges: Callable[[int, int], Iterator[tuple[Array, Array | None]]]
    #: Changes with the content, as far as that can be told without reading it.
    mark: str


def open_source(
    name: str,
    root: str | Path | None = None,
    *,
    edges: str | None = None,
    target: TargetKind = "auto",
    columns: Mapping[str, str] | None = None,
    **naming: Any,
) -> Source:
    """The graph of that name: whatever ``load_dataset`` reads, by its arguments, or a folder of arrays or of tables."""
    path = Path(name)
    if not path.is_dir():
        from .datasets import load_dataset, require_edge_table

        data = load_dataset(name, root, edges=edges, target=target, columns=columns, **naming)
        require_edge_table(data, name)
        return graph_source(data)
    if edges is not None:
        raise InputError(f"{name}: has its edges with it: leave {edges} out")
    if (path / "x.npy").exists():
        return _array_source(path, target)
    if _parquet_files(path, "nodes"):
        return _table_source(path, target, columns, **naming)
    raise InputError(f"{path}: holds neither x.npy nor tables nodes*.parquet and edges*.parquet")


def graph_source(data: Graph) -> Source:
    """A graph in memory, prepared as it is for training: columns and nodes in the order of their names."""
    from .datasets import digest

    data = check_graph(with_values(data))
    data = reordered(data, id_order(data))
    x = data.x if data.x.layout == torch.strided else to_csc(data.x).tocsr()
    mark = repr([digest(data), *(data.get(name) for name in PLAIN)])
    return _in_blocks(x, data.edge_index, data.get("edge_weight"), data, mark)


def _array_source(folder: Path, target: TargetKind) -> Source:
    """A folder of ``x.npy``, ``edge_index.npy`` and, if there are any, weights, labels, masks and ids, mapped."""
    names = ("x", "edge_index", "edge_weight", "y", *MASKS, "ids")
    files = {name: folder / f"{name}.npy" for name in names}
    files = {name: path for name, path in files.items() if name == "edge_index" or path.exists()}
    given = {name: _mapped(path) for name, path in files.items()}
    x, ends, weights = given.pop("x"), given.pop("edge_index"), given.pop("edge_weight", None)
    if x.ndim != 2 or 0 in x.shape:
        raise InputError(f"{folder / 'x.npy'}: must be a matrix with at least one row and one column")
    if ends.ndim != 2 or 2 not in ends.shape:
        raise InputError(f"{folder / 'edge_index.npy'}: must have shape (2, edges) or (edges, 2)")
    ends = ends if len(ends) == 2 else ends.T
    if weights is not None and weights.shape != ends.shape[1:]:
        raise InputError(f"{folder / 'edge_weight.npy'}: has shape {weights.shape}, expected {ends.shape[1:]}")
    data = Graph(**{name: np.array(each) for name, each in given.items()})
    if data.y is not None:
        set_targets(data, data.y, f"{folder}: labels 'y'", target)
    data = check_nodes(asked(data, target), len(x), str(folder))
    mark = _mark([*files.values()], target)
    return _in_blocks(x, ends, weights, data, mark, f"{folder}/")


def _in_blocks(x: Any, ends: Any, weights: Any, data: Graph, mark: str, folder: str = "") -> Source:
    """The graph of a matrix of features, or one of scipy, and of pairs of nodes (2, edges) and their weights."""

    def rows(start: int, stop: int) -> Array:
        block = x[start:stop]
        return check_block(block.toarray() if hasattr(block, "toarray") else block, start, f"{folder}x.npy")

    def edges(size: int, skip: int) -> Iterator[tuple[Array, Array | None]]:
        for start in range(skip, ends.shape[1], size):
            own = slice(start, start + size)
            pairs = as_tensor(ends[:, own], f"{folder}edge_index.npy: must be whole numbers")
            pairs = check_edges(pairs, x.shape[0], f"{folder}edge_index.npy")
            given = None if weights is None else _weights(weights[own], f"{folder}edge_weight.npy", "edge", start)
            yield pairs.cpu().numpy(), given

    return Source(x.shape[0], data, lambda degrees: rows, ends.shape[1], weights is not None, edges, mark)


def _weights(given: Any, culprit: str, what: str, first: int) -> Array:
    """Those of a block of edges, counted from the ``first``."""
    weights = np.array(pd.to_numeric(pd.Series(given), errors="coerce"), dtype=np.float64)
    bad = np.flatnonzero(~(weights > 0) | (weights > LARGEST))
    if len(bad):
        has = f"but {what} {first + bad[0]} has {weights[bad[0]]:g}"
        raise InputError(f"{culprit} must be positive and finite numbers, {has}")
    return weights


def _parquet_files(folder: Path, kind: str) -> list[Path]:
    """``nodes*.parquet`` here, or all Parquet files of the folder ``nodes``; in the order of their names."""
    return sorted([*folder.glob(f"{kind}*.parquet"), *(folder / kind).glob("*.parquet")])


def _table_source(
    folder: Path, target: TargetKind, roles: Mapping[str, str] | None, *, labels: Sequence[str] | None = None,
    id_column: str | None = None, source_column: str | None = None, target_column: str | None = None,
    skip_unknown: bool = False,
) -> Source:  # fmt: skip
    """A folder of tables ``nodes*.parquet`` and ``edges*.parquet``, with the columns of every other table."""
    nodes, edges = (ParquetRows(_parquet_files(folder, kind), folder / kind) for kind in ("nodes", "edges"))
    labels, culprit = tuple(labels or ()), str(nodes.files[0])
    known = {*KNOWN, *labels, id_column}
    names = [name for name in nodes.names if name not in known]
    if not names:
        raise InputError(f"{culprit}: there are no features: a column 'x' of lists, or one for each")
    frame = nodes.frame([name for name in nodes.names if name in known], labels)
    data = graph_of_tables(frame, None, target, labels=labels, id_column=id_column, culprits=(culprit, ""))
    data, lookup = check_nodes(data, nodes.number, culprit), EndsById(data)
    # The names of the columns, as their values, tell which are meant.
    ends = (source_column, target_column)
    called = named_edges(pd.DataFrame([edges.names], columns=edges.names), ends, str(edges.files[0]))[0].iloc[0]
    called = called[[name for name in (*ENDS, "weight") if name in called]]

    def pairs(size: int, skip: int) -> Iterator[tuple[Array, Array | None]]:
        for path, first, table in edges.batches([*called], size):
            skip -= len(table)
            if skip < 0:
                own, given = table[[*called]].set_axis(called.index, axis=1), None
                if "weight" in own:
                    given = _weights(own["weight"].to_numpy(), f"{path}: column 'weight'", "row", first)
                yield lookup(own, str(path), first, skip_unknown=skip_unknown), given

    def features(degrees: Array) -> Callable[[int, int], Array]:
        columns: tuple[Column, ...] = ()
        head = next(nodes.batches(names, 1))[2]
        if "x" not in head or np.ndim(head["x"].iloc[0]) != 1:
            data.columns = columns = _columns(nodes, names, roles, degrees, values=target_of(data) == "regression")
            data.feature_names = feature_names(columns)

        def rows(start: int, stop: int) -> Array:
            table = pd.concat([block for _, block in nodes.between(start, stop, names)], ignore_index=True)
            if columns:
                table = _with_degrees(table, degrees[start:stop])[[column.name for column in columns]]
            x, _ = matrix_of(table, columns) if columns else feature_matrix(table, names, culprit)
            return check_block(x, start, culprit)

        return rows

    mark = _mark([*nodes.files, *edges.files], target, roles, labels, id_column, ends, skip_unknown)
    return Source(nodes.number, data, features, edges.number, "weight" in called, pairs, mark)


def _columns(
    nodes: ParquetRows, names: list[str], roles: Mapping[str, str] | None, degrees: Array, *, values: bool
) -> tuple[Column, ...]:
    """What the columns of a table mean, the number of neighbours among them, by evenly spaced rows."""
    step, place, blocks = -(-nodes.number // SAMPLE), 0, []
    for _, _, block in nodes.batches(names, SAMPLE):
        blocks.append(block.iloc[-place % step :: step])
        place += len(block)
    sample = _with_degrees(pd.concat(blocks, ignore_index=True), degrees[::step])
    columns = understood(sample, roles, str(nodes.files[0]))
    own = tuple(column for column in columns if column.name != DEGREE)
    if not standardized(own) or columns[-1].role == "ignore":
        columns = own
    return tuple(column.with_value(sample[column.name]) for column in columns) if values else columns


def _with_degrees(table: pd.DataFrame, degrees: Array) -> pd.DataFrame:
    return table.assign(**{DEGREE: table.get(DEGREE, degrees)})


def check_block(x: Any, start: int, culprit: str) -> Array:
    """Features of consecutive nodes from ``start`` on, as float32, or an :class:`InputError`."""
    given = as_tensor(x, f"{culprit}: features must be numbers")
    check_features(given, culprit, start=start)
    return given.float().cpu().contiguous().numpy()


def _mark(files: list[Path], *settings: Any) -> str:
    """Changes when one of the files does, or what is asked of them."""
    return repr([(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files] + [*settings])


# ------------------------------------------------------------------------------------------------------------ writing

JOURNAL, DEALT = "sharding.json", "edges.tmp"
#: Nodes whose edges are brought together at a time.
ROWS = 1 << 16
#: Told what is being done, how much of it is done and how much there is.
OnProgress = Callable[[str, int, int], None]


class Journal(msgspec.Struct):
    """How far the edges are dealt and sorted."""

    id: str
    #: Bytes in the file of each shard by then; what is beyond them was written in vain.
    sizes: list[Size]
    edges: Size = 0
    #: Is there an edge to a larger number, and one to a smaller?
    up: bool = False
    down: bool = False
    #: How many shards, and in these the largest weight from one node to another, and difference to that back.
    sorted: Size = 0
    largest: float = 0.0
    gap: float = 0.0

    @property
    def directed(self) -> bool:
        """As ``facts.are_directed`` has it, by the edges sorted so far."""
        return self.up and self.down and self.gap > 1e-6 * self.largest


def shard_graph(
    source: Source, shards: int, out: Path, *, overwrite: bool = False, on_progress: OnProgress | None = None
) -> Description:
    """Write the graph as so many shards into the folder ``out``, or go on with it; its description."""
    if shards > source.nodes:
        raise InputError(f"shards = {shards}, but there are {source.nodes} nodes: set shards to {source.nodes} at most")
    writer = _Writer(source, shards, out, on_progress or (lambda *_: None))
    if is_sharded(out) and not overwrite and (whole := ShardFolder(out).whole).id == writer.id:
        return whole
    with writing(out):
        writer.begin(overwrite=overwrite)
        writer.deal_edges()
        writer.sort_edges()
        return writer.finish()


class _Writer:
    journal: Journal

    def __init__(self, source: Source, shards: int, out: Path, on_progress: OnProgress) -> None:
        self.source, self.shards, self.out, self.on_progress = source, shards, out, on_progress
        self.starts = np.array([own.start for own in shares(source.nodes, shards)] + [source.nodes])
        self.id = hashlib.sha256(f"{FORMAT} {shards} {source.mark}".encode()).hexdigest()[:32]
        self.folders = [out / shard_name(shard, shards) for shard in range(shards)]

    def begin(self, *, overwrite: bool) -> None:
        """Go on from the journal; or begin a new one after what is there has been removed, if that may be."""
        with suppress(InputError):  # there is none that we can read
            self.journal = read_record(Journal, self.out / JOURNAL, "the journal")
            if self.journal.id == self.id:
                return
        if self.out.exists() and any(self.out.iterdir()) and not overwrite:
            raise InputError(f"{self.out}: holds something else; choose another --out, or add --overwrite")
        (self.out / DESCRIPTION).unlink(missing_ok=True)
        for folder in self.out.glob("shard-*-of-*"):
            shutil.rmtree(folder)
        self.out.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(self.id, [0] * self.shards)
        self._note()

    def _note(self) -> None:
        write_atomically(self.out / JOURNAL, msgspec.json.encode(self.journal))

    def deal_edges(self) -> None:
        """Write each end of each edge into the shard that it is in.

        It is the number 2 (row * nodes + column), and one more for an edge from the column to the row; and its weight.
        """
        journal, source, files = self.journal, self.source, []
        with ExitStack() as opened:
            for folder, size in zip(self.folders, journal.sizes, strict=True):
                folder.mkdir(exist_ok=True)
                files.append(opened.enter_context((folder / DEALT).open("ab")))
                files[-1].truncate(size)
            for ends, weights in source.edges(EDGES, journal.edges):
                kept = (ends >= 0).all(0) & (ends[0] != ends[1])
                apart = ends[:, kept]
                journal.up |= bool((apart[0] < apart[1]).any())
                journal.down |= bool((apart[0] > apart[1]).any())
                rows, columns = np.concatenate([apart, apart[::-1]], axis=1)
                owner = (np.searchsorted(self.starts, rows, side="right") - 1).astype(np.uint16)
                dealt = 2 * ((rows - self.starts[owner]) * source.nodes + columns)
                dealt[apart.shape[1] :] += 1
                if weights is not None:
                    dealt = np.stack([dealt, np.tile(weights[kept].view(np.int64), 2)], axis=1)
                bounds = np.bincount(owner, minlength=self.shards).cumsum()[:-1]
                for shard, part in enumerate(np.split(dealt[owner.argsort(kind="stable")], bounds)):
                    files[shard].write(part.tobytes())
                    _on_disk(files[shard])
                    journal.sizes[shard] += part.nbytes
                journal.edges += ends.shape[1]
                self._note()
                self.on_progress("edges", journal.edges, source.number_of_edges)

    def sort_edges(self) -> None:
        """The neighbours of the nodes of each shard."""
        journal = self.journal
        while journal.sorted < self.shards:
            degrees, columns, ways = self._neighbours(journal.sorted)
            self._save(journal.sorted, degrees=degrees, columns=columns)
            known = self.source.weighted or journal.directed
            if known:
                out, into = ways.astype(np.float64)
                self._save(journal.sorted, out=out, into=into)
            journal.largest = max(journal.largest, float(ways.max(initial=0)))
            journal.gap = max(journal.gap, float(abs(ways[0] - ways[1]).max(initial=0)))
            journal.sorted = journal.sorted + 1 if known or not journal.directed else 0  # once more, with directions
            self._note()
            self.on_progress("neighbours", journal.sorted, self.shards)

    def _neighbours(self, shard: int) -> list[Array]:
        """How many each node of a shard has, these, and what the edges to and from each of them weigh."""
        source, count = self.source, int(self.starts[shard + 1] - self.starts[shard])
        kind = np.int32 if max(source.nodes, 2 * source.number_of_edges) < 2**31 else np.int64
        dealt = np.fromfile(self.folders[shard] / DEALT, dtype=np.int64).reshape(-1, 1 + source.weighted)
        if source.weighted:
            dealt = dealt[np.lexsort(dealt.T[::-1])]  # positive numbers are in the order of their bits
        else:
            dealt.sort(axis=0)
        found = []
        for first in range(0, count, ROWS):
            rows = min(ROWS, count - first)
            start, stop = np.searchsorted(dealt[:, 0], 2 * source.nodes * np.array([first, first + rows]))
            ends, place = _unique(dealt[start:stop, 0])
            pairs, towards = _unique(ends >> 1)
            ways = np.zeros((2, len(pairs)), np.float64 if source.weighted else np.int8)
            ways[ends & 1, towards] = 1
            if source.weighted:  # added one by one, the smallest first, as summed() does
                ways[ends & 1, towards] = np.bincount(place, dealt[start:stop, 1].copy().view(np.float64))
            degrees = np.bincount(pairs // source.nodes - first, minlength=rows)
            found.append((degrees.astype(kind), (pairs % source.nodes).astype(kind), ways))
        return [np.concatenate(each, axis=-1) for each in zip(*found, strict=True)]

    def finish(self) -> Description:
        """Write what each node has, and the descriptions."""
        source, journal, data = self.source, self.journal, self.source.data
        degrees = np.concatenate([_mapped(folder / "degrees.npy") for folder in self.folders])
        rows, names, labels = source.features(degrees), data.get("feature_names"), data.get("label_names")
        order: Any = slice(None)
        if names is not None:
            order = sorted(range(len(names)), key=lambda place: natural(names[place]))
        whole = Description(
            format=FORMAT,
            id=self.id,
            nodes=source.nodes,
            features=rows(0, 1).shape[1],
            classes=0 if data.y is None else data.y.shape[1] if data.y.ndim == 2 else max(0, int(data.y.max()) + 1),
            counts=np.diff(self.starts).tolist(),
            digests=[""] * self.shards,
            edges=int(degrees.sum()) // 2,
            listed=source.number_of_edges,
            directed=journal.directed,
            feature_names=None if names is None else tuple(names[place] for place in order),
            label_names=None if labels is None else labels.tolist(),
            **{name: data.get(name) for name in PLAIN},
        )
        by_node = {name: data[name].cpu().numpy() for name in ("y", *MASKS) if data.get(name) is not None}
        if (ids := data.get("ids")) is not None:
            numbers = ids.dtype.kind in "iu" and int(ids.max()) < 2**63
            by_node["ids"] = (
                ids.astype(np.int64) if numbers else np.array([str(name).encode() for name in ids.tolist()])
            )
        for shard, folder in enumerate(self.folders):
            if not (folder / DESCRIPTION).exists():
                own = slice(*self.starts[shard : shard + 2].tolist())
                self._save(shard, **{name: array[own] for name, array in by_node.items()})
                shape, step = (own.stop - own.start, whole.features), max(1, BYTES // (4 * whole.features))
                x = np.lib.format.open_memmap(folder / "x.npy", mode="w+", dtype=np.float32, shape=shape)
                for start in range(own.start, own.stop, step):
                    block = rows(start, min(start + step, own.stop))
                    if block.shape[1] != whole.features:
                        what = f"have {block.shape[1]} features, those before {whole.features}"
                        raise InputError(f"nodes from {start} on {what}: give all as many")
                    x[start - own.start :][: len(block)] = block[:, order]
                x.flush()
                sha, arrays = hashlib.blake2b(digest_size=16), {}
                for path in sorted(folder.glob("*.npy")):
                    array = _mapped(path)
                    arrays[path.stem] = _kind(array)
                    sha.update(array.data)
                about = ShardDescription(format=FORMAT, id=self.id, shard=shard, content=sha.hexdigest(), arrays=arrays)
                write_atomically(folder / DESCRIPTION, msgspec.json.encode(about))
                self.on_progress("shards", shard + 1, self.shards)
            (folder / DEALT).unlink(missing_ok=True)
            whole.digests[shard] = read_record(ShardDescription, folder / DESCRIPTION, "the shard").digest
        write_atomically(self.out / DESCRIPTION, msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n")
        (self.out / JOURNAL).unlink(missing_ok=True)
        return whole

    def _save(self, shard: int, **arrays: Array) -> None:
        for name, array in arrays.items():
            with (self.folders[shard] / f"{name}.npy").open("wb") as file:
                np.save(file, array)
                _on_disk(file)


def _unique(numbers: Array) -> tuple[Array, Array]:
    """The different ones of numbers in order, and the place of each number among these."""
    new = np.diff(numbers, prepend=-1) > 0
    return numbers[new], new.cumsum() - 1


def _on_disk(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
