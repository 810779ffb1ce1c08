r"""Augmentation where every process has its own nodes: nothing of the size nodes x features is in one of them.

A process has its rows of the features and of :math:`\tilde A`. For each block of columns and each hop, the block is
brought together from all processes and multiplied by the own rows. What comes out, before it is normalised, stays in
the folder of the shard, so that interrupted work goes on after the last block, and the next run finds it done.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..admm.risks import Targets
from ..errors import InputError
from ..utils import Count, Size, read_record, write_atomically, writing
from .augmentation import SAMPLE, GraphAugment, principal_directions
from .propagation import COLUMNS, LEARNED, csr, inverse, put
from .shards import Part, StackedRows, mapped

if TYPE_CHECKING:
    from ..engine.gathering import Gatherer
    from ..engine.team import Line

#: Bytes that a block of columns of all nodes may take, unless COLUMNS columns take more; and rows read at once.
WHOLE_BYTES, ROW_BYTES = 1 << 30, 1 << 26


#: Told how many blocks are done, and how many there are.
OnBlock = Callable[[int, int], None]


def boot_id() -> str | None:
    """Another one whenever the machine has started anew; None where it does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


class Progress(msgspec.Struct, frozen=True):
    """How far the propagated features of a shard are."""

    blocks: Size
    of: Count
    #: The machine, from one start to the next, in whose memory some of them may be alone; None if all are on disk.
    boot: str | None = None


class OwnRows:
    r"""The rows of :math:`\tilde A` of the nodes of a process, of which ``@`` takes a step over the graph."""

    def __init__(self, part: Part, across: Line, counts: Sequence[int], gather: Gatherer) -> None:
        self._gather = gather
        degrees = np.concatenate([np.diff(shard.arrays["starts"]) for shard in part.shards]).astype(np.int64) + 1
        everywhere = across.concat(torch.from_numpy(degrees), counts)
        scale = (1 / everywhere.double().sqrt()).float()
        own = scale[part.first : part.first + part.count]
        self._own = (own * own)[:, None]
        self._parts = []
        place = 0
        for shard in part.shards:
            starts, columns = (torch.from_numpy(np.asarray(shard.arrays[name])) for name in ("starts", "columns"))
            values = own[place : place + shard.count].repeat_interleave(starts.diff().long())
            values *= scale[columns]
            self._parts.append(csr(starts, columns, values, (shard.count, part.whole.nodes)))
            place += shard.count
        #: Entries of the matrix that are here, the diagonal among them; columns that it was multiplied by; and seconds
        #: of that and of bringing these together.
        self.figures = {"entries": int(degrees.sum()), "columns": 0, "multiply_seconds": 0.0, "gather_seconds": 0.0}

    def __matmul__(self, H: Tensor, /) -> Tensor:
        begin = time.perf_counter()
        whole = self._gather(H)
        middle = time.perf_counter()
        product = torch.cat([A @ whole for A in self._parts]) if len(self._parts) > 1 else self._parts[0] @ whole
        product.addcmul_(self._own, H)
        self.figures["columns"] += H.shape[1]
        self.figures["gather_seconds"] += middle - begin
        self.figures["multiply_seconds"] += time.perf_counter() - middle
        return product


