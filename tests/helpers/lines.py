"""A line of processes that are threads of this one."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from pdadmm_g.engine.team import Line
from pdadmm_g.graph.examples import shares
from pdadmm_g.graph.graph import Graph
from pdadmm_g.graph.parts import Neighbours, Part, are_directed, neighbours, pairs

A = TypeVar("A")


class ThreadLine(Line):
    """One of several threads that stand in for a line of processes, without the time that processes take to start."""

    def __init__(self, rank: int, size: int, barrier: threading.Barrier, board: list[Any]) -> None:
        super().__init__()
        self.rank, self.size, self._barrier, self._board = rank, size, barrier, board

    def _all(self, own: Tensor) -> list[Tensor]:
        self._board[self.rank] = own.clone()
        self._barrier.wait(60)
        found = list(self._board)
        self._barrier.wait(60)
        return found

    def concat(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        parts = self._all(rows)
        assert [len(part) for part in parts] == list(counts)
        return torch.cat(parts)

    def fill(self, whole: Tensor, counts: Sequence[int]) -> None:
        whole.copy_(self.concat(whole.split(list(counts))[self.rank], counts))

    def gather(self, part: Tensor) -> Tensor:
        return torch.stack(self._all(part))

    def sum(self, part: Tensor) -> Tensor:
        return self.gather(part).sum(0)

    def largest(self, part: Tensor) -> Tensor:
        return self.gather(part).amax(0)

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        return self._all(x)[source].clone()


def on_threads(size: int, work: Callable[[ThreadLine], A]) -> list[A]:
    """What the work gives on each of so many members of a line; the error of the first that raised one."""
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


def part_for(data: Graph, line: Line) -> Graph:
    """The part of a checked graph in memory that a member of a line has."""
    own, whole = shares(data.num_nodes, line.size)[line.rank], neighbours(data, weighed=True)
    keeps = are_directed(data) or data.get("edge_weight") is not None
    first, last = whole.starts[own.start], whole.starts[own.stop]
    values = [each[first:last] if keeps and each is not None else None for each in (whole.out, whole.into)]
    rows = Neighbours(np.asarray(whole.starts[own.start : own.stop + 1]) - first, whole.columns[first:last], *values)
    part = copy.copy(data)
    part.x, part.num_nodes, part.part, part.neighbours = data.x[own.start : own.stop], data.num_nodes, None, rows
    part.part = Part(own.start, len(own), line)
    part.directed, part.listed = are_directed(data), data.edge_index.shape[1]
    part.edges = pairs(data).shape[1]
    part.edge_index = part.edge_weight = None
    return part
