"""Processes that are threads: what is computed across a line, without the time that processes take to start."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from pdadmm_g.engine.team import Traffic


class ThreadLine:
    """One of several threads that stand in for a line of processes."""

    def __init__(self, rank: int, size: int, barrier: threading.Barrier, board: list[Any]) -> None:
        self.rank, self.size, self._barrier, self._board = rank, size, barrier, board
        self.traffic = Traffic()

    def _all(self, own: Any) -> list[Any]:
        self._board[self.rank] = own
        self._barrier.wait(60)
        found = list(self._board)
        self._barrier.wait(60)
        return found

    def sum(self, part: Tensor) -> Tensor:
        return torch.stack(self._all(part.clone())).sum(0)

    def gather(self, part: Tensor) -> Tensor:
        return torch.stack(self._all(part.clone()))

    def largest(self, part: Tensor) -> Tensor:
        return torch.stack(self._all(part.clone())).amax(0)

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        return self._all(x.clone())[source]

    def concat(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        parts = self._all(rows.clone())
        assert [len(part) for part in parts] == list(counts)
        return torch.cat(parts)

    def gatherer(self, counts: Sequence[int], columns: int) -> ThreadGatherer:
        return ThreadGatherer(self, counts, columns)


class ThreadGatherer:
    """Brings the rows of all threads together."""

    sent = shared = 0

    def __init__(self, line: ThreadLine, counts: Sequence[int], columns: int) -> None:
        self.line, self.counts, self.columns = line, counts, columns

    def __call__(self, own: Tensor) -> Tensor:
        assert own.shape[1] <= self.columns
        return self.line.concat(own, self.counts)

    def close(self) -> None:
        pass


def on_threads(size: int, work: Callable[[ThreadLine], Any]) -> list[Any]:
    """What each of so many threads returns; the error of the first that raised one."""
    barrier, board = threading.Barrier(size), [None] * size

    def guarded(rank: int) -> Any:
        try:
            return work(ThreadLine(rank, size, barrier, board))
        except threading.BrokenBarrierError:
            return None  # another one says why
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(guarded, range(size)))
