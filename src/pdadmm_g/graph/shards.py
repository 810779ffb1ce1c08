"""A graph in parts: a folder of shards, each with some consecutive nodes, of which a process reads only its own.

``description.json``               what all shards are together; it is written last, and makes the folder a whole
``shard-3-of-8/description.json``  the same id, and which nodes these are
``shard-3-of-8/x.npy``             their features; ``y.npy``, masks and ``ids.npy`` likewise where there are any
``shard-3-of-8/starts.npy``        and ``columns.npy`` and, where edges have weights or directions, ``out.npy`` and
                                   ``into.npy``: their neighbours, see :class:`~.parts.Neighbours`

Such a folder is made of a graph in memory, or of one that is read in blocks and may be larger: folders of arrays or of
Parquet tables. Edges are dealt to the shards of both ends, then sorted; then features are written. Labels, masks and
ids, a few numbers a node, are in memory, a block, and the edges of one shard. What is interrupted goes on: a journal
says how many edges are dealt and which are sorted, and a shard with a description is finished.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

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
from .examples import part_of
from .graph import MASKS, Graph, are_names, arranged, as_tensor, id_order, natural, reading, reordered
from .parts import Neighbours, Part
from .propagation import to_csc
from .tables import (
    DEGREE,
    ENDS,
    KNOWN,
    EndsById,
    Naming,
    ParquetRows,
    checked_weights,
    feature_matrix,
    graph_of_nodes,
    named_edges,
    named_nodes,
    row_name,
    with_values,
)
from .targets import asked, set_targets, target_of

FORMAT: Final = 2
DESCRIPTION = "description.json"
REMEDY = "; make it anew with 'pdadmm-g shard'"

Array = NDArray[Any]
#: The arrays of a shard beside x: its neighbours, and those with a row for each of its nodes.
Name = Literal["starts", "columns", "out", "into", "y", "train_mask", "val_mask", "test_mask", "ids"]
#: What an array holds, as numpy writes it; of a matrix "(3,)f8".
Kind = Annotated[str, msgspec.Meta(pattern=r"^(\([1-9]\d{0,8},\))?([bif][148]|S[1-9]\d{0,8})$")]


class Description(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a whole folder. The last entries are those of the graph of the same names."""

    format: Literal[2]
    #: Shared by all shards that were written together.
    id: str
    nodes: Count
    features: Count
    #: Pairs of different nodes that are joined, each counted once.
    edges: Size
    #: Edges as the source lists them.
    listed: Size
    directed: bool
    #: One more than the largest label, or how many columns of them there are; 0 without labels.
    classes: Size
    #: How many nodes each shard has, in order.
    counts: Annotated[list[Count], msgspec.Meta(min_length=1)]
    #: Of the content of each shard.
    digests: list[str]
    arrays: dict[Name, Kind]
    feature_names: list[str] | None = None
    label_names: list[bool | int | float | str] | None = None
    target_kind: TargetKind | None = None
    structural: bool | None = None
    columns: list[Column] | None = None
    notes: list[str] | None = None

    def __post_init__(self) -> None:
        if sum(self.counts) != self.nodes or len(self.digests) != len(self.counts):
            raise ValueError("it does not say what its shards are")
        if not {"starts", "columns"} <= self.arrays.keys():
            raise ValueError("it does not say what its arrays are")
        if self.feature_names is not None and not are_names(self.feature_names, self.features):
            raise ValueError("its feature_names are not a list of different names, one a column")

    @property
    def shards(self) -> int:
        """How many there are."""
        return len(self.counts)

    @property
    def digest(self) -> str:
        """Equal for equal content in equal shards."""
        return msgspec.structs.replace(self, id="").fingerprint

    @property
    def fingerprint(self) -> str:
        """Equal where this description is the same."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()

    @property
    def starts(self) -> list[int]:
        """The first node of each shard, and the number of all nodes."""
        return [0, *np.cumsum(self.counts).tolist()]


class ShardDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What a shard says of itself."""

    format: Literal[2]
    id: str
    shard: Size
    first: Size
    count: Count
    #: Neighbours of all its nodes together.
    entries: Size
    digest: str


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
        self.whole = read_record(Description, self.path / DESCRIPTION, "the description", REMEDY)
        # One may be missing as long as nobody reads it: each machine may have those of its own processes alone. But of
        # two sets in one folder nobody knows which is meant.
        expected = {shard_name(shard, self.whole.shards) for shard in range(self.whole.shards)}
        for name in sorted({path.name for path in self.path.glob("shard-*-of-*")} - expected):
            raise InputError(f"{self.path / name}: is none of the {self.whole.shards} shards here: remove it")

    def check_parts(self, parts: int) -> None:
        """Raise unless so many processes can have as many shards each."""
        number = self.whole.shards
        if number % parts:
            fitting = ", ".join(str(each) for each in range(1, number + 1) if number % each == 0)
            raise InputError(
                f"{self.path}: its {number} shards cannot be dealt to {parts} processes: set shards to {fitting}"
            )

    def graph(self, line: Line) -> Graph:
        """This process's part of the graph: features and neighbours of its own nodes, all else of all nodes.

        Where a process of the line cannot read its part, all raise what is wrong with it.
        """
        self.check_parts(line.size)
        whole, starts = self.whole, self.whole.starts
        parts = [part_of(whole.shards, place, line.size) for place in range(line.size)]
        counts = [starts[part.stop] - starts[part.start] for part in parts]
        own = agreed(line, lambda: self._part(parts[line.rank]))

        def of_all(name: Any) -> Any:
            if name not in own:
                return None
            kind = np.dtype(whole.arrays[name])
            rows = np.ascontiguousarray(own[name]).view(np.uint8).reshape(len(own[name]), -1)
            found = line.concat(torch.from_numpy(rows), counts).numpy().reshape(-1)
            return found.view(kind.base).reshape(whole.nodes, *kind.shape)

        by_node = {name: of_all(name) for name in ("y", *MASKS)}
        ids = of_all("ids")
        about = {name: getattr(whole, name) for name in ("directed", "edges", "listed", "target_kind", "structural")}
        lists = {name: getattr(whole, name) for name in ("feature_names", "columns", "notes")}
        return Graph(
            x=torch.from_numpy(own["x"]),
            part=Part(starts[parts[line.rank].start], counts[line.rank], line),
            num_nodes=whole.nodes,
            neighbours=Neighbours(own["starts"], own["columns"], own.get("out"), own.get("into")),
            ids=np.char.decode(ids, "utf-8", "replace") if ids is not None and ids.dtype.kind == "S" else ids,
            label_names=None if whole.label_names is None else np.array(whole.label_names),
            **{name: torch.from_numpy(found) for name, found in by_node.items() if found is not None},
            **{name: tuple(found) for name, found in lists.items() if found is not None},
            **about,
        )

    def _part(self, numbers: range) -> dict[str, Array]:
        """The arrays of these shards, one behind the other: in memory where there are several."""
        shards = [self._shard(number) for number in numbers]
        if len(shards) == 1:
            return shards[0]
        part = {name: np.concatenate([shard[name] for shard in shards]) for name in shards[0] if name != "starts"}
        before = np.cumsum([0, *(len(shard["columns"]) for shard in shards)]).tolist()
        starts = [shard["starts"][1:] + at for shard, at in zip(shards, before, strict=False)]
        return part | {"starts": np.concatenate([shards[0]["starts"][:1], *starts])}

    def _shard(self, number: int) -> dict[str, Array]:
        """The arrays of a shard, mapped from disk and checked: what is computed with must not be of something else."""
        whole, folder = self.whole, self.path / shard_name(number, self.whole.shards)
        if not folder.is_dir():
            raise InputError(f"{folder}: is missing: bring it here, or make the folder anew with 'pdadmm-g shard'")
        own = read_record(ShardDescription, folder / DESCRIPTION, "the shard", REMEDY)
        expected = (whole.id, number, whole.starts[number], whole.counts[number], whole.digests[number])
        if (own.id, own.shard, own.first, own.count, own.digest) != expected:
            other = f"is of another data set than {self.path / DESCRIPTION}: bring the one of this"
            raise InputError(f"{folder / DESCRIPTION}: {other}")
        arrays, rows = {}, {"starts": own.count + 1} | dict.fromkeys(("columns", "out", "into"), own.entries)
        kinds: dict[Any, str] = {"x": f"({whole.features},)f4", **whole.arrays}
        for name, written in kinds.items():
            path, kind = folder / f"{name}.npy", np.dtype(written)
            shape = (rows.get(name, own.count), *kind.shape)
            # Copied where it is written to, which nobody does: torch has no read-only tensors, and would say so.
            arrays[name] = _mapped(path, "c", ": bring it here, or make the folder anew")
            found = arrays[name].dtype, arrays[name].shape
            if found != (kind.base, shape):
                raise InputError(f"{path}: holds {found[0]} of shape {found[1]}, expected {kind.base} of {shape}")
        starts, columns = arrays["starts"], arrays["columns"]
        if starts[0] != 0 or starts[-1] != len(columns) or bool((np.diff(starts) < 0).any()):
            raise InputError(f"{folder / 'starts.npy'}: does not fit columns.npy: damaged")
        if len(columns) and not 0 <= int(columns.min()) <= int(columns.max()) < whole.nodes:
            raise InputError(f"{folder / 'columns.npy'}: names a node outside 0..{whole.nodes - 1}: damaged")
        return arrays


