"""Rows that are made a block of columns at a time and read a block of rows at a time, and never all in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..files import writing


class Piece(NamedTuple):
    """Where a block of columns is: its place among the columns, their number, and its first byte in the file."""

    first: int
    columns: int
    offset: int


@contextmanager
def column_file(rows: int, dtype: torch.dtype) -> Iterator[ColumnFile]:
    """One that is there for a while. Its file has no name, and is gone with the process whatever ends that."""
    with tempfile.TemporaryFile(buffering=0) as file:
        yield ColumnFile(file, rows, dtype)


class ColumnFile:
    """So many rows of a matrix in a file, one block of columns after the other: each byte is written once."""

    def __init__(self, file: Any, rows: int, dtype: torch.dtype) -> None:
        self._file, self._rows, self._dtype = file, rows, dtype
        self._pieces: list[Piece] = []

    def append(self, first: int, block: Tensor) -> None:
        """Add the columns from ``first`` on."""
        self._pieces.append(Piece(first, block.shape[1], self._file.seek(0, 2)))
        content = _bytes(block.to("cpu", self._dtype).contiguous())
        # Written, not mapped: on a full disk a mapped page would end the process.
        with writing(Path(tempfile.gettempdir()), "; TMPDIR names a folder with room for the augmented features"):
            while content:
                content = content[self._file.write(content) :]

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


def _bytes(block: Tensor) -> memoryview:
    return block.view(-1).view(torch.uint8).numpy().data
