"""From a graph that is read in blocks to a folder of shards: edges are dealt to the shards of both ends, then sorted.

What is read may be larger than memory: folders of arrays or of Parquet tables. Labels, masks and ids, a number a node,
are in memory, a block, and the edges of one shard. What is interrupted goes on: a journal says how many edges are
dealt, and a shard with a description is finished.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from ..config import NODE_TABLES
from ..errors import InputError
from ..utils import Size, read_record, write_atomically, writing
from .checks import check_edges, check_features, check_nodes
from .examples import part_of
from .graph import MASKS, Graph, as_tensor
from .propagation import to_csc
from .shards import BY_NODE, DESCRIPTION, FORMAT, Description, ShardDescription, ShardFolder, mapped, shard_name
from .targets import has_columns

Array = NDArray[Any]
#: Blocks of so many edges at the most, after the first so many of all: sources and targets, node numbers.
Edges = Callable[[int, int], Iterator[tuple[Array, Array]]]
JOURNAL, DEALT = "sharding.json", "edges.tmp"
#: Edges, and bytes of features, that are read at a time.
EDGES, BYTES = 1 << 21, 1 << 27
#: Told what is being done, how much of it is done and how much there is.
OnProgress = Callable[[str, int, int], None]
NO_WEIGHTS = "weights of edges are not for a folder of shards: leave them out, or train on the one file"


# --------------------------------------------------------------------------------------------------- graphs in blocks


@dataclass
class GraphInBlocks:
    """A graph that is read a block at a time."""

    nodes: int
    features: int
    #: The features of the nodes from one to another, float32, checked.
    x: Callable[[int, int], Array]
    number_of_edges: int
    edges: Edges
    #: What has a row a node beside the features: 'y', masks, 'id'.
    columns: dict[str, Array]
    #: Changes with the content, as far as that can be told without reading it.
    mark: str
    feature_names: tuple[str, ...] | None = None


def open_source(name: str, root: str | Path | None = None) -> GraphInBlocks:
    """The graph of that name: a data set, a file, or a folder of arrays or of Parquet tables."""
    path = Path(name)
    if not path.is_dir():
        from .datasets import digest, load_dataset

        data = load_dataset(name, root)
        if data.edge_index is None:
            both = "put nodes.parquet and edges.parquet into a folder, and name that"
            missing = both if path.suffix in NODE_TABLES else "'edge_index' is missing"
            raise InputError(f"{name}: there are no edges: {missing}")
        return graph_source(data, digest(data))
    if (path / "x.npy").exists():
        return _array_source(path)
    if _parquet_files(path, "nodes"):
        return _table_source(path)
    raise InputError(f"{path}: holds neither x.npy nor tables nodes*.parquet and edges*.parquet")


def graph_source(data: Graph, mark: str) -> GraphInBlocks:
    """A graph that is in memory, already through :func:`~pdadmm_g.data.checks.check_graph`."""
    if data.get("edge_weight") is not None:
        raise InputError(NO_WEIGHTS)
    x = data.x.cpu().float().numpy() if data.x.layout == torch.strided else to_csc(data.x).tocsr()
    return _in_blocks(x, data.edge_index.cpu().numpy(), data, mark)


def _array_source(folder: Path) -> GraphInBlocks:
    """A folder of ``x.npy``, ``edge_index.npy`` and, if there are any, ``y.npy`` and masks, mapped from disk."""
    if (folder / "edge_weight.npy").exists():
        raise InputError(f"{folder / 'edge_weight.npy'}: {NO_WEIGHTS}")
    present = ["x", "edge_index", *(name for name in ("y", *MASKS) if (folder / f"{name}.npy").exists())]
    x, ends, *others = (mapped(folder / f"{name}.npy") for name in present)
    if x.ndim != 2 or 0 in x.shape:
        raise InputError(f"{folder / 'x.npy'}: must be a matrix with at least one row and one column")
    if ends.ndim != 2 or 2 not in ends.shape:
        raise InputError(f"{folder / 'edge_index.npy'}: must have shape (2, edges) or (edges, 2)")
    known = Graph(**{name: np.array(each) for name, each in zip(present[2:], others, strict=True)})
    known = check_nodes(known, len(x), str(folder))
    mark = _mark([folder / f"{name}.npy" for name in present])
    return _in_blocks(x, ends if len(ends) == 2 else ends.T, known, mark, f"{folder}/")


def _in_blocks(x: Any, ends: Array, data: Graph, mark: str, folder: str = "") -> GraphInBlocks:
    """The graph of a matrix of features, or one of scipy, and of pairs of nodes (2, edges)."""

    def rows(start: int, stop: int) -> Array:
        block = x[start:stop]
        return check_block(block.toarray() if hasattr(block, "toarray") else block, start, f"{folder}x.npy")

    def edges(size: int, skip: int) -> Iterator[tuple[Array, Array]]:
        for start in range(skip, ends.shape[1], size):
            block = as_tensor(ends[:, start : start + size], f"{folder}edge_index.npy: must be whole numbers")
            sources, targets = check_edges(block, x.shape[0], f"{folder}edge_index.npy").numpy()
            yield sources, targets

    nodes, features = x.shape
    names = data.get("feature_names")
    return GraphInBlocks(nodes, features, rows, ends.shape[1], edges, _columns(data), mark, names)


def _parquet_files(folder: Path, kind: str) -> list[Path]:
    """``nodes*.parquet`` here, or all Parquet files of the folder ``nodes``; in the order of their names."""
    return sorted([*folder.glob(f"{kind}*.parquet"), *(folder / kind).glob("*.parquet")])


def _table_source(folder: Path) -> GraphInBlocks:
    """A folder of tables ``nodes*.parquet`` and ``edges*.parquet``, with the columns of every other table."""
    from .tables import ENDS, KNOWN, EndsById, ParquetRows, feature_matrix, graph_of_nodes

    nodes, edges = (ParquetRows(_parquet_files(folder, kind), folder / kind) for kind in ("nodes", "edges"))
    if "weight" in edges.names:
        raise InputError(f"{edges.files[0]}: column 'weight': {NO_WEIGHTS}")
    features = [name for name in nodes.names if name not in KNOWN]
    if not features:
        raise InputError(f"{nodes.files[0]}: there are no features: a column 'x' of lists, or one for each")
    culprit = str(nodes.files[0])
    data = graph_of_nodes(nodes.frame([name for name in nodes.names if name in KNOWN]), culprit=culprit)
    lookup = EndsById(data)

    def block(start: int, stop: int) -> tuple[Array, tuple[str, ...] | None]:
        found = [feature_matrix(frame, features, str(path)) for path, frame in nodes.between(start, stop, features)]
        if len({matrix.shape[1] for matrix, _ in found}) > 1:
            raise InputError(f"{culprit}: the lists of column 'x' differ in length")
        return check_block(np.concatenate([matrix for matrix, _ in found]), start, culprit), found[0][1]

    def pairs(size: int, skip: int) -> Iterator[tuple[Array, Array]]:
        for path, first, frame in edges.batches([*ENDS], size):
            done = min(skip, len(frame))
            skip -= done
            if done < len(frame):
                sources, targets = lookup(frame[done:], str(path), first + done)
                yield sources, targets

    first, names = block(0, 1)
    known = check_nodes(data, nodes.number, culprit)
    mark = _mark([*nodes.files, *edges.files])
    return GraphInBlocks(
        nodes.number, first.shape[1], lambda start, stop: block(start, stop)[0], edges.number, pairs,
        _columns(known), mark, names,
    )  # fmt: skip


def _columns(data: Graph) -> dict[str, Array]:
    """What has a row a node, of a checked graph."""
    if data.get("label_names") is not None and not has_columns(data):
        raise InputError(
            "labels that are no whole numbers are not for a folder of shards: leave them out, or train on the one file"
        )
    if has_columns(data):
        raise InputError("several labels or numbers a node are not for a folder of shards: train on the one file")
    if any(data[mask].ndim > 1 for mask in MASKS if mask in data):
        raise InputError("masks of several splits are not for a folder of shards: give one, or train on the one file")
    columns: dict[str, Array] = {name: data[name].cpu().numpy() for name in ("y", *MASKS) if data.get(name) is not None}
    ids = data.get("ids")
    if ids is not None:
        whole = ids.dtype.kind in "iu"
        columns["id"] = ids.astype(np.int64) if whole else np.array([str(name).encode() for name in ids.tolist()])
    return columns


def check_block(x: Array, start: int, culprit: str) -> Array:
    """Features of consecutive nodes from ``start`` on, as float32, or an :class:`InputError`."""
    given = as_tensor(x, f"{culprit}: features must be numbers")
    check_features(given, culprit, start=start)
    return given.float().contiguous().numpy()


def _mark(files: list[Path]) -> str:
    """Changes when one of the files does."""
    stats = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr(stats).encode()).hexdigest()


# ------------------------------------------------------------------------------------------------------------ writing


class Journal(msgspec.Struct):
    """How far the edges are dealt."""

    id: str
    edges: Size
    #: Bytes in the file of each shard by then; what is beyond them was written in vain.
    sizes: list[Size]

    def write(self, folder: Path) -> None:
        """Replace the one before."""
        write_atomically(folder / JOURNAL, msgspec.json.encode(self) + b"\n")


def shard_graph(
    source: GraphInBlocks, shards: int, out: Path, *, overwrite: bool = False, on_progress: OnProgress | None = None
) -> Description:
    """Write the graph as so many shards into the folder ``out``, or go on with it; its description."""
    if shards > source.nodes:
        raise InputError(f"shards = {shards}, but there are {source.nodes} nodes: set shards to {source.nodes} at most")
    return _Writer(source, shards, out, on_progress or (lambda *_: None)).run(overwrite=overwrite)


class _Writer:
    def __init__(self, source: GraphInBlocks, shards: int, out: Path, on_progress: OnProgress) -> None:
        self.source, self.shards, self.out, self.on_progress = source, shards, out, on_progress
        self.starts = np.array([part_of(source.nodes, shard, shards).start for shard in range(shards)] + [source.nodes])
        self.id = hashlib.sha256(f"{FORMAT} {shards} {source.mark}".encode()).hexdigest()[:32]
        self.folders = [out / shard_name(shard, shards) for shard in range(shards)]

    def run(self, *, overwrite: bool) -> Description:
        if (self.out / DESCRIPTION).exists() and not overwrite:
            whole = ShardFolder(self.out).whole
            if whole.id == self.id:
                return whole
            raise InputError(f"{self.out}: already holds other shards; choose another --out or add --overwrite")
        with writing(self.out):
            sizes = self._deal_edges(self._begin(overwrite=overwrite))
            owns = [self._finished(shard) or self._write_shard(shard, sizes[shard]) for shard in range(self.shards)]
        names = self.source.feature_names
        whole = Description(
            format=FORMAT,
            id=self.id,
            nodes=self.source.nodes,
            features=self.source.features,
            edges=sum(own.entries for own in owns) // 2,
            counts=[own.count for own in owns],
            arrays=owns[0].arrays,
            classes=max(own.classes for own in owns),
            digests=[own.digest for own in owns],
            feature_names=None if names is None else list(names),
        )
        whole.write(self.out)
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
        journal = Journal(self.id, 0, [0] * self.shards)
        journal.write(self.out)
        return journal

    def _deal_edges(self, journal: Journal) -> list[int]:
        """Each end of each edge to the shard that it is in, as the number row * nodes + column; bytes in each."""
        total, nodes = self.source.number_of_edges, self.source.nodes
        if journal.edges == total:
            return journal.sizes
        files: list[BinaryIO] = []
        try:
            for folder, size in zip(self.folders, journal.sizes, strict=True):
                (folder / DEALT).touch()
                files.append((folder / DEALT).open("r+b"))
                files[-1].truncate(size)
                files[-1].seek(size)
            for sources, targets in self.source.edges(EDGES, journal.edges):
                apart = sources != targets
                rows = np.concatenate([sources[apart], targets[apart]])
                columns = np.concatenate([targets[apart], sources[apart]])
                owner = (np.searchsorted(self.starts, rows, side="right") - 1).astype(np.uint16)
                keys = ((rows - self.starts[owner]) * nodes + columns)[owner.argsort(kind="stable")]
                bounds = np.bincount(owner, minlength=self.shards).cumsum()[:-1]
                for shard, part in enumerate(np.split(keys, bounds)):
                    files[shard].write(part.tobytes())
                    files[shard].flush()
                    journal.sizes[shard] += part.nbytes
                journal.edges += len(sources)
                journal.write(self.out)
                self.on_progress("edges", journal.edges, total)
        finally:
            for file in files:
                file.close()
        return journal.sizes

    def _finished(self, shard: int) -> ShardDescription | None:
        folder = self.folders[shard]
        if not (folder / DESCRIPTION).exists():
            return None
        own = read_record(ShardDescription, folder / DESCRIPTION, "the shard", "; start over with --overwrite")
        (folder / DEALT).unlink(missing_ok=True)
        return own if own.id == self.id else None

    def _write_shard(self, shard: int, size: int) -> ShardDescription:
        folder, (first, last) = self.folders[shard], self.starts[shard : shard + 2].tolist()
        sha = hashlib.blake2b(digest_size=16)
        self._write_features(folder / "x.npy", first, last, sha)
        starts, columns = self._compressed(folder / DEALT, size, last - first)
        own = {"starts": starts, "columns": columns}
        own |= {name: self.source.columns[name][first:last] for name in BY_NODE if name in self.source.columns}
        classes = 0
        for name, array in own.items():
            if name == "y":
                array = array.astype(np.float32) if array.ndim == 2 else array.astype(np.int64)
                classes = array.shape[1] if array.ndim == 2 else max(0, int(array.max()) + 1)
                own[name] = array
            np.save(folder / f"{name}.npy", array)
            sha.update(np.ascontiguousarray(array).view(np.uint8).data)
        description = ShardDescription(
            format=FORMAT, id=self.id, shard=shard, first=first, count=last - first, entries=len(columns),
            arrays={"x": "float32"} | {name: str(array.dtype) for name, array in own.items()},
            classes=classes, digest=sha.hexdigest(),
        )  # fmt: skip
        description.write(folder)
        (folder / DEALT).unlink(missing_ok=True)
        self.on_progress("shards", shard + 1, self.shards)
        return description

    def _write_features(self, path: Path, first: int, last: int, sha: Any) -> None:
        width = self.source.features
        out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(last - first, width))
        step = max(1, BYTES // (4 * width))
        for start in range(first, last, step):
            block = self.source.x(start, min(start + step, last))
            out[start - first : start - first + len(block)] = block
            sha.update(np.ascontiguousarray(block).data)
        out.flush()

    def _compressed(self, path: Path, size: int, count: int) -> tuple[Array, Array]:
        """The rows of a shard: where the neighbours of each node start, and these, each once and in order."""
        keys = np.fromfile(path, dtype=np.int64, count=size // 8) if size else np.empty(0, dtype=np.int64)
        keys.sort()
        if len(keys):
            keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
        nodes = self.source.nodes
        kind = np.int32 if max(nodes, len(keys)) < 2**31 else np.int64
        starts = np.searchsorted(keys, np.arange(count + 1) * nodes).astype(kind)
        keys %= nodes
        return starts, keys.astype(kind)
