"""From a graph that is read in blocks to a folder of shards: edges are dealt to the shards of both ends, then sorted.

Memory is bounded by a block and the edges of one shard. What is interrupted goes on: a journal says how many edges
are dealt, and a shard with a description is finished.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..utils import Size, read_record, write_atomically, writing
from .examples import part_of
from .shards import BY_NODE, DESCRIPTION, FORMAT, Description, ShardDescription, ShardFolder, shard_name
from .tables import Table

JOURNAL, DEALT = "sharding.json", "edges.tmp"
#: Edges, and bytes of features, that are read at a time.
EDGES, BYTES = 1 << 21, 1 << 27

#: Told what is being done, how much of it is done and how much there is.
OnProgress = Callable[[str, int, int], None]


class Journal(msgspec.Struct, frozen=True):
    """How far the edges are dealt."""

    id: str
    edges: Size
    #: Bytes in the file of each shard by then; what is beyond them was written in vain.
    sizes: list[Size]

    def write(self, folder: Path) -> None:
        """Replace the one before."""
        write_atomically(folder / JOURNAL, json.dumps(msgspec.structs.asdict(self)) + "\n")


def shard_graph(
    table: Table, shards: int, out: Path, *, overwrite: bool = False, on_progress: OnProgress | None = None
) -> Description:
    """Write the graph as so many shards into the folder ``out``, or go on with it; its description."""
    if shards > table.nodes:
        raise InputError(f"shards = {shards}, but there are {table.nodes} nodes: set shards to {table.nodes} at most")
    return _Writer(table, shards, out, on_progress or (lambda *_: None)).run(overwrite=overwrite)


class _Writer:
    def __init__(self, table: Table, shards: int, out: Path, on_progress: OnProgress) -> None:
        self.table, self.shards, self.out, self.on_progress = table, shards, out, on_progress
        self.starts = np.array([part_of(table.nodes, shard, shards).start for shard in range(shards)] + [table.nodes])
        self.id = hashlib.sha256(f"{FORMAT} {shards} {table.mark}".encode()).hexdigest()[:32]

    def folder(self, shard: int) -> Path:
        return self.out / shard_name(shard, self.shards)

    def run(self, *, overwrite: bool) -> Description:
        if (self.out / DESCRIPTION).exists() and not overwrite:
            whole = ShardFolder(self.out).whole
            if whole.id == self.id:
                return whole
            raise InputError(f"{self.out}: already holds other shards; choose another --out or add --overwrite")
        with writing(self.out):
            journal = self._begin(overwrite=overwrite)
            sizes = self._deal_edges(journal)
            owns = [self._finished(shard) or self._write_shard(shard, sizes[shard]) for shard in range(self.shards)]
        whole = Description(
            format=FORMAT,
            id=self.id,
            nodes=self.table.nodes,
            features=self.table.features,
            edges=sum(own.entries for own in owns) // 2,
            counts=[own.count for own in owns],
            arrays=owns[0].arrays,
            classes=max(own.classes for own in owns),
            digests=[own.digest for own in owns],
            feature_names=None if self.table.feature_names is None else list(self.table.feature_names),
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
        for shard in range(self.shards):
            self.folder(shard).mkdir(parents=True)
        journal = Journal(self.id, 0, [0] * self.shards)
        journal.write(self.out)
        return journal

    def _deal_edges(self, journal: Journal) -> list[int]:
        """Each end of each edge to the shard that it is in, as the number row * nodes + column; bytes in each."""
        total, done, sizes = self.table.number_of_edges, journal.edges, list(journal.sizes)
        if done == total:
            return sizes
        files: list[BinaryIO] = []
        try:
            for shard, size in enumerate(sizes):
                path = self.folder(shard) / DEALT
                path.touch()
                files.append(path.open("r+b"))
                files[-1].truncate(size)
                files[-1].seek(size)
            for sources, targets in self.table.edges(EDGES, done):
                keys, counts = self._keys(sources, targets)
                for shard, part in enumerate(np.split(keys, np.cumsum(counts)[:-1])):
                    files[shard].write(part.tobytes())
                    files[shard].flush()
                    sizes[shard] += part.nbytes
                done += len(sources)
                Journal(self.id, done, sizes).write(self.out)
                self.on_progress("edges", done, total)
        finally:
            for file in files:
                file.close()
        return sizes

    def _keys(self, sources: NDArray[Any], targets: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The keys of both ends by shard, and how many each shard has."""
        apart = sources != targets
        sources, targets = sources[apart], targets[apart]
        rows, columns = np.concatenate([sources, targets]), np.concatenate([targets, sources])
        owner = (np.searchsorted(self.starts, rows, side="right") - 1).astype(np.uint16)
        keys = (rows - self.starts[owner]) * self.table.nodes + columns
        return keys[owner.argsort(kind="stable")], np.bincount(owner, minlength=self.shards)

    def _finished(self, shard: int) -> ShardDescription | None:
        file = self.folder(shard) / DESCRIPTION
        if not file.exists():
            return None
        own = read_record(ShardDescription, file, "the shard", "; start over with --overwrite")
        (self.folder(shard) / DEALT).unlink(missing_ok=True)
        return own if own.id == self.id else None

    def _write_shard(self, shard: int, size: int) -> ShardDescription:
        folder, first = self.folder(shard), int(self.starts[shard])
        count = int(self.starts[shard + 1]) - first
        sha = hashlib.blake2b(digest_size=16)
        arrays = {"x": self._write_features(folder / "x.npy", first, count, sha)}
        starts, columns = self._compressed(folder / DEALT, size, count)
        own = {"starts": starts, "columns": columns}
        own |= {name: self.table.columns[name][first : first + count] for name in BY_NODE if name in self.table.columns}
        classes = 0
        for name, array in own.items():
            if name == "y":
                array = array.astype(np.float32) if array.ndim == 2 else array.astype(np.int64)
                classes = array.shape[1] if array.ndim == 2 else max(0, int(array.max()) + 1)
            np.save(folder / f"{name}.npy", array)
            sha.update(np.ascontiguousarray(array).view(np.uint8).data)
            arrays[name] = str(array.dtype)
        description = ShardDescription(
            format=FORMAT, id=self.id, shard=shard, first=first, count=count, entries=len(columns), arrays=arrays,
            classes=classes, digest=sha.hexdigest(),
        )  # fmt: skip
        description.write(folder)
        (folder / DEALT).unlink(missing_ok=True)
        self.on_progress("shards", shard + 1, self.shards)
        return description

    def _write_features(self, path: Path, first: int, count: int, sha: Any) -> str:
        width = self.table.features
        out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(count, width))
        step = max(1, BYTES // (4 * width))
        for start in range(0, count, step):
            stop = min(start + step, count)
            block = self.table.x(first + start, first + stop)
            out[start:stop] = block
            sha.update(np.ascontiguousarray(block).data)
        out.flush()
        return str(out.dtype)

    def _compressed(self, path: Path, size: int, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """The rows of a shard: where the neighbours of each node start, and these, each once and in order."""
        keys = np.fromfile(path, dtype=np.int64, count=size // 8) if size else np.empty(0, dtype=np.int64)
        keys.sort()
        if len(keys):
            keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
        nodes = self.table.nodes
        kind = np.int32 if max(nodes, len(keys)) < 2**31 else np.int64
        starts = np.searchsorted(keys, np.arange(count + 1) * nodes).astype(kind)
        keys %= nodes
        return starts, keys.astype(kind)
