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
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..utils import Count, Size, decoded, read_record, read_text, reading, write_atomically
from .examples import part_of
from .feature_names import are_names

FORMAT: Final = 1
DESCRIPTION = "description.json"
#: The arrays of every shard, and those that a shard may have, with a row for each of its nodes.
ALWAYS, BY_NODE = ("x", "starts", "columns"), ("y", "train_mask", "val_mask", "test_mask", "id")

Array = NDArray[Any]


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a whole folder: the content of its description.json."""

    format: Literal[1]
    #: Shared by all shards that were written together.
    id: str
    nodes: Count
    features: Count
    #: Pairs of different nodes that are joined, each counted once.
    edges: Size
    #: How many nodes each shard has, in order.
    counts: Annotated[list[Count], msgspec.Meta(min_length=1)]
    #: The type of each array that the shards have.
    arrays: dict[str, str]
    #: One more than the largest label, or columns of probabilities; 0 without labels.
    classes: Size
    #: Of the content of each shard.
    digests: list[str]
    #: Those of the features, where they have any.
    feature_names: list[str] | None = None

    @property
    def shards(self) -> int:
        """How many there are."""
        return len(self.counts)

    @property
    def digest(self) -> str:
        """Equal for equal content in equal shards."""
        known = self.content() | {"id": ""}
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()

    @property
    def fingerprint(self) -> str:
        """Equal where this description is the same."""
        return hashlib.sha256(json.dumps(self.content(), sort_keys=True).encode()).hexdigest()

    @property
    def starts(self) -> list[int]:
        """The first node of each shard, and the number of all nodes."""
        return [0, *np.cumsum(self.counts).tolist()]

    def content(self) -> dict[str, Any]:
        """What the file says; of names nothing where there are none, as before there were any."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}

    def write(self, folder: Path) -> None:
        """Make the folder a whole."""
        write_atomically(folder / DESCRIPTION, json.dumps(self.content(), indent=2) + "\n")


class ShardDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What a shard says of itself: the content of its own description.json."""

    format: Literal[1]
    id: str
    shard: Size
    first: Size
    count: Count
    #: Neighbours of all its nodes together.
    entries: Size
    arrays: dict[str, str]
    classes: Size
    digest: str

    def write(self, folder: Path) -> None:
        """Make the shard in ``folder`` a whole."""
        write_atomically(folder / DESCRIPTION, json.dumps(msgspec.structs.asdict(self), indent=2) + "\n")


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
        file = self.path / DESCRIPTION
        text = read_text(file, "the description")
        with reading(file, "the description", "; make it anew with 'pdadmm-g shard'"):
            self.whole = decoded(Description, text)
            if sum(self.whole.counts) != self.whole.nodes:
                raise ValueError(f"its shards have {sum(self.whole.counts)} nodes, not {self.whole.nodes}")
            if len(self.whole.digests) != self.whole.shards or not set(ALWAYS) <= set(self.whole.arrays):
                raise ValueError("it does not say what its shards are")
            names = self.whole.feature_names
            if names is not None and not are_names(names, self.whole.features):
                raise ValueError("its feature_names are not a list of different names, one a column")
        self._check_names()

    def _check_names(self) -> None:
        """No shard may be too many: of two sets in one folder nobody knows which is meant.

        One may be missing as long as nobody reads it: each machine may have those of its own processes alone.
        """
        expected = {shard_name(shard, self.whole.shards) for shard in range(self.whole.shards)}
        found = {path.name for path in self.path.glob("shard-*-of-*")}
        for name in sorted(found - expected):
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
        file = folder / DESCRIPTION
        if not folder.is_dir():
            raise InputError(f"{folder}: is missing: bring it here, or make the folder anew with 'pdadmm-g shard'")
        own = read_record(ShardDescription, file, "the shard", "; make the folder anew with 'pdadmm-g shard'")
        expected = (whole.id, number, whole.starts[number], whole.counts[number], whole.arrays, whole.digests[number])
        if (own.id, own.shard, own.first, own.count, own.arrays, own.digest) != expected:
            raise InputError(f"{file}: is of another data set than {self.path / DESCRIPTION}: bring the one of this")
        arrays = {name: _mapped(folder / f"{name}.npy", str(kind)) for name, kind in whole.arrays.items()}
        shard = Shard(folder, own.first, own.count, arrays)
        _check_shapes(shard, own, whole)
        return shard


def _mapped(path: Path, kind: str) -> Array:
    try:
        # Copied where it is written to, which nobody does: torch has no read-only tensors, and would say so.
        array: Array = np.lib.format.open_memmap(path, mode="c")
    except FileNotFoundError:
        raise InputError(f"{path}: is missing: bring it here, or make the folder anew") from None
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror or 'damaged'}") from None
    except Exception:  # numpy's parser raises many kinds on a hostile header
        raise InputError(f"{path}: cannot read as an array: damaged, or cut off") from None
    if str(array.dtype) != kind:
        raise InputError(f"{path}: holds {array.dtype}, but the description says {kind}")
    return array


def _check_shapes(shard: Shard, own: ShardDescription, whole: Description) -> None:
    expected = {"x": (own.count, whole.features), "starts": (own.count + 1,), "columns": (own.entries,)}
    for name, array in shard.arrays.items():
        shape = expected.get(name, (own.count, *array.shape[1:]))
        if array.shape != shape:
            raise InputError(f"{shard.folder / name}.npy: has shape {array.shape}, expected {shape}")
    starts, columns = shard.arrays["starts"], shard.arrays["columns"]
    if starts[0] != 0 or starts[-1] != len(columns) or bool((np.diff(starts) < 0).any()):
        raise InputError(f"{shard.folder / 'starts.npy'}: does not fit columns.npy: damaged")
    if len(columns):
        for value in (int(columns.min()), int(columns.max())):
            if not 0 <= value < whole.nodes:
                raise InputError(
                    f"{shard.folder / 'columns.npy'}: names node {value}, but nodes are 0..{whole.nodes - 1}"
                )
