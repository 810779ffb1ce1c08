"""Graphs that are read a block at a time: what ``pdadmm-g shard`` takes, whatever it is kept in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config import NODE_TABLES
from ..errors import InputError
from .checks import LARGEST, MASKS, as_mask, as_tensor, check_labels
from .targets import has_columns

Array = NDArray[Any]

#: What those are told who have them in a folder.
NO_WEIGHTS = "weights of edges are not for a folder of shards: leave them out"


class Table(Protocol):
    """A graph that can be read in blocks. Labels, masks and ids, a number a node, are in memory."""

    nodes: int
    features: int
    #: Those of the features, where they have any.
    feature_names: tuple[str, ...] | None
    #: What has a row a node beside the features: 'y', masks, 'id'.
    columns: dict[str, Array]
    #: Changes with the content, as far as that can be told without reading it.
    mark: str

    def x(self, start: int, stop: int) -> Array:
        """The features of some nodes, float32, checked."""
        ...

    def edges(self, size: int, skip: int) -> Iterator[tuple[Array, Array]]:
        """Blocks of so many edges at the most, after the first ``skip`` of all edges; checked node numbers."""
        ...

    @property
    def number_of_edges(self) -> int:
        """How many edges there are as they stand."""
        ...


def check_block(x: Array, first: int, culprit: str) -> Array:
    """Features of consecutive nodes from ``first`` on, as float32, or an :class:`InputError`."""
    if x.dtype.kind not in "biuf":
        raise InputError(f"{culprit}: features must be real numbers, not {x.dtype}")
    # Of whole numbers only those of 64 bits reach the limit; the smallest has no absolute value of its kind.
    wide = x.astype(np.float64) if x.dtype.kind in "iu" and x.dtype.itemsize == 8 else x
    largest = np.abs(wide).max(1) if wide.dtype.kind == "f" else np.zeros(1)
    if not bool((largest <= LARGEST).all()):
        bad = np.flatnonzero(~np.isfinite(largest))
        if len(bad):
            raise InputError(f"{culprit}: features contain NaN or infinity, first in row {first + int(bad[0])}")
        row = first + int(np.flatnonzero(largest > LARGEST)[0])
        raise InputError(f"{culprit}: features exceed {LARGEST:g}, first in row {row}: rescale them")
    return np.ascontiguousarray(x, dtype=np.float32)


def check_ends(ends: Array, nodes: int, culprit: str) -> Array:
    """Node numbers, or an :class:`InputError`."""
    if ends.dtype.kind not in "iu":
        raise InputError(f"{culprit}: edges must be whole numbers, not {ends.dtype}")
    if ends.size:
        for value in (int(ends.min()), int(ends.max())):
            if not 0 <= value < nodes:
                raise InputError(f"{culprit}: names node {value}, but nodes are 0..{nodes - 1}")
    return ends.astype(np.int64, copy=False)


def encoded_ids(ids: Array) -> Array:
    """What nodes are called, as a column of a shard: whole numbers, or text in UTF-8."""
    if ids.dtype.kind in "iu":
        return ids.astype(np.int64)
    return np.array([str(name).encode() for name in ids.tolist()])


def file_mark(files: list[Path]) -> str:
    """Changes when one of the files does."""
    stats = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr(stats).encode()).hexdigest()


class DataTable:
    """A graph that is in memory, already through :func:`~pdadmm_g.data.checks.check_graph`."""

    def __init__(self, data: Any, mark: str) -> None:
        self._x: Tensor = data.x
        self.nodes, self.features = data.x.shape
        self.feature_names: tuple[str, ...] | None = data.get("feature_names")
        self._ends = data.edge_index.cpu().numpy().astype(np.int64)
        self.number_of_edges = self._ends.shape[1]
        for name, what in (("edge_weight", "weights of edges"), ("label_names", "labels that are no whole numbers")):
            if data.get(name) is not None:
                raise InputError(f"{what} are not for a folder of shards: leave them out, or train on the one file")
        if has_columns(data):
            raise InputError("several labels or numbers a node are not for a folder of shards: train on the one file")
        if any(data[mask].ndim > 1 for mask in MASKS if mask in data):
            raise InputError(
                "masks of several splits are not for a folder of shards: give one, or train on the one file"
            )
        present = [name for name in ("y", *MASKS) if data.get(name) is not None]
        self.columns: dict[str, Array] = {name: data[name].cpu().numpy() for name in present}
        if data.get("ids") is not None:
            self.columns["id"] = encoded_ids(data.ids)
        self.mark = mark

    def x(self, start: int, stop: int) -> Array:
        rows = self._x if self._x.layout == torch.strided else self._x.to_sparse_coo()
        if rows.layout != torch.strided:
            rows = rows.index_select(0, torch.arange(start, stop))
            return rows.to_dense().float().numpy()
        return rows[start:stop].cpu().float().numpy()

    def edges(self, size: int, skip: int) -> Iterator[tuple[Array, Array]]:
        for start in range(skip, self.number_of_edges, size):
            sources, targets = self._ends[:, start : start + size]
            yield sources, targets


class ArrayFolder:
    """A folder of ``x.npy``, ``edge_index.npy`` and, if there are any, ``y.npy`` and masks, mapped from disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._x = self._mapped("x")
        if self._x.ndim != 2 or 0 in self._x.shape:
            raise InputError(f"{folder / 'x.npy'}: must be a matrix with at least one row and one column")
        self.nodes, self.features = self._x.shape
        self.feature_names: tuple[str, ...] | None = None
        self._ends = self._mapped("edge_index")
        if self._ends.ndim != 2 or 2 not in self._ends.shape:
            raise InputError(f"{folder / 'edge_index.npy'}: must have shape (2, edges) or (edges, 2)")
        if self._ends.shape[0] != 2:
            self._ends = self._ends.T
        self.number_of_edges = self._ends.shape[1]
        if (folder / "edge_weight.npy").exists():
            raise InputError(f"{folder / 'edge_weight.npy'}: {NO_WEIGHTS}, or train on one .npz file")
        self.columns: dict[str, Array] = {}
        present = [name for name in ("y", *MASKS) if (folder / f"{name}.npy").exists()]
        for name in present:
            culprit = str(folder / f"{name}.npy")
            given = as_tensor(np.array(self._mapped(name)), f"{culprit}: must be numbers")
            column = check_labels(given, self.nodes, culprit) if name == "y" else as_mask(given, self.nodes, culprit)
            self.columns[name] = column.numpy()
        self.mark = file_mark([folder / f"{name}.npy" for name in ("x", "edge_index", *present)])

    def _mapped(self, name: str) -> Array:
        path = self.folder / f"{name}.npy"
        try:
            return np.lib.format.open_memmap(path, mode="r")
        except OSError as error:
            raise InputError(f"{path}: cannot read: {error.strerror or 'damaged'}") from None
        except Exception:  # numpy's parser raises many kinds on a hostile header
            raise InputError(f"{path}: cannot read as an array of numbers: damaged, or of another kind") from None

    def x(self, start: int, stop: int) -> Array:
        return check_block(self._x[start:stop], start, str(self.folder / "x.npy"))

    def edges(self, size: int, skip: int) -> Iterator[tuple[Array, Array]]:
        culprit = str(self.folder / "edge_index.npy")
        for start in range(skip, self.number_of_edges, size):
            sources, targets = check_ends(np.asarray(self._ends[:, start : start + size]), self.nodes, culprit)
            yield sources, targets


def open_table(name: str, root: str | Path | None = None) -> Table:
    """The graph of that name: a data set, an .npz or .pt file, or a folder of arrays or of Parquet tables."""
    path = Path(name)
    if not path.is_dir():
        from .datasets import digest, load_dataset

        data = load_dataset(name, root)
        if data.edge_index is None:
            both = "put nodes.parquet and edges.parquet into a folder, and name that"
            missing = both if path.suffix in NODE_TABLES else "'edge_index' is missing"
            raise InputError(f"{name}: there are no edges: {missing}")
        return DataTable(data, digest(data))
    if (path / "x.npy").exists():
        return ArrayFolder(path)

    from .parquet import ParquetFolder, has_tables

    if has_tables(path):
        return ParquetFolder(path)
    raise InputError(f"{path}: holds neither x.npy nor tables nodes*.parquet and edges*.parquet")