class ShardedAugment:
    """A :class:`GraphAugment` on the nodes of a part, one of those that the processes ``across`` have.

    All of its methods but :meth:`rows` and :meth:`blocks` are called by all of these together. ``make_gather`` makes
    what brings their rows together, for so many rows of each and so many columns at the most.
    """

    def __init__(
        self, part: Part, augment: GraphAugment, across: Line, make_gather: Callable[[Sequence[int], int], Gatherer]
    ) -> None:
        self.part, self.augment, self.across = part, augment, across
        counts, per = part.whole.counts, part.whole.shards // across.size
        self.counts = [sum(counts[place * per : (place + 1) * per]) for place in range(across.size)]
        self.step = max(COLUMNS, WHOLE_BYTES // (4 * part.whole.nodes) // COLUMNS * COLUMNS)
        self._make_gather = make_gather
        self._gather: Gatherer | None = None
        self._matrix: OwnRows | None = None
        self._x = StackedRows([shard.arrays["x"] for shard in part.shards])
        self._propagated = StackedRows([])

    def prepare(self, on_block: OnBlock | None = None) -> dict[str, float]:
        """Learn what is to be learned and propagate, as far as that is not done yet; what that took."""
        begin = time.perf_counter()
        augment, features = self.augment, self.part.whole.features
        if augment.others or augment.known is not None:
            what = "a mean of several models" if augment.others else "a model that knows labels of neighbours"
            raise InputError(f"{what} is for a graph in one file, not for a sharded folder")
        if augment.components is not None and augment.components < features and augment.basis is None:
            augment.basis = self._principal_directions(augment.components)
        self._propagate(on_block or (lambda *_: None))
        if augment.normalize in LEARNED and augment.mean is None:
            # From the same evenly spaced nodes as on one process.
            nodes = np.arange(0, number := self.part.whole.nodes, max(1, number // augment.sample))
            own = torch.from_numpy(self._propagated.at(self._own(nodes)))
            augment.learn(own, len(nodes), self.across.sum)
        # The graph and the blocks are no longer needed, and take more memory than anything that follows.
        figures = {"augment_seconds": time.perf_counter() - begin, "entries": 0, "columns": 0, "sent": 0, "shared": 0}
        if self._matrix is not None and self._gather is not None:
            figures |= self._matrix.figures | {"sent": self._gather.sent, "shared": self._gather.shared}
        self._release()
        return figures

    def _release(self) -> None:
        if self._gather is not None:
            self._gather.close()
        self._gather = self._matrix = None

    @property
    def width(self) -> int:
        """Columns of the augmented features."""
        return self.augment.width(self.part.whole.features)

    def rows(self, index: NDArray[Any]) -> Tensor:
        """Augmented rows of nodes of the part, in order, which are counted from its first one."""
        return self.augment._normalized(torch.from_numpy(self._propagated.at(index)))

    def blocks(self) -> Iterator[Tensor]:
        """The augmented rows of all nodes of the part, a block at a time."""
        step = max(1, ROW_BYTES // (4 * self.width))
        for start in range(0, self.part.count, step):
            stop = min(start + step, self.part.count)
            yield self.augment._normalized(torch.from_numpy(self._propagated.between(start, stop)))

    def copies(self, index: NDArray[Any], factors: Tensor) -> Tensor:
        """Augmented rows of nodes of the part in copies of all features (copies, nodes, columns).

        Before propagation each copy has the features of every node times ``factors`` (copies, nodes of the part); it is
        normalised as the clean features are.
        """
        width, matrix = self.width // self.augment.blocks, self.matrix
        out = torch.empty(len(factors), len(index), self.width)
        for start in range(0, width, self.step):
            H = self._features(start, min(start + self.step, width))
            for copy, factor in zip(out, factors, strict=True):
                put(copy, width, start, self.augment.operator(matrix, H * factor[:, None]), index)
        self._release()
        for copy in out:
            self.augment._normalized(copy)
        return out

    # --------------------------------------------------------------------------------------------------- propagation

    @property
    def matrix(self) -> OwnRows | None:
        """The own rows of the graph; None where it has no say."""
        if self.augment.mode == "none" or self.part.whole.edges == 0:
            return None
        if self._matrix is None:
            self._gather = self._make_gather(self.counts, self.step)
            self._matrix = OwnRows(self.part, self.across, self.counts, self._gather)
        return self._matrix

    @property
    def digest(self) -> str:
        """Of all that decides the propagated features of a shard."""
        augment = self.augment
        sha = hashlib.sha256(f"1 {augment.operator} {augment.row_normalize} {self.step}".encode())
        if augment.basis is not None:
            sha.update(augment.basis.contiguous().numpy().data)
        return sha.hexdigest()[:16]

    def _propagate(self, on_block: OnBlock) -> None:
        width = self.width // self.augment.blocks
        starts = range(0, width, self.step)
        name = f"propagated-{self.digest}"
        paths = [shard.folder / f"{name}.json" for shard in self.part.shards]
        done = min(self._done(path, len(starts)) for path in paths)
        done = -int(self.across.largest(torch.tensor([-done])))
        files = [
            self._file(path.with_suffix(".npy"), shard.count, done, len(starts))
            for path, shard in zip(paths, self.part.shards, strict=True)
        ]
        self._propagated = StackedRows(files)
        on_block(done, len(starts))
        if done == len(starts):
            return
        matrix, boot = self.matrix, boot_id()
        for number, start in enumerate(starts[done:], start=done + 1):
            stop = min(start + self.step, width)
            for block, operated in enumerate(self.augment.operator(matrix, self._features(start, stop))):
                self._propagated.write(block * width + start, operated.numpy())
            if number == len(starts) or boot is None:
                # A block has some of every page: on disk after each, the whole file would be written as often.
                for file in files:
                    file.flush()  # type: ignore[attr-defined]
            progress = Progress(number, len(starts), boot if number < len(starts) else None)
            for path in paths:
                write_atomically(path, msgspec.json.encode(progress) + b"\n")
            on_block(number, len(starts))

    def _done(self, path: Path, total: int) -> int:
        """How many blocks of a shard are done."""
        if not path.exists() or not path.with_suffix(".npy").exists():
            return 0
        progress = read_record(Progress, path, "the progress", "; remove it")
        return progress.blocks if progress.of == total and progress.boot in (None, boot_id()) else 0

    def _file(self, path: Path, rows: int, done: int, total: int) -> NDArray[Any]:
        """The propagated features of a shard, mapped from disk."""
        shape = (rows, self.width)
        if done == 0:
            with writing(path, "; the folder must be writable, and have room for the augmented features"):
                return np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
        file = mapped(path, remedy="; remove it")  # not to write: a short file would grow
        if file.shape != shape or file.dtype != np.float32:
            raise InputError(f"{path}: has shape {file.shape}, expected {shape}; remove it")
        return mapped(path, "r+") if done < total else file

    def _features(self, start: int, stop: int) -> Tensor:
        """Columns of what is propagated, of the own nodes."""
        if self.augment.basis is not None:
            return self._times(self.augment.basis[:, start:stop])
        H = torch.from_numpy(np.ascontiguousarray(self._x.between(0, self.part.count, slice(start, stop))))
        return H.mul_(self._row_scale) if self.augment.row_normalize else H

    def _row_blocks(self, *, scaled: bool) -> Iterator[tuple[slice, Tensor]]:
        """The features of the own nodes, a block of rows at a time, each with its place, perhaps ``scaled``."""
        step = max(1, ROW_BYTES // (4 * self.part.whole.features))
        for start in range(0, self.part.count, step):
            x = torch.from_numpy(self._x.between(start, min(start + step, self.part.count)))
            place = slice(start, start + len(x))
            yield place, x.mul_(self._row_scale[place]) if scaled else x

    @cached_property
    def _row_scale(self) -> Tensor:
        """One over the sum of the absolute values of each row, as a column; 1 for rows of zeros."""
        sums = [x.abs().sum(1, dtype=torch.float64) for _, x in self._row_blocks(scaled=False)]
        return inverse(torch.cat(sums), torch.float32)[:, None]

    def _times(self, M: Tensor) -> Tensor:
        """H M, of the own nodes."""
        out = torch.empty(self.part.count, M.shape[1])
        for place, x in self._row_blocks(scaled=self.augment.row_normalize):
            out[place] = x @ M
        return out

    # -------------------------------------------------------------------------------------------- what is learned

    def _own(self, nodes: NDArray[Any]) -> NDArray[Any]:
        """Those of some nodes of the whole that are here, counted from the first one here."""
        first, last = np.searchsorted(nodes, [self.part.first, self.part.first + self.part.count])
        return nodes[first:last] - self.part.first

    def _principal_directions(self, number: int) -> Tensor:
        nodes, features = self.part.whole.nodes, self.part.whole.features
        sample = np.arange(0, nodes, -(-nodes // SAMPLE))
        own = torch.from_numpy(self._own(sample))

        def onto(M: Tensor) -> Tensor:
            return torch.cat([self._stepped(self._times(part))[own] for part in M.split(self.step, dim=1)], 1)

        def back(Y: Tensor) -> Tensor:
            found = []
            for part in Y.split(self.step, dim=1):
                spread = torch.zeros(self.part.count, part.shape[1]).index_copy_(0, own, part)
                spread, total = self._stepped(spread), torch.zeros(features, part.shape[1])
                for place, x in self._row_blocks(scaled=self.augment.row_normalize):
                    total += x.mT @ spread[place]
                found.append(self.across.sum(total))
            return torch.cat(found, 1)

        return principal_directions(onto, back, (len(sample), features), number, self.across.sum)

    def _stepped(self, H: Tensor) -> Tensor:
        return H if self.matrix is None else self.matrix @ (self.matrix @ H)


# -------------------------------------------------------------------------------------------------------- random copies


def uniform(seed: int, numbers: NDArray[Any]) -> NDArray[np.float64]:
    """A number from 0 to 1, without 1, for each of some numbers: random to the eye, and the same for a seed.

    By SplitMix64 (Steele, Lea and Flood, 2014): a value of its sequence is had without those before it.
    """
    z = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class ShardedCopies:
    """Copies of the nodes of a part: of those that train and of others. All processes call its methods together."""

    sharded: ShardedAugment
    #: The probability with which the features of a node are left out.
    drop: float
    #: The nodes that train, in order, counted from the first of the part; and what they should become.
    training: NDArray[Any]
    labelled: Targets

    def sample(self, number: int, seed: int) -> NDArray[Any]:
        """Those of the part, in order, among so many at the most that are chosen of all nodes that do not train."""
        part, across = self.sharded.part, self.sharded.across
        other = np.ones(part.count, dtype=bool)
        other[self.training] = False
        others = np.flatnonzero(other)
        lots = uniform(seed, part.first + others)
        # The smallest of all are among the smallest of each process.
        smallest = np.partition(lots, number - 1)[:number] if len(lots) > number else lots
        counts = across.concat(torch.tensor([len(smallest)]), [1] * across.size).tolist()
        everywhere = across.concat(torch.from_numpy(smallest), counts)
        return others[lots <= float(everywhere.kthvalue(min(number, len(everywhere))).values)]

    def draw(self, nodes: NDArray[Any], number: int, seed: int) -> Tensor:
        """So many copies of the rows of ``nodes`` of the part (copies, nodes, features)."""
        part = self.sharded.part
        everyone = part.first + np.arange(part.count)
        seeds = np.random.SeedSequence(seed).generate_state(number, np.uint64).tolist()
        kept = np.stack([uniform(each, everyone) >= self.drop for each in seeds])
        return self.sharded.copies(nodes, torch.from_numpy(kept).float() / (1 - self.drop))
