"""Matrices that are made a block of columns at a time and read by rows, or the other way, and never all in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..utils import writing

#: Bytes of features that prediction holds at a time: those that take more wait in a temporary file.
PREDICT_BYTES = 2**30
#: What the files are for.
FEATURES, AUGMENTED = "the features", "the augmented features"


class Piece(NamedTuple):
    """Where a block of columns is: its place among the columns, their number, and its first byte in the file."""

    first: int
    columns: int
    offset: int


@contextmanager
def column_file(rows: int, dtype: torch.dtype) -> Iterator[ColumnFile]:
    """One that is there for a while. Its file has no name, and is gone with the process whatever ends that."""
    with _opened(AUGMENTED) as file:
        yield ColumnFile(file, rows, dtype)


class ColumnFile:
    """So many rows of a matrix in a file, one block of columns after the other: each byte is written once."""

    def __init__(self, file: Any, rows: int, dtype: torch.dtype) -> None:
        self._file, self._rows, self._dtype = file, rows, dtype
        self._pieces: list[Piece] = []

    def append(self, first: int, block: Tensor) -> None:
        """Add the columns from ``first`` on."""
        self._pieces.append(Piece(first, block.shape[1], self._file.seek(0, 2)))
        _write(self._file, _bytes(block.to("cpu", self._dtype).contiguous()), AUGMENTED)

    def rows(self, start: int, stop: int) -> Tensor:
        """Some rows, all of their columns."""
        stop = min(stop, self._rows)
        found = torch.empty(stop - start, sum(piece.columns for piece in self._pieces), dtype=self._dtype)
        for first, columns, offset in self._pieces:
            block = torch.empty(stop - start, columns, dtype=self._dtype)
            self._file.seek(offset + start * columns * self._dtype.itemsize)
            content = _bytes(block)
            while content:
                content = content[self._file.readinto(content) :]
            found[:, first : first + columns] = block
        return found


def by_columns(pieces: Iterable[NDArray[Any]], rows: int, columns: int, dtype: np.dtype[Any]) -> Tensor:
    """The matrix whose rows come in pieces, mapped from a file of its own, in which column stands after column.

    Who takes a block of columns at a time reads each byte once. The file has no name, and is gone with the tensor.
    """
    with _opened(FEATURES) as file:
        first = 0
        for piece in pieces:
            for column, values in enumerate(piece.T.copy()):
                file.seek((column * rows + first) * dtype.itemsize)
                _write(file, values.view(np.uint8).data, FEATURES)
            first += len(piece)
        try:
            mapped = np.memmap(file, dtype, "r+", shape=(columns, rows))
        except OSError:  # all bytes are there: it is the addresses that are not
            raise MemoryError from None
    return torch.from_numpy(mapped).T


def _opened(what: str) -> Any:
    """A file without a name; on a full disk there may be no folder that takes one."""
    with writing(Path("a temporary file"), _remedy(what)):
        return tempfile.TemporaryFile(buffering=0)


def _write(file: Any, content: memoryview, what: str) -> None:
    # Written, not mapped: on a full disk a mapped page would end the process.
    with writing(Path(tempfile.gettempdir()), _remedy(what)):
        while content:
            content = content[file.write(content) :]


def _remedy(what: str) -> str:
    return f"; TMPDIR names a folder with room for {what}"


def _bytes(block: Tensor) -> memoryview:
    return block.view(-1).view(torch.uint8).numpy().data
