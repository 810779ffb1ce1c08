"""A graph in Parquet tables, ``nodes*.parquet`` and ``edges*.parquet``, read a group of rows at a time.

Nodes: ``id`` (whole numbers or text; without it nodes are numbered in their order), ``label`` (whole numbers, null
where none is known), ``split`` (train, val or test, null for none; or boolean columns ``train_mask`` and so on), and
features: one column ``x`` of lists, or each other column a feature. Edges: ``source`` and ``target``, by the ids of
nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import InputError
from .checks import MASKS, as_tensor, check_labels
from .columns import ENDS, FEATURES, KNOWN, SPLITS
from .feature_names import check_lists_alone
from .graph_files import first_line
from .tables import NO_WEIGHTS, check_block, check_ends, encoded_ids, file_mark

Array = NDArray[Any]


def has_tables(folder: Path) -> bool:
    """Are there nodes in Parquet files?"""
    return bool(_files(folder, "nodes"))


def _files(folder: Path, kind: str) -> list[Path]:
    """``nodes*.parquet`` here, or all Parquet files of the folder ``nodes``; in the order of their names."""
    return sorted([*folder.glob(f"{kind}*.parquet"), *(folder / kind).glob("*.parquet")])


class _Rows:
    """The rows of several files, one after the other."""

    def __init__(self, files: list[Path], what: str, folder: Path) -> None:
        try:
            import pyarrow.parquet as pq
        except ImportError:
            raise InputError(f"{folder}: Parquet tables need pyarrow: pip install pyarrow") from None
        if not files:
            raise InputError(f"{folder}: there are no tables {what}*.parquet")
        self.files, self._opened = files, []
        for path in files:
            try:
                self._opened.append(pq.ParquetFile(path))
            except Exception:  # pyarrow raises many kinds on a damaged file
                raise InputError(f"{path}: cannot read as Parquet: damaged, or of another kind") from None
        self.names: list[str] = self._opened[0].schema_arrow.names
        for path, file in zip(files, self._opened, strict=True):
            if file.schema_arrow.names != self.names:
                raise InputError(f"{path}: has other columns than {files[0]}: give all tables the same")
        self.number = sum(file.metadata.num_rows for file in self._opened)

    def batches(self, columns: list[str], size: int) -> Iterator[tuple[Path, Any]]:
        """Blocks of so many rows at the most, each with the file that it is of."""
        for path, file in zip(self.files, self._opened, strict=True):
            with _reading(path):
                for batch in file.iter_batches(batch_size=size, columns=columns):
                    yield path, batch

    def column(self, name: str) -> Any:
        """One column of all rows, in memory."""
        import pyarrow as pa

        return pa.concat_arrays([batch.column(0) for _, batch in self.batches([name], 1 << 20)])

    def groups(self, start: int, stop: int, columns: list[str]) -> Iterator[tuple[Path, Any]]:
        """The rows from ``start`` to ``stop``, by the groups that they are stored in."""
        place = 0
        for path, file in zip(self.files, self._opened, strict=True):
            for number in range(file.metadata.num_row_groups):
                size = file.metadata.row_group(number).num_rows
                first, last = max(start, place), min(stop, place + size)
                if first < last:
                    with _reading(path):
                        group = file.read_row_group(number, columns=columns)
                    yield path, group.slice(first - place, last - first)
                place += size


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What pyarrow says of a file whose inside is damaged, in one line."""
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot read as Parquet: {first_line(error)}") from None