def _mapped(path: Path, mode: Literal["r", "c"] = "r", remedy: str = "") -> Array:
    if not path.is_file():
        raise InputError(f"{path}: is missing{remedy}")
    with reading(path, "an array", f"damaged, or cut off{remedy}"):
        array: Array = np.lib.format.open_memmap(path, mode=mode)
    return array


# -------------------------------------------------------------------------------------------------- graphs in blocks

#: Edges, and bytes of features, that are read at a time; and rows of a table from which its columns are understood.
EDGES, BYTES, SAMPLE = 1 << 21, 1 << 27, 200_000


class Features(NamedTuple):
    """Features that are read a block at a time."""

    width: int
    #: Those of the nodes from one to another, float32, checked.
    rows: Callable[[int, int], Array]
    names: tuple[str, ...] | None = None
    columns: tuple[Column, ...] | None = None


class Source(NamedTuple):
    """A graph that is read a block at a time."""

    nodes: int
    #: All but features and edges.
    data: Graph
    #: Given how many neighbours each node has, which may be one of them.
    features: Callable[[Array], Features]
    number_of_edges: int
    weighted: bool
    #: Blocks of so many edges at the most, after the first so many of all: nodes (2, edges), below zero where the edge
    #: is left out, and weights.
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
        return _table_source(path, target, columns, Naming(**naming | {"labels": tuple(naming.get("labels") or ())}))
    raise InputError(f"{path}: holds neither x.npy nor tables nodes*.parquet and edges*.parquet")


