"""Rows of several processes, brought together in each, through shared memory and by messages; see also test_mesh."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from helpers.lines import ThreadLine, on_threads
from pdadmm_g.engine.gathering import Gatherer


def open_files() -> dict[str, Path]:
    return {link.name: link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}


@pytest.fixture
def nothing_left_open() -> Iterator[None]:
    before = open_files()
    yield
    assert open_files() == before


linux = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="memory without a name is had on Linux alone")


@linux
@pytest.mark.usefixtures("nothing_left_open")
@pytest.mark.parametrize("size", [2 * 4 * 3 * 9, 7, None], ids=["as large", "smaller", "nothing"])
def test_memory_of_another_process_is_not_taken_for_that_of_the_first(size: int | None) -> None:
    """As on another machine, where a process of the same number may have anything open, or nothing."""
    there = 10**6 if size is None else os.memfd_create("another")
    if size is not None:
        os.ftruncate(there, size)

    def work(line: ThreadLine) -> bool:
        broadcast = line.broadcast
        if line.rank == 1:
            line.broadcast = lambda x, source: broadcast(x, source).index_fill(0, torch.tensor(1), there)  # type: ignore[method-assign]
        return Gatherer(line, [1, 2], 9).in_memory  # type: ignore[arg-type]

    kinds = on_threads(2, work)
    if size is not None:
        os.close(there)
    assert kinds == [False, False]