class ParquetFolder:
    """See :class:`~.tables.Table`."""

    def __init__(self, folder: Path) -> None:
        self._nodes, self._edges = (_Rows(_files(folder, kind), kind, folder) for kind in ("nodes", "edges"))
        self.nodes, self.number_of_edges = self._nodes.number, self._edges.number
        if self.nodes == 0:
            raise InputError(f"{self._nodes.files[0]}: there is no node")
        for name in ENDS:
            if name not in self._edges.names:
                raise InputError(f"{self._edges.files[0]}: column '{name}' is missing")
        if "weight" in self._edges.names:
            culprit, remedy = f"{self._edges.files[0]}: column 'weight'", "train on the tables with --nodes and --edges"
            raise InputError(f"{culprit}: {NO_WEIGHTS}, or {remedy}")
        self._features = [name for name in self._nodes.names if name not in KNOWN]
        if not self._features:
            raise InputError(f"{self._nodes.files[0]}: there are no features: a column 'x' of lists, or one for each")
        self.features = self.x(0, 1).shape[1]
        self.feature_names = None if self._lists else tuple(self._features)
        self.columns: dict[str, Array] = self._masks()
        if "label" in self._nodes.names:
            self.columns["y"] = self._labels()
        self._ids = self._own_ids()
        self.mark = file_mark([*self._nodes.files, *self._edges.files])

    def x(self, start: int, stop: int) -> Array:
        found = []
        for path, group in self._nodes.groups(start, stop, self._features):
            columns = [floats(group.column(name), f"{path}: column '{name}'") for name in self._features]
            self._lists = any(column.ndim == 2 for column in columns)
            if self._lists:
                check_lists_alone(self._features, str(path))
            found.append(columns[0] if columns[0].ndim == 2 else np.stack(columns, axis=1))
        if len({part.shape[1] for part in found}) > 1:
            raise InputError(f"{self._nodes.files[0]}: the lists of column 'x' differ in length")
        return check_block(np.concatenate(found), start, str(self._nodes.files[0]))

    def edges(self, size: int, skip: int) -> Iterator[tuple[Array, Array]]:
        for path, batch in self._edges.batches([*ENDS], size):
            if skip >= len(batch):
                skip -= len(batch)
                continue
            ends = [self._numbers(batch.column(place)[skip:], path) for place in (0, 1)]
            skip = 0
            yield ends[0], ends[1]

    def _numbers(self, ends: Any, path: Path) -> Array:
        """The numbers of nodes by their ids."""
        import pyarrow.compute as pc

        if ends.null_count:
            raise InputError(f"{path}: an edge has no source or no target")
        if self._ids is None:
            return check_ends(ends.to_numpy(zero_copy_only=False), self.nodes, str(path))
        try:
            found = pc.index_in(ends.cast(self._ids.type), value_set=self._ids)
        except Exception:
            raise InputError(f"{path}: holds {ends.type}, but the ids of nodes are {self._ids.type}") from None
        if found.null_count:
            unknown = ends.filter(pc.is_null(found))[0].as_py()
            raise InputError(f"{path}: names node {unknown!r}, which is not among the nodes")
        return found.to_numpy(zero_copy_only=False).astype(np.int64)

    def _own_ids(self) -> Any:
        """The ids of the nodes, where these are not their numbers; they go along as the column 'id'."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if "id" not in self._nodes.names:
            return None
        ids, culprit = self._nodes.column("id"), f"{self._nodes.files[0]}: column 'id'"
        if ids.null_count:
            raise InputError(f"{culprit} has a row without id")
        if (
            not pa.types.is_integer(ids.type)
            and not pa.types.is_string(ids.type)
            and not pa.types.is_large_string(ids.type)
        ):
            raise InputError(f"{culprit} must be whole numbers or text, not {ids.type}")
        if pa.types.is_integer(ids.type):
            numbers = ids.to_numpy(zero_copy_only=False).astype(np.int64)
            if np.array_equal(numbers, np.arange(self.nodes)):
                return None
            self.columns["id"] = numbers
        else:
            self.columns["id"] = encoded_ids(np.array(ids.to_pylist(), dtype=object))
        if pc.count_distinct(ids).as_py() < len(ids):
            counts = pc.value_counts(ids)
            twice = counts.filter(pc.greater(counts.field("counts"), 1))[0]["values"].as_py()
            raise InputError(f"{culprit} names node {twice!r} twice")
        return ids

    def _labels(self) -> Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        labels, culprit = self._nodes.column("label"), f"{self._nodes.files[0]}: column 'label'"
        if not (pa.types.is_integer(labels.type) or pa.types.is_floating(labels.type)):
            raise InputError(f"{culprit} must be whole numbers from 0 on, not {labels.type}: number the classes")
        given = as_tensor(pc.fill_null(labels, 0).to_numpy(zero_copy_only=False), f"{culprit} must be numbers")
        missing = torch.from_numpy(labels.is_null().to_numpy(zero_copy_only=False))
        given = given if given.is_floating_point() else given.long()  # of which -1 is one
        return check_labels(given.where(~missing, -1), self.nodes, culprit).numpy()

    def _masks(self) -> dict[str, Array]:
        import pyarrow as pa
        import pyarrow.compute as pc

        masks = {}
        for name in (name for name in MASKS if name in self._nodes.names):
            column = self._nodes.column(name)
            if not pa.types.is_boolean(column.type):
                raise InputError(f"{self._nodes.files[0]}: column '{name}' must be booleans, not {column.type}")
            masks[name] = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
        if "split" not in self._nodes.names:
            return masks
        column = self._nodes.column("split").dictionary_encode()
        names = np.array([SPLITS.get(str(word).lower(), "") for word in column.dictionary.to_pylist()] + [None])
        for word, name in zip(column.dictionary.to_pylist(), names, strict=False):
            if word and not name:
                raise InputError(f"{self._nodes.files[0]}: column 'split' has {word!r}; known: train, val, test")
        codes = pc.fill_null(column.indices, len(names) - 1).to_numpy(zero_copy_only=False)
        split = names[codes]
        return masks | {name: split == name for name in MASKS if name in names}


def floats(column: Any, culprit: str, remedy: str = f"; {FEATURES}") -> Array:
    """A column of numbers, or a matrix of one of lists of equal length. What is none is told with the ``remedy``."""
    import pyarrow as pa

    column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        flat = column.flatten()
        lengths = column.value_lengths().to_numpy(zero_copy_only=False)
        if column.null_count or flat.null_count or bool((lengths != lengths[:1]).any()):
            raise InputError(f"{culprit} must be lists of numbers, all of one length")
        return floats(pa.chunked_array([flat]), culprit, remedy).reshape(
            len(column), int(lengths[0]) if len(column) else 0
        )
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InputError(f"{culprit} must be numbers, not {kind}{remedy}")
    if column.null_count:
        raise InputError(f"{culprit} has a row without a value")
    return column.to_numpy(zero_copy_only=False).astype(np.float32)