def graph_source(data: Graph) -> Source:
    """A graph in memory, prepared as it is for training: columns and nodes in the order of their names."""
    from .datasets import digest

    data = check_graph(with_values(data))
    names = data.get("feature_names")
    data = arranged(data, None if names is None else sorted(names, key=natural))
    data = reordered(data, id_order(data))
    x = data.x if data.x.layout == torch.strided else to_csc(data.x).tocsr()
    mark = repr([digest(data), *(data.get(name) for name in ("target_kind", "structural", "columns", "notes"))])
    return _in_blocks(x, data.edge_index, data.get("edge_weight"), data, mark)


def _array_source(folder: Path, target: TargetKind) -> Source:
    """A folder of ``x.npy``, ``edge_index.npy`` and, if there are any, weights, labels, masks and ids, mapped."""
    names = ["x", "edge_index", "edge_weight", "y", *MASKS, "ids"]
    names = [name for name in names if name in names[:2] or (folder / f"{name}.npy").exists()]
    given = {name: _mapped(folder / f"{name}.npy") for name in names}
    x, ends, weights = given.pop("x"), given.pop("edge_index"), given.pop("edge_weight", None)
    if x.ndim != 2 or 0 in x.shape:
        raise InputError(f"{folder / 'x.npy'}: must be a matrix with at least one row and one column")
    if ends.ndim != 2 or 2 not in ends.shape:
        raise InputError(f"{folder / 'edge_index.npy'}: must have shape (2, edges) or (edges, 2)")
    ends = ends if len(ends) == 2 else ends.T
    if weights is not None and weights.shape != ends.shape[1:]:
        raise InputError(f"{folder / 'edge_weight.npy'}: has shape {weights.shape}, expected {ends.shape[1:]}")
    data = Graph(**{name: np.array(each) for name, each in given.items() if name != "y"})
    if "y" in given:
        set_targets(data, np.array(given["y"]), f"{folder}: labels 'y'", target)
    data = check_nodes(asked(data, target), len(x), str(folder))
    mark = _mark([folder / f"{name}.npy" for name in names], target)
    return _in_blocks(x, ends, weights, data, mark, f"{folder}/")


