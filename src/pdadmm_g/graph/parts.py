"""A graph is a sequence of parts, each of consecutive nodes: one in memory, one a process of a folder of shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..engine.team import Line
from .graph import Graph

if TYPE_CHECKING:
    import scipy.sparse


@dataclass(frozen=True)
class Part:
    """The nodes whose features and edges this process has; the processes of the ``line`` have all others."""

    first: int
    count: int
    line: Line

    def has(self, nodes: Tensor) -> Tensor:
        """Which of some nodes are its own, a mask."""
        return (nodes >= self.first) & (nodes < self.first + self.count)

    def own(self, nodes: Tensor) -> Tensor:
        """Its own among some nodes, counted from its first one."""
        return nodes if self.line.size == 1 else nodes[self.has(nodes)] - self.first

    def together(self, nodes: Tensor, rows: Tensor) -> Tensor:
        """The rows of all of the ``nodes``, on every process, from those of its own nodes on each."""
        if self.line.size == 1:
            return rows
        counts = counts_of(self.line, len(rows))
        lasts = torch.tensor(counts_of(self.line, self.first + self.count))
        out = rows.new_empty(len(nodes), *rows.shape[1:])
        out[torch.bucketize(nodes.cpu(), lasts, right=True).argsort(stable=True)] = self.line.concat(rows, counts)
        return out


class Neighbours(NamedTuple):
    """Who is joined with whom, as compressed rows of the nodes of a part; no node with itself.

    The neighbours of its i-th node, in order, are ``columns[starts[i]:starts[i + 1]]``.
    """

    starts: NDArray[Any]
    columns: NDArray[Any]
    #: What the edges to each neighbour weigh together, and those from it; 0 where there is none that way. None where
    #: edges have neither weights nor directions.
    out: NDArray[np.float64] | None = None
    into: NDArray[np.float64] | None = None

    def ends(self, first: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Both nodes of each entry; the ``first`` node of the part has the first row."""
        return np.repeat(np.arange(first, first + len(self.starts) - 1), np.diff(self.starts)), self.columns


def part_of(data: Graph) -> Part:
    """The part of a graph that is here: all of one in memory."""
    part: Part | None = data.get("part")
    return Part(0, data.num_nodes, Line()) if part is None else part


def has_edges(data: Graph) -> bool:
    """Does the graph have edges, on whichever process?"""
    if data.edge_index is not None:
        return data.edge_index.numel() > 0
    return bool(data.get("edges"))


def neighbours(data: Graph, *, weighed: bool) -> Neighbours:
    """Those of the own nodes; ``weighed`` with what edges weigh each way, where that is not the same for all."""
    found: Neighbours | None = data.get("neighbours")
    if found is not None:
        return found
    import scipy.sparse

    number, weights = data.num_nodes, data.get("edge_weight")
    row, col = data.edge_index.cpu().numpy()
    if not weighed and weights is None:
        # 32-bit indices where they suffice: half the memory.
        kind = np.int32 if 2 * len(row) + number < 2**31 else np.int64
        apart = row != col
        row, col = row[apart].astype(kind), col[apart].astype(kind)
        A = scipy.sparse.coo_array((np.ones(len(row), dtype=bool), (row, col)), shape=(number, number)).tocsr()
        A = A + A.T
        A.sort_indices()
        return Neighbours(A.indptr, A.indices)
    W = summed(data.edge_index, number, weights)
    W.setdiag(0)
    W.eliminate_zeros()
    if weights is None:
        W.data[:] = 1
    pattern = (W + W.T).tocsr()
    pattern.sort_indices()
    found = Neighbours(pattern.indptr, pattern.indices)
    places = np.ravel_multi_index(found.ends(0), pattern.shape)
    out, into = (np.zeros(len(places)) for _ in range(2))
    for values, matrix in ((out, W), (into, W.T.tocsr())):
        matrix.sort_indices()
        ends = Neighbours(matrix.indptr, matrix.indices).ends(0)
        values[np.searchsorted(places, np.ravel_multi_index(ends, pattern.shape))] = matrix.data
    return found._replace(out=out, into=into)


def summed(edge_index: Tensor, number: int, weights: Tensor | None = None) -> scipy.sparse.csr_array:
    """The sum of the weights of the edges, or how many there are, from each of so many nodes to each other."""
    import scipy.sparse

    row, col = edge_index.cpu().numpy()
    values = np.ones(len(row))
    if weights is not None:
        values = weights.double().cpu().numpy()
        order = values.argsort(kind="stable")  # sums of the same numbers are the same whatever the order of the edges
        row, col, values = row[order], col[order], values[order]
    return scipy.sparse.coo_array((values, (row, col)), shape=(number, number)).tocsr()


def counts_of(line: Line, number: int) -> list[int]:
    """How many each process of a line has, on all of them."""
    return line.concat(torch.tensor([number]), [1] * line.size).tolist()
