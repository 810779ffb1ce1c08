"""A graph in parts: a folder of shards, each with some consecutive nodes, of which a process reads only its own.

``description.json``               what all shards are together; it is written last, and makes the folder a whole
``shard-3-of-8/description.json``  the same id, and which nodes these are
``shard-3-of-8/x.npy``             their features; ``y.npy`` and masks likewise where there are any
``shard-3-of-8/starts.npy``        their rows of the undirected simple graph, without self-loops, as compressed rows:
``shard-3-of-8/columns.npy``       the neighbours of the i-th node are ``columns[starts[i]:starts[i + 1]]``
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..utils import Count, Size, read_record, write_atomically
from .examples import part_of
from .graph import are_names

FORMAT: Final = 1
DESCRIPTION = "description.json"
#: The arrays that a shard may have beside x, starts and columns, with a row for each of its nodes.
BY_NODE = ("y", "train_mask", "val_mask", "test_mask", "id")
REMEDY = "; make it anew with 'pdadmm-g shard'"

Array = NDArray[Any]


class _Written(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a description.json."""

    format: Literal[1]
    #: Shared by all shards that were written together.
    id: str
    #: The type of each array that the shards have.
    arrays: dict[str, str]
    #: One more than the largest label, or columns of probabilities; 0 without labels.
    classes: Size

    def content(self) -> dict[str, Any]:
        """What the file says; nothing of what is None."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}

    def write(self, folder: Path) -> None:
        """Make the folder a whole."""
        write_atomically(folder / DESCRIPTION, json.dumps(self.content(), indent=2) + "\n")


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
        return hashlib.sha256(json.dumps(self.content() | {"id": ""}, sort_keys=True).encode()).hexdigest()

    @property
    def fingerprint(self) -> str:
        """Equal where this description is the same."""
        return hashlib.sha256(json.dumps(self.content(), sort_keys=True).encode()).hexdigest()

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

    def _shard(self, number: int) -> Shard:
        folder, whole = self.path / shard_name(number, self.whole.shards), self.whole
        if not folder.is_dir():
            raise InputError(f"{folder}: is missing: bring it here, or make the folder anew with 'pdadmm-g shard'")
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
        for node in (int(columns.min()), int(columns.max())) if len(columns) else ():
            if not 0 <= node < whole.nodes:
                range_ = f"nodes are 0..{whole.nodes - 1}"
                raise InputError(f"{folder / 'columns.npy'}: names node {node}, but {range_}")
        return Shard(folder, own.first, own.count, arrays)


def mapped(path: Path, mode: Literal["r", "c"] = "r", remedy: str = "") -> Array:
    """An array on disk."""
    try:
        array: Array = np.lib.format.open_memmap(path, mode=mode)
        return array
    except FileNotFoundError:
        raise InputError(f"{path}: is missing{remedy}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror or 'damaged'}") from None
    except Exception:  # numpy's parser raises many kinds on a damaged header
        raise InputError(f"{path}: cannot read as an array: damaged, or cut off") from None


def _checked(path: Path, kind: str, shape: tuple[int, ...]) -> Array:
    """An array of that type and of a shape that begins so."""
    # Copied where it is written to, which nobody does: torch has no read-only tensors, and would say so.
    array = mapped(path, "c", ": bring it here, or make the folder anew")
    if str(array.dtype) != kind:
        raise InputError(f"{path}: holds {array.dtype}, but the description says {kind}")
    if array.shape[: len(shape)] != shape or (path.stem != "y" and array.ndim != len(shape)):
        raise InputError(f"{path}: has shape {array.shape}, expected {shape}")
    return array