def _in_blocks(x: Any, ends: Any, weights: Any, data: Graph, mark: str, folder: str = "") -> Source:
    """The graph of a matrix of features, or one of scipy, and of pairs of nodes (2, edges) and their weights."""

    def rows(start: int, stop: int) -> Array:
        block = x[start:stop]
        return check_block(block.toarray() if hasattr(block, "toarray") else block, start, f"{folder}x.npy")

    def edges(size: int, skip: int) -> Iterator[tuple[Array, Array | None]]:
        for start in range(skip, ends.shape[1], size):
            block = as_tensor(ends[:, start : start + size], f"{folder}edge_index.npy: must be whole numbers")
            own = None if weights is None else np.array(weights[start : start + size])
            yield (
                check_edges(block, x.shape[0], f"{folder}edge_index.npy").cpu().numpy(),
                own if own is None else checked_weights(own, f"{folder}edge_weight.npy", lambda edge: f"edge {edge}"),
            )

    features = Features(x.shape[1], rows, data.get("feature_names"), data.get("columns"))
    return Source(x.shape[0], data, lambda degrees: features, ends.shape[1], weights is not None, edges, mark)


def _parquet_files(folder: Path, kind: str) -> list[Path]:
    """``nodes*.parquet`` here, or all Parquet files of the folder ``nodes``; in the order of their names."""
    return sorted([*folder.glob(f"{kind}*.parquet"), *(folder / kind).glob("*.parquet")])


def _table_source(folder: Path, target: TargetKind, roles: Mapping[str, str] | None, naming: Naming) -> Source:
    """A folder of tables ``nodes*.parquet`` and ``edges*.parquet``, with the columns of every other table."""
    nodes, edges = (ParquetRows(_parquet_files(folder, kind), folder / kind) for kind in ("nodes", "edges"))
    culprit, known = str(nodes.files[0]), (*KNOWN, *naming.labels, naming.id_column)
    names = [name for name in nodes.names if name not in known]
    if not names:
        raise InputError(f"{culprit}: there are no features: a column 'x' of lists, or one for each")
    frame = nodes.frame([name for name in nodes.names if name in known], naming.labels)
    data = graph_of_nodes(named_nodes(frame, naming, None, culprit)[0], target, naming.labels, culprit)
    data, lookup = check_nodes(data, nodes.number, culprit), EndsById(data)
    # The names of the columns as their values, to be told which of them are meant.
    called, _ = named_edges(pd.DataFrame([edges.names], columns=edges.names), naming, str(edges.files[0]))
    called = called[[name for name in (*ENDS, "weight") if name in called]]

    def pairs(size: int, skip: int) -> Iterator[tuple[Array, Array | None]]:
        for path, first, table in edges.batches([*called.iloc[0]], size):
            done = min(skip, len(table))
            skip -= done
            if done < len(table):
                own = table[[*called.iloc[0]]].set_axis(called.columns, axis=1)[done:].reset_index(drop=True)
                ends = lookup(own, str(path), first + done, skip_unknown=naming.skip_unknown)
                yield ends, _weights(own, str(path), first + done) if "weight" in own else None

    def features(degrees: Array) -> Features:
        head = next(nodes.batches(names, 1))[2]
        if "x" in head and np.ndim(head["x"].iloc[0]) == 1:
            columns, titles, places = None, None, slice(None)
            width = feature_matrix(head, names, culprit)[0].shape[1]
        else:
            columns = _columns(nodes, names, roles, degrees, culprit, values=target_of(data) == "regression")
            titles = feature_names(columns)
            places, width = sorted(range(len(titles)), key=lambda place: natural(titles[place])), len(titles)
            titles = tuple(titles[place] for place in places)

        def rows(start: int, stop: int) -> Array:
            found, place = [], start
            for path, table in nodes.between(start, stop, names):
                if columns is None:
                    found.append(feature_matrix(table, names, str(path))[0])
                else:
                    if any(column.name == DEGREE for column in columns):
                        table = table.assign(**{DEGREE: degrees[place : place + len(table)]})
                    found.append(matrix_of(table, columns)[0][:, places])
                place += len(table)
            if {block.shape[1] for block in found} != {width}:
                raise InputError(f"{culprit}: the lists of column 'x' differ in length")
            return check_block(np.concatenate(found), start, culprit)

        return Features(width, rows, titles, columns)

    mark = _mark([*nodes.files, *edges.files], target, roles, naming)
    return Source(nodes.number, data, features, edges.number, "weight" in called, pairs, mark)


