"""A graph in parts: a folder of shards, each with some consecutive nodes, of which a process reads only its own.

``description.json``               what all shards are together; it is written last, and makes the folder a whole
``shard-3-of-8/description.json``  the same id, and which nodes these are
``shard-3-of-8/x.npy``             their features; ``y.npy`` and masks likewise where there are any
``shard-3-of-8/starts.npy``        their rows of the undirected simple graph, without self-loops, as compressed rows:
``shard-3-of-8/columns.npy``       the neighbours of the i-th node are ``columns[starts[i]:starts[i + 1]]``

Such a folder is made of a graph that is read in blocks and may be larger than memory: folders of arrays or of Parquet
tables. Edges are dealt to the shards of both ends, then sorted. Labels, masks and ids, a number a node, are in memory,
a block, and the edges of one shard. What is interrupted goes on: a journal says how many edges are dealt, and a shard
with a description is finished.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from ..config import NODE_TABLES
from ..errors import InputError
from ..utils import Count, Size, read_record, write_atomically, writing
from .checks import check_edges, check_features, check_nodes
from .examples import part_of
from .graph import MASKS, Graph, are_names, as_tensor, reading
from .propagation import to_csc
from .targets import has_columns

FORMAT: Final = 1
DESCRIPTION = "description.json"
#: The arrays that a shard may have beside x, starts and columns, with a row for each of its nodes.
BY_NODE = ("y", "train_mask", "val_mask", "test_mask", "id")
REMEDY = "; make it anew with 'pdadmm-g shard'"

Array = NDArray[Any]


class _Written(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a description.json."""

    format: Literal[1]
    #: Shared by all shards that were written together.
    id: str
    #: The type of each array that the shards have.
    arrays: dict[str, str]
    #: One more than the largest label, or columns of probabilities; 0 without labels.
    classes: Size

    def write(self, folder: Path) -> None:
        """Make the folder a whole."""
        write_atomically(folder / DESCRIPTION, json.dumps(msgspec.to_builtins(self), indent=2) + "\n")


class Description(_Written, frozen=True, kw_only=True):
    """What is known of a whole folder."""

    nodes: Count
    features: Count
    #: Pairs of different nodes that are joined, each counted once.
    edges: Size
    #: How many nodes each shard has, in order.
    counts: Annotated[list[Count], msgspec.Meta(min_length=1)]
    #: Of the content of each shard.
    digests: list[str]
    #: Those of the features, where they have any.
    feature_names: list[str] | None = None

    def __post_init__(self) -> None:
        if sum(self.counts) != self.nodes or len(self.digests) != len(self.counts):
            raise ValueError("it does not say what its shards are")
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
        return hashlib.sha256(json.dumps(msgspec.to_builtins(self), sort_keys=True).encode()).hexdigest()

    @property
    def starts(self) -> list[int]:
        """The first node of each shard, and the number of all nodes."""
        return [0, *np.cumsum(self.counts).tolist()]


class ShardDescription(_Written, frozen=True, kw_only=True):
    """What a shard says of itself."""

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


@dataclass(frozen=True)
class Shard:
    """One shard, its arrays mapped from disk."""

    folder: Path
    #: Its first node, and how many it has.
    first: int
    count: int
    arrays: dict[str, Array]


