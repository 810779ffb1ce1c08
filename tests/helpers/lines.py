"""A line of processes that are threads of this one."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
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
    def __init__(self, rank: int, size: int, table: list[Any], barrier: threading.Barrier) -> None:
        super().__init__()
        self.rank, self.size, self._table, self._barrier = rank, size, table, barrier

    def _all(self, x: Tensor) -> list[Tensor]:
        self._table[self.rank] = x.clone()
        self._barrier.wait(60)
        found = list(self._table)
        self._barrier.wait(60)
        return found

    def concat(self, rows: Tensor, counts: Sequence[int]) -> Tensor:
        return torch.cat(self._all(rows))

    def fill(self, whole: Tensor, counts: Sequence[int]) -> None:
        whole.copy_(torch.cat(self._all(whole.split(list(counts))[self.rank])))

    def sum(self, part: Tensor) -> Tensor:
        return torch.stack(self._all(part)).sum(0)

    def largest(self, part: Tensor) -> Tensor:
        return torch.stack(self._all(part)).amax(0)

    def broadcast(self, x: Tensor, source: int) -> Tensor:
        return self._all(x)[source].clone()


def on_threads(size: int, work: Callable[[Line], A]) -> list[A]:
    """What the work gives on each of so many members of a line."""
    table, barrier, found, errors = [None] * size, threading.Barrier(size), [None] * size, []

    def run(rank: int) -> None:
        try:
            found[rank] = work(ThreadLine(rank, size, table, barrier))  # type: ignore[call-overload]
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    return found  # type: ignore[return-value]


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
