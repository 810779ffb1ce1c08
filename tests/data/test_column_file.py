from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pdadmm_g.data.column_file import ColumnFile, by_columns, column_file
from pdadmm_g.errors import InputError


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_blocks_of_columns_in_any_order_are_rows_again(dtype: torch.dtype) -> None:
    whole = torch.randn(7, 10).to(dtype)
    with column_file(7, dtype) as file:
        for start, stop in ((3, 4), (4, 10), (0, 3)):
            file.append(start, whole[:, start:stop])
        assert torch.equal(torch.cat([file.rows(start, start + 3) for start in (0, 3, 6)]), whole)


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Full:
        def __getattr__(self, name: str) -> Any:
            return lambda *_: 0

        def write(self, _: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    with pytest.raises(InputError, match=r"No space left on device; TMPDIR"):
        ColumnFile(Full(), 2, torch.float32).append(0, torch.zeros(2, 2))


def test_no_folder_for_temporary_files_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(**_: Any) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "TemporaryFile", nowhere)
    with pytest.raises(InputError, match=r"^a temporary file: cannot write: No usable .*; TMPDIR names a folder"):
        column_file(1, torch.float32).__enter__()
    with pytest.raises(InputError, match=r"^a temporary file: cannot write: No usable .*; TMPDIR names a folder"):
        by_columns([], 1, 1, np.dtype(np.float32))


def test_rows_in_pieces_are_mapped_column_after_column(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.random.default_rng(0).standard_normal((7, 3))
    found = by_columns([whole[:4], whole[4:5], whole[5:]], 7, 3, whole.dtype)
    assert found.stride() == (1, 7)
    assert np.array_equal(found.numpy(), whole)

    def no_addresses(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(np, "memmap", no_addresses)
    with pytest.raises(MemoryError):
        by_columns([whole], 7, 3, whole.dtype)