class StackedRows:
    """The rows of several arrays, one after the other, without being brought together in memory."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.arrays = arrays
        self._firsts = np.cumsum([0, *map(len, arrays)])

    def between(self, start: int, stop: int, columns: slice = slice(None)) -> Array:
        """Some consecutive rows, in memory."""
        places = zip(self.arrays, self._firsts.tolist(), strict=False)
        return np.concatenate([each[max(0, start - at) : max(0, stop - at), columns] for each, at in places])

    def at(self, index: Array) -> Array:
        """The rows at these places, which are in order, in memory."""
        bounds = np.searchsorted(index, self._firsts).tolist()
        parts = zip(self.arrays, self._firsts.tolist(), bounds, bounds[1:], strict=False)
        return np.concatenate([each[index[first:last] - at] for each, at, first, last in parts])

    def write(self, first: int, block: Array) -> None:
        """Replace the columns from ``first`` on."""
        for each, at in zip(self.arrays, self._firsts.tolist(), strict=False):
            each[:, first : first + block.shape[1]] = block[at : at + len(each)]


@dataclass(frozen=True)
class Part:
    """The consecutive shards of a folder that one process reads."""

    whole: Description
    shards: tuple[Shard, ...]

    @property
    def first(self) -> int:
        """Its first node."""
        return self.shards[0].first

    @property
    def count(self) -> int:
        """How many nodes it has."""
        return sum(shard.count for shard in self.shards)

    def column(self, name: str) -> Array | None:
        """An array with a row for each node of the part, in memory; None where there is none."""
        if name not in self.whole.arrays:
            return None
        return np.concatenate([shard.arrays[name] for shard in self.shards])


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

    def part(self, place: int, parts: int) -> Part:
        """The shards of one of so many processes, checked."""
        self.check_parts(parts)
        return Part(self.whole, tuple(self._shard(shard) for shard in part_of(self.whole.shards, place, parts)))

    def marked(self, mask: str) -> int:
        """The number of nodes in a mask of all shards, of which nothing else is read."""
        folders = [self._folder(number) for number in range(self.whole.shards)]
        return sum(int(mapped(folder / f"{mask}.npy").sum()) for folder in folders if mask in self.whole.arrays)

    def _folder(self, number: int) -> Path:
        folder = self.path / shard_name(number, self.whole.shards)
        if not folder.is_dir():
            raise InputError(f"{folder}: is missing: bring it here, or make the folder anew with 'pdadmm-g shard'")
        return folder

    def _shard(self, number: int) -> Shard:
        folder, whole = self._folder(number), self.whole
        own = read_record(ShardDescription, folder / DESCRIPTION, "the shard", REMEDY)
        expected = (whole.id, number, whole.starts[number], whole.counts[number], whole.arrays, whole.digests[number])
        if (own.id, own.shard, own.first, own.count, own.arrays, own.digest) != expected:
            other = f"is of another data set than {self.path / DESCRIPTION}: bring the one of this"
            raise InputError(f"{folder / DESCRIPTION}: {other}")
        shapes = {"x": (own.count, whole.features), "starts": (own.count + 1,), "columns": (own.entries,)}
        kinds = dict.fromkeys(shapes, "nothing") | whole.arrays
        arrays = {
            name: _checked(folder / f"{name}.npy", kind, shapes.get(name, (own.count,))) for name, kind in kinds.items()
        }
        starts, columns = arrays["starts"], arrays["columns"]
        # What is multiplied without further checks must not name what is not there.
        if starts[0] != 0 or starts[-1] != len(columns) or bool((np.diff(starts) < 0).any()):
            raise InputError(f"{folder / 'starts.npy'}: does not fit columns.npy: damaged")
        if len(columns) and not 0 <= int(columns.min()) <= int(columns.max()) < whole.nodes:
            raise InputError(f"{folder / 'columns.npy'}: names a node outside 0..{whole.nodes - 1}: damaged")
        return Shard(folder, own.first, own.count, arrays)


def mapped(path: Path, mode: Literal["r", "c", "r+"] = "r", remedy: str = "") -> Array:
    """An array on disk."""
    if not path.is_file():
        raise InputError(f"{path}: is missing{remedy}")
    with reading(path, "an array", f"damaged, or cut off{remedy}"):
        array: Array = np.lib.format.open_memmap(path, mode=mode)
    return array


def _checked(path: Path, kind: str, shape: tuple[int, ...]) -> Array:
    """An array of that type and of a shape that begins so."""
    # Copied where it is written to, which nobody does: torch has no read-only tensors, and would say so.
    array = mapped(path, "c", ": bring it here, or make the folder anew")
    if str(array.dtype) != kind:
        raise InputError(f"{path}: holds {array.dtype}, but the description says {kind}")
    if array.shape[: len(shape)] != shape or (path.stem != "y" and array.ndim != len(shape)):
        raise InputError(f"{path}: has shape {array.shape}, expected {shape}")
    return array


# -------------------------------------------------------------------------------------------------- graphs in blocks

#: Blocks of so many edges at the most, after the first so many of all: node numbers (2, edges).
Edges = Callable[[int, int], Iterator[Array]]
JOURNAL, DEALT = "sharding.json", "edges.tmp"
#: Edges, and bytes of features, that are read at a time.
EDGES, BYTES = 1 << 21, 1 << 27
#: Told what is being done, how much of it is done and how much there is.
OnProgress = Callable[[str, int, int], None]
NO_WEIGHTS = "weights of edges are not for a folder of shards: leave them out, or train on the one file"


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
            missing = both if name.endswith(NODE_TABLES) else "'edge_index' is missing"
            raise InputError(f"{name}: there are no edges: {missing}")
        return graph_source(data, digest(data))
    if (path / "x.npy").exists():
        return _array_source(path)
    if _parquet_files(path, "nodes"):
        return _table_source(path)
    raise InputError(f"{path}: holds neither x.npy nor tables nodes*.parquet and edges*.parquet")


def graph_source(data: Graph, mark: str) -> GraphInBlocks:
    """A graph that is in memory, already through :func:`~pdadmm_g.graph.checks.check_graph`."""
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

    def edges(size: int, skip: int) -> Iterator[Array]:
        for start in range(skip, ends.shape[1], size):
            block = as_tensor(ends[:, start : start + size], f"{folder}edge_index.npy: must be whole numbers")
            yield check_edges(block, x.shape[0], f"{folder}edge_index.npy").numpy()

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

    def pairs(size: int, skip: int) -> Iterator[Array]:
        for path, first, frame in edges.batches([*ENDS], size):
            done = min(skip, len(frame))
            skip -= done
            if done < len(frame):
                yield lookup(frame[done:], str(path), first + done)

    first, names = block(0, 1)
    known = check_nodes(data, nodes.number, culprit)
    mark = _mark([*nodes.files, *edges.files])
    return GraphInBlocks(
        nodes.number, first.shape[1], lambda start, stop: block(start, stop)[0], edges.number, pairs,
        _columns(known), mark, names,
    )  # fmt: skip


def _columns(data: Graph) -> dict[str, Array]:
    """What has a row a node, of a checked graph."""
    for found, what in (
        (has_columns(data), "several labels or numbers a node"),
        (data.get("label_names") is not None, "labels that are no whole numbers"),
        (any(data[mask].ndim > 1 for mask in MASKS if mask in data), "masks of several splits"),
    ):
        if found:
            raise InputError(f"{what} are not for a folder of shards: leave them out, or train on the one file")
    columns: dict[str, Array] = {name: data[name].cpu().numpy() for name in ("y", *MASKS) if data.get(name) is not None}
    if "y" in columns:
        columns["y"] = columns["y"].astype(np.float32 if data.y.ndim == 2 else np.int64)
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
            owns = [self._shard(shard, sizes[shard]) for shard in range(self.shards)]
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
        with ExitStack() as opened:
            files = [opened.enter_context((folder / DEALT).open("ab")) for folder in self.folders]
            for file, size in zip(files, journal.sizes, strict=True):
                file.truncate(size)
            for block in self.source.edges(EDGES, journal.edges):
                apart = block[:, block[0] != block[1]]
                rows, columns = np.concatenate([apart, apart[::-1]], axis=1)
                owner = (np.searchsorted(self.starts, rows, side="right") - 1).astype(np.uint16)
                keys = ((rows - self.starts[owner]) * nodes + columns)[owner.argsort(kind="stable")]
                bounds = np.bincount(owner, minlength=self.shards).cumsum()[:-1]
                for shard, part in enumerate(np.split(keys, bounds)):
                    files[shard].write(part.tobytes())
                    files[shard].flush()
                    journal.sizes[shard] += part.nbytes
                journal.edges += block.shape[1]
                journal.write(self.out)
                self.on_progress("edges", journal.edges, total)
        return journal.sizes

    def _shard(self, shard: int, size: int) -> ShardDescription:
        folder, (first, last) = self.folders[shard], self.starts[shard : shard + 2].tolist()
        if (folder / DESCRIPTION).exists():
            done = read_record(ShardDescription, folder / DESCRIPTION, "the shard", "; start over with --overwrite")
            (folder / DEALT).unlink(missing_ok=True)
            if done.id == self.id:
                return done
        sha = hashlib.blake2b(digest_size=16)
        self._write_features(folder / "x.npy", first, last, sha)
        starts, columns = self._compressed(folder / DEALT, size, last - first)
        own = {"starts": starts, "columns": columns}
        own |= {name: self.source.columns[name][first:last] for name in BY_NODE if name in self.source.columns}
        for name, array in own.items():
            np.save(folder / f"{name}.npy", array)
            sha.update(np.ascontiguousarray(array).view(np.uint8).data)
        y = own.get("y", np.array([-1]))
        classes = y.shape[1] if y.ndim == 2 else max(0, int(y.max()) + 1)
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
