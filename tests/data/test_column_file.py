from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from pdadmm_g.data.column_file import ColumnFile, column_file
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