def _weights(edges: pd.DataFrame, culprit: str, first: int) -> Array:
    """The weights of a block of edges, the first of which is row ``first`` of its table."""
    return checked_weights(edges["weight"].to_numpy(), f"{culprit}: column 'weight'", lambda row: row_name(first + row))


def _columns(
    nodes: ParquetRows, names: list[str], roles: Mapping[str, str] | None, degrees: Array, culprit: str, values: bool
) -> tuple[Column, ...]:
    """What the columns of a table mean, and the number of neighbours, by evenly spaced rows."""
    step, place, blocks = -(-nodes.number // SAMPLE), 0, []
    for _, _, block in nodes.batches(names, SAMPLE):
        blocks.append(block.iloc[-place % step :: step])
        place += len(block)
    sample = pd.concat(blocks, ignore_index=True)
    roles = dict(roles or {})
    degree = {DEGREE: roles.pop(DEGREE)} if DEGREE in roles else None
    columns = understood(sample, roles, culprit)
    if standardized(columns) and DEGREE not in feature_names(columns):
        sample = sample.assign(**{DEGREE: degrees[::step]})
        own = understood(sample[[DEGREE]], degree)[0]
        columns += (own,) * (own.role != "ignore" or degree is not None)
    return tuple(column.with_value(sample[column.name]) for column in columns) if values else columns


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


class Sorted(msgspec.Struct):
    """What is known of the edges of a shard once they are sorted."""

    #: Neighbours of all nodes together.
    entries: Size
    digest: str
    #: The largest weight of all edges from one node to another, and difference to that of those back.
    largest: float
    gap: float


class Journal(msgspec.Struct):
    """How far the edges are dealt and sorted."""

    id: str
    #: Bytes in the file of each shard by then; what is beyond them was written in vain.
    sizes: list[Size]
    edges: Size = 0
    #: Is there an edge to a larger number, and one to a smaller?
    up: bool = False
    down: bool = False
    #: By shard.
    sorted: list[Sorted] = []


def shard_graph(
    source: Source,
    shards: int,
    out: Path,
    *,
    overwrite: bool = False,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> Description:
    """Write the graph as so many shards into the folder ``out``, or go on with it; its description.

    ``on_progress`` is told what is being done, how much of it is done and how much there is.
    """
    if shards > source.nodes:
        raise InputError(f"shards = {shards}, but there are {source.nodes} nodes: set shards to {source.nodes} at most")
    return _Writer(source, shards, out, on_progress or (lambda *_: None)).run(overwrite=overwrite)


class _Writer:
    def __init__(self, source: Source, shards: int, out: Path, on_progress: Callable[[str, int, int], None]) -> None:
        self.source, self.shards, self.out, self.on_progress = source, shards, out, on_progress
        self.starts = np.array([part_of(source.nodes, shard, shards).start for shard in range(shards)] + [source.nodes])
        self.id = hashlib.sha256(f"{FORMAT} {shards} {source.mark}".encode()).hexdigest()[:32]
        self.folders = [out / shard_name(shard, shards) for shard in range(shards)]
        #: Of node numbers and of places in the rows, those listed both ways included.
        self.index = np.int32 if max(source.nodes, 2 * source.number_of_edges) < 2**31 else np.int64

    def run(self, *, overwrite: bool) -> Description:
        if (self.out / DESCRIPTION).exists() and not overwrite:
            whole = ShardFolder(self.out).whole
            if whole.id == self.id:
                return whole
            raise InputError(f"{self.out}: already holds other shards; choose another --out or add --overwrite")
        with writing(self.out):
            self.journal = self._begin(overwrite=overwrite)
            self._deal_edges()
            self._sort_edges()
            whole = self._write_nodes()
            write_atomically(self.out / DESCRIPTION, msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n")
            (self.out / JOURNAL).unlink(missing_ok=True)
        return whole

    def _begin(self, *, overwrite: bool) -> Journal:
        """The journal to go on from; a new one after what is there has been removed, if that may be."""
        file = self.out / JOURNAL
        if file.exists():
            try:
                journal = read_record(Journal, file, "the journal")
                if journal.id == self.id and len(journal.sizes) == self.shards:
                    return journal
            except InputError:
                if not overwrite:
                    raise
            if not overwrite:
                raise InputError(f"{self.out}: holds unfinished shards of other data; add --overwrite")
        elif self.out.exists() and any(self.out.iterdir()) and not overwrite:
            raise InputError(f"{self.out}: is a folder with something else in it; choose another --out")
        (self.out / DESCRIPTION).unlink(missing_ok=True)
        for folder in self.out.glob("shard-*-of-*"):
            shutil.rmtree(folder)
        for folder in self.folders:
            folder.mkdir(parents=True)
            (folder / DEALT).touch()
        journal = Journal(self.id, [0] * self.shards)
        write_atomically(file, msgspec.json.encode(journal))
        return journal

    def _note(self, what: str, done: int, total: int) -> None:
        write_atomically(self.out / JOURNAL, msgspec.json.encode(self.journal))
        self.on_progress(what, done, total)

    def _deal_edges(self) -> None:
        """Each end of each edge to the shard that it is in: the number 2 (row * nodes + column), and one for an edge
        that comes from the column; and behind each its weight, if it has one."""
        journal, total, nodes = self.journal, self.source.number_of_edges, self.source.nodes
        if journal.edges == total:
            return
        with ExitStack() as opened:
            files = [opened.enter_context((folder / DEALT).open("ab")) for folder in self.folders]
            for file, size in zip(files, journal.sizes, strict=True):
                file.truncate(size)
            for ends, weights in self.source.edges(EDGES, journal.edges):
                kept = (ends >= 0).all(0) & (ends[0] != ends[1])
                apart = ends[:, kept]
                journal.up |= bool((apart[0] < apart[1]).any())
                journal.down |= bool((apart[0] > apart[1]).any())
                rows, columns = np.concatenate([apart, apart[::-1]], axis=1)
                owner = (np.searchsorted(self.starts, rows, side="right") - 1).astype(np.uint16)
                dealt = 2 * ((rows - self.starts[owner]) * nodes + columns)[:, None]
                dealt[apart.shape[1] :] += 1
                if weights is not None:
                    dealt = np.concatenate([dealt, np.tile(weights[kept].view(np.int64), 2)[:, None]], axis=1)
                bounds = np.bincount(owner, minlength=self.shards).cumsum()[:-1]
                for shard, part in enumerate(np.split(dealt[owner.argsort(kind="stable")], bounds)):
                    files[shard].write(part.tobytes())
                    files[shard].flush()
                    os.fsync(files[shard].fileno())
                    journal.sizes[shard] += part.nbytes
                journal.edges += ends.shape[1]
                self._note("edges", journal.edges, total)

    def _sort_edges(self) -> None:
        """The neighbours of the nodes of each shard."""
        for shard in range(len(self.journal.sorted), self.shards):
            found, about = self._neighbours(shard)
            self._save(shard, {name: rows for name, rows in found._asdict().items() if rows is not None})
            self.journal.sorted.append(about)
            self._note("neighbours", shard + 1, self.shards)

    def _neighbours(self, shard: int, *, counted: bool = False) -> tuple[Neighbours, Sorted]:
        """Those of a shard; also how many edges there are each way, where they have no weights but are ``counted``."""
        weighted, nodes = self.source.weighted, self.source.nodes
        dealt = np.fromfile(self.folders[shard] / DEALT, dtype=np.int64).reshape(-1, 1 + weighted)
        if weighted:
            dealt = dealt[np.lexsort((dealt[:, 1].view(np.float64), dealt[:, 0]))]
        else:
            dealt.sort(axis=0)
        digest = hashlib.blake2b(dealt.data, digest_size=16).hexdigest()
        keys, into = dealt[:, 0] >> 1, (dealt[:, 0] & 1).astype(bool)
        firsts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else keys
        entries, sizes = keys[firsts], np.diff(firsts, append=len(keys))
        if weighted:
            # Added one by one, the smallest first, as summed() does.
            place, weights = np.repeat(np.arange(len(entries)), sizes), np.ascontiguousarray(dealt[:, 1]).view(float)
            ways: list[Any] = [
                np.bincount(place[own], weights[own], len(entries)).astype(float) for own in (~into, into)
            ]
            out, back = ways
        else:
            backward = np.add.reduceat(into, firsts, dtype=np.int32) if len(firsts) else np.empty(0)
            out, back = (sizes > backward).astype(np.int8), (backward > 0).astype(np.int8)
            ways = [out.astype(float), back.astype(float)] if counted else []
        starts = np.searchsorted(entries, np.arange(self.starts[shard + 1] - self.starts[shard] + 1) * nodes)
        entries %= nodes
        gap, largest = float(abs(out - back).max(initial=0)), float(out.max(initial=0))
        found = Neighbours(starts.astype(self.index), entries.astype(self.index), *ways)
        return found, Sorted(len(entries), digest, largest, gap)

    def _write_nodes(self) -> Description:
        """All the rest of each shard; the description of the whole."""
        source, journal, data = self.source, self.journal, self.source.data
        largest, gap = (max(getattr(each, name) for each in journal.sorted) for name in ("largest", "gap"))
        directed = journal.up and journal.down and gap > 1e-6 * largest  # as facts.are_directed
        features = source.features(np.concatenate([np.diff(_mapped(each / "starts.npy")) for each in self.folders]))
        by_node: dict[Name, Array] = {name: data[name].cpu().numpy() for name in ("y", *MASKS) if name in data}  # type: ignore[misc]
        if (ids := data.get("ids")) is not None:
            numbers = ids.dtype.kind in "iu" and int(ids.max()) < 2**63
            by_node["ids"] = ids.astype(int) if numbers else np.array([str(name).encode() for name in ids.tolist()])
        kinds = {
            name: "".join(f"({width},)" for width in array.shape[1:]) + array.dtype.str[1:]
            for name, array in by_node.items()
        }
        kinds |= dict.fromkeys(("starts", "columns"), np.dtype(self.index).str[1:])
        kinds |= dict.fromkeys(("out", "into"), "f8") if directed or source.weighted else {}
        digests = []
        for shard, folder in enumerate(self.folders):
            if not (folder / DESCRIPTION).exists():
                first, last = self.starts[shard : shard + 2].tolist()
                if directed and not source.weighted:
                    found, _ = self._neighbours(shard, counted=True)
                    self._save(shard, {"out": found.out, "into": found.into})
                own = {name: array[first:last] for name, array in by_node.items()}
                self._save(shard, own)
                sha = hashlib.blake2b(journal.sorted[shard].digest.encode(), digest_size=16)
                for array in own.values():
                    sha.update(np.ascontiguousarray(array).view(np.uint8).data)
                self._write_features(folder / "x.npy", features, first, last, sha)
                description = ShardDescription(
                    format=FORMAT, id=self.id, shard=shard, first=first, count=last - first,
                    entries=journal.sorted[shard].entries, digest=sha.hexdigest(),
                )  # fmt: skip
                write_atomically(folder / DESCRIPTION, msgspec.json.encode(description))
                self.on_progress("shards", shard + 1, self.shards)
            digests.append(read_record(ShardDescription, folder / DESCRIPTION, "the shard", REMEDY).digest)
            (folder / DEALT).unlink(missing_ok=True)
        y, names, notes = data.y, data.get("label_names"), data.get("notes")
        return Description(
            format=FORMAT, id=self.id, nodes=source.nodes, features=features.width, directed=directed,
            edges=sum(each.entries for each in journal.sorted) // 2, listed=source.number_of_edges,
            counts=np.diff(self.starts).tolist(),
            classes=0 if y is None else y.shape[1] if y.ndim == 2 else max(0, int(y.max()) + 1),
            digests=digests, arrays=kinds, target_kind=data.get("target_kind"), structural=data.get("structural"),
            feature_names=None if features.names is None else [*features.names],
            label_names=None if names is None else names.tolist(),
            columns=None if features.columns is None else [*features.columns],
            notes=None if notes is None else [*notes],
        )  # fmt: skip

    def _save(self, shard: int, arrays: Mapping[Any, Any]) -> None:
        for name, array in arrays.items():
            with (self.folders[shard] / f"{name}.npy").open("wb") as file:
                np.save(file, array)
                file.flush()
                os.fsync(file.fileno())

    def _write_features(self, path: Path, features: Features, first: int, last: int, sha: Any) -> None:
        out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(last - first, features.width))
        step = max(1, BYTES // (4 * features.width))
        for start in range(first, last, step):
            block = features.rows(start, min(start + step, last))
            out[start - first : start - first + len(block)] = block
            sha.update(block.data)
        out.flush()
