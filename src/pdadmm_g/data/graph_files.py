"""Graphs from ``.npz`` and ``.pt`` files that somebody else may have written."""

from __future__ import annotations

import math
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError
from .checks import MASKS, as_tensor
from .column_file import PREDICT_BYTES, by_columns
from .graph import Graph, pyg_records

#: What is read of an .npz.
ARRAYS = ("x", "edge_index", "edge_weight", "y", *MASKS)


def load_file(path: Path, *, streamed: bool = False) -> Graph:
    """A graph from an ``.npz`` (x, edge_index, edge_weight, y, masks) or a saved ``torch_geometric`` ``Data``.

    Nothing in the file is executed: arrays only, no pickled code. ``streamed`` is for features of an ``.npz`` that are
    not to be in memory, see :func:`~pdadmm_g.data.datasets.load_dataset`.
    """
    check_file(path)
    data = _load_npz(path, streamed) if path.suffix == ".npz" else _load_pt(path)
    if data.x is None and data.edge_index is None and data.get("adj_t") is None:
        raise InputError(f"{path}: features 'x' are missing")
    return data


def check_file(path: Path) -> None:
    """Raise unless there is such a file."""
    try:
        found = path.is_file()
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror}") from None
    if not found:
        raise InputError(f"{path}: no such file")


def _load_npz(path: Path, streamed: bool) -> Graph:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            arrays = {}
            _warn_unknown(path, names)
            for name in ARRAYS:
                member = f"{name}.npy"
                if names.count(member) > 1:
                    raise InputError(f"{path}: holds '{name}' twice")
                if member in names:
                    large = PREDICT_BYTES if streamed and name == "x" else None
                    arrays[name] = _read_member(archive, member, f"{path}: '{name}'", large)
            return Graph(**arrays)
    except OSError as error:
        raise InputError(f"{path}: cannot read: {error.strerror or 'damaged'}") from None
    except (zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError, EOFError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot read as .npz arrays: not such an archive, or a damaged one") from None


def _warn_unknown(path: Path, members: list[str]) -> None:
    """A name with a slip of the pen must not pass for an array that is not there."""
    unknown = sorted({member.removesuffix(".npy") for member in members} - set(ARRAYS))
    if unknown:
        names = ", ".join(map(repr, unknown[:5])) + (", ..." if len(unknown) > 5 else "")
        warnings.warn(f"{path}: {names} is not used; the arrays of a graph are {', '.join(ARRAYS)}", stacklevel=2)


#: Deflate packs a byte into no less than 1/1032 of one.
DEFLATE_RATIO = 1032
#: Bytes of rows that are read at a time where not all are.
PIECE_BYTES = 2**26


def _read_member(archive: zipfile.ZipFile, member: str, culprit: str, large: int | None = None) -> Tensor:
    """One array of an ``.npz``. Its size is checked against the bytes that are there before memory is taken for it.

    A matrix of fractions, row after row, of more than ``large`` bytes stays out of memory; all else is read whole.
    """
    info = archive.getinfo(member)
    damaged = InputError(f"{culprit} cannot be read as an array: damaged, or of another kind")
    packed = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: DEFLATE_RATIO}.get(info.compress_type, 0)
    if info.file_size > packed * info.compress_size + DEFLATE_RATIO:
        raise InputError(f"{culprit} claims more bytes than the file can hold")
    try:
        with archive.open(info) as file:
            version = np.lib.format.read_magic(file)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, by_column, dtype = read(file)
            start = file.tell()
            size = start + math.prod(shape) * dtype.itemsize
    except Exception:  # numpy's parser raises many kinds on a hostile header
        raise damaged from None
    if dtype.kind not in "biufc":
        kind = {"U": "text", "S": "text", "O": "Python objects"}.get(dtype.kind, str(dtype))
        raise InputError(f"{culprit} must be an array of numbers, not {kind}")
    if size != info.file_size or min(shape, default=0) < 0:
        raise InputError(f"{culprit} has a header of shape {shape}, which does not fit its {info.file_size} bytes")
    plain = not by_column and dtype in (np.float16, np.float32, np.float64)
    try:
        with archive.open(info) as file:
            if plain and len(shape) == 2 and large is not None and size - start > large:
                file.read(start)
                return by_columns(_row_pieces(file, *shape, dtype), *shape, dtype)
            array = np.lib.format.read_array(file, allow_pickle=False)
    except MemoryError:
        raise InputError(f"{culprit} does not fit in memory") from None
    except InputError:
        raise
    except Exception:
        raise damaged from None
    return as_tensor(array, f"{culprit} must be an array of numbers")


def _row_pieces(file: IO[bytes], rows: int, width: int, dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    """The rows of a matrix; a ValueError where the file ends too early, and ``zipfile``'s if the sum is wrong."""
    step = max(1, PIECE_BYTES // (width * dtype.itemsize))
    for first in range(0, rows, step):
        number = min(step, rows - first)
        yield np.frombuffer(file.read(number * width * dtype.itemsize), dtype).reshape(number, width)


def _load_pt(path: Path) -> Graph:
    try:
        try:
            data = _loaded(path, {Graph})
        except Exception as error:
            if "torch_geometric" not in str(error):
                raise
            data = _loaded(path, {Graph, *pyg_records()})
        if not isinstance(data, Graph) and hasattr(data, "to_dict"):
            data = Graph(**data.to_dict())  # fails here, if ever, where the record is incomplete
    except InputError:
        raise
    except Exception as error:  # the unpickler raises many kinds on a hostile file, and none may get past here
        memory = isinstance(error, MemoryError) or "allocate" in str(error)
        reason = "it does not fit in memory" if memory else "damaged, or it holds more than tensors"
        raise InputError(f"{path}: cannot read as a saved torch_geometric Data: {reason}") from None
    if not isinstance(data, Graph):
        raise InputError(f"{path}: holds a {type(data).__name__}, expected a torch_geometric Data")
    return data


def _loaded(path: Path, records: set[type]) -> Any:
    """What a file holds of tensors, plain values and these types, and nothing else."""
    # Only what is not allowed yet: on leaving, torch forbids again what is named here, torch_geometric's own included.
    with torch.serialization.safe_globals(list(records - set(torch.serialization.get_safe_globals()))):
        return torch.load(path, map_location="cpu", weights_only=True)


def first_line(error: Exception) -> str:
    """The first line of an error's text, or its kind where it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]
