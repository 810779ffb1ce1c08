"""Propagation over a graph or a part of one, a block of feature columns at a time."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..engine.gathering import Gatherer
from .graph import Graph, node_keys
from .parts import Part, neighbours, part_of

if TYPE_CHECKING:
    import scipy.sparse

#: Bytes that one dense block of feature columns may take during propagation, and the fewest blocks and columns: three
#: such blocks are held beside input and output, and a product with fewer columns spends its time on the indices.
BLOCK_BYTES, BLOCKS, COLUMNS = 256 * 2**20, 8, 16
#: Features with a smaller share of entries that are not zero are multiplied as a sparse matrix: words
#: in a text are few of all words (1.3 % on Cora, where a step takes a twentieth of the time).
DENSE = 0.1
#: Which way features go along an edge: both ways alike, from target to source, the other way, or each by itself.
Directed = Literal["symmetric", "out", "in", "both"]
Mode = Literal["none", "hops", "apart", "average", "power"]
#: What is done to the rows in the end.
Normalization = Literal["none", "unit", "centered", "standard"]
#: By column means and scales that a transform learns.
LEARNED = ("centered", "standard")


class PartMatrix:
    """The rows of a matrix that a part has; ``@`` first brings together what the processes have of the other factor."""

    def __init__(self, rows: Tensor, part: Part) -> None:
        self.rows, self.line = rows, part.line
        self._counts = part.line.counts(part.count)
        self._gather: Gatherer | None = None
        self._columns = 0

    def __matmul__(self, H: Tensor, /) -> Tensor:
        step = max(COLUMNS, BLOCK_BYTES // (self.rows.shape[1] * H.element_size()))
        return torch.cat([self._times(block) for block in H.split(step, dim=1)], dim=1)

    def _times(self, H: Tensor) -> Tensor:
        if self._gather is None or self._columns < H.shape[1]:
            self._columns = H.shape[1]
            self._gather = Gatherer(self.line, self._counts, self._columns)
        return self.rows @ self._gather(H.contiguous())


#: A sparse matrix, or the own rows of one.
Matrix = Tensor | PartMatrix
#: Two of them, out and in, where each direction is an operator of its own.
Adjacency = Matrix | tuple[Matrix, Matrix]


def adjacency(
    data: Graph, dtype: torch.dtype = torch.float32, *, directed: Directed = "symmetric", self_loops: bool = True
) -> Adjacency:
    r"""The renormalised adjacency, on the device of the edges; of a part the rows of its nodes.

    .. math:: \tilde A = (D_{out}+I)^{-1/2} (A+I) (D_{in}+I)^{-1/2}, \quad A_{ij} = w_{ij} / \bar w

    with the sums of the rows of A in :math:`D_{out}` and of its columns in :math:`D_{in}`; without ``self_loops`` there
    is no I. Weights of an edge that is there several times add up, and all are divided by their mean, so that their
    unit does not matter; without weights an edge counts once. ``symmetric`` takes the larger of :math:`A_{ij}` and
    :math:`A_{ji}`: an edge may be listed once or both ways. ``out`` takes A as it is, a node getting what the nodes
    have that it points to; ``in`` its transpose, and ``both`` the two. Given self-loops are dropped.
    """
    import scipy.sparse

    part, own = part_of(data), neighbours(data, weighed=directed != "symmetric")
    line, shape = part.line, (part.count, data.num_nodes)
    device = None if data.edge_index is None else data.edge_index.device
    counts = line.counts(part.count)

    def matrix(*parts: NDArray[Any]) -> Matrix:
        starts, columns, values = (torch.from_numpy(each).to(device) for each in parts)
        rows = csr(starts, columns, values, shape)
        return rows if line.size == 1 else PartMatrix(rows, part)

    def everywhere(sums: NDArray[Any]) -> NDArray[Any]:
        return line.concat(torch.from_numpy(sums), counts).numpy()

    def weighing(values: NDArray[Any]) -> scipy.sparse.csr_array:
        A = scipy.sparse.csr_array((values, own.columns, own.starts), shape=shape)
        if not values.all():
            A = A.copy()
            A.eliminate_zeros()
        if self_loops:
            A = (A + scipy.sparse.eye_array(*shape, k=part.first, dtype=values.dtype, format="csr")).tocsr()
        A.sort_indices()
        return A

    if self_loops and directed == "symmetric" and own.out is None:
        A = weighing(np.ones(len(own.columns), dtype=bool))
        degrees = np.diff(A.indptr)
        scale = torch.from_numpy(1 / np.sqrt(everywhere(degrees))).to(dtype).numpy()
        values = np.repeat(scale[part.first : part.first + part.count], degrees)
        values *= scale[A.indices]
        return matrix(A.indptr, A.indices, values)
    there = np.ones(len(own.columns)) if own.out is None else own.out[own.out > 0]
    total, number = line.sum(torch.tensor([there.sum(), len(there)], dtype=torch.float64)).tolist()
    mean = total / number if number else 1.0
    out, into = (np.ones(len(own.columns)) if each is None else each / mean for each in (own.out, own.into))
    larger = np.maximum(out, into)
    ways = {"symmetric": [(larger, larger)], "out": [(out, into)], "in": [(into, out)]}
    ways["both"] = ways["out"] + ways["in"]
    found = []
    for along, against in ways[directed]:
        A = weighing(along)
        total_out, total_in = (
            everywhere(np.asarray(each.sum(axis=1)).ravel())
            for each in (A, A if along is against else weighing(against))
        )
        by_out, by_in = (
            np.divide(1, np.sqrt(total), out=np.zeros_like(total), where=total > 0) for total in (total_out, total_in)
        )
        values = np.repeat(by_out[part.first : part.first + part.count], np.diff(A.indptr)) * A.data * by_in[A.indices]
        found.append(matrix(A.indptr, A.indices, torch.from_numpy(values).to(dtype).numpy()))
    return (found[0], found[1]) if directed == "both" else found[0]


def csr(starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A sparse matrix by rows, without torch's checks and its remarks on such matrices."""
    with quiet():
        return torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Without torch's remarks on sparse matrices."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse (CSR tensor support is in beta|invariant checks)")
        yield


@dataclass(frozen=True)
class Operator:
    """What the graph makes of features, see :class:`~pdadmm_g.graph.augmentation.GraphAugment`."""

    mode: Mode
    hops: int
    teleport: float = 0.05
    #: Are there two matrices, one a direction, each of which does all of it?
    both: bool = False

    @property
    def blocks(self) -> int:
        """How many blocks of the input's width the output has."""
        if not self.both or self.mode == "none":
            return self.hops if self.stacks else 1
        return 2 * self.hops - 1 if self.stacks else 2

    @property
    def stacks(self) -> bool:
        """Are there blocks of the input and of each power side by side?"""
        return self.mode in ("hops", "apart")

    @property
    def reach(self) -> int:
        """How many edges away a node may be that has a say."""
        return {"none": 0, "hops": self.hops - 1, "apart": self.hops - 1}.get(self.mode, self.hops)

    def __call__(self, A: Adjacency | None, H: Tensor) -> Iterator[Tensor]:
        """psi_k(A) H for each block of the output."""
        if A is None or self.mode == "none":
            # Without edges A~ = I, and every operator leaves H as it is.
            yield from [H] * self.blocks
        elif isinstance(A, tuple):
            yield from self._one(A[0], H)
            back = self._one(A[1], H)
            if self.stacks:
                next(back)  # the input is there already
            yield from back
        else:
            yield from self._one(A, H)

    def _one(self, A: Matrix, H: Tensor) -> Iterator[Tensor]:
        """The blocks of one matrix."""
        if self.mode == "power":
            for _ in range(self.hops):
                H = A @ H
            yield H
        elif self.stacks:
            yield H
            for _ in range(self.hops - 1):
                H = A @ H
                yield H
        else:
            mean = self.teleport * H
            for _ in range(self.hops):
                H = A @ H
                mean.add_(H, alpha=(1 - self.teleport) / self.hops)
            yield mean


def put(out: Tensor, width: int, start: int, blocks: Iterable[Tensor], rows: Any = slice(None)) -> None:
    """Put some rows of each block, columns from ``start`` on, where they belong in ``out``, a ``width`` a block."""
    for place, block in enumerate(blocks):
        first = place * width + start
        out[:, first : first + block.shape[1]] = block[rows]


def neighbourhood(A: Matrix | None, nodes: Tensor, reach: int) -> tuple[Tensor | None, Matrix | None]:
    """The nodes within so many edges of ``nodes``, in order, and their part of A; None and A where that is most nodes.

    Propagation over so many edges gives ``nodes`` the same from the part as from the whole.
    """
    if not isinstance(A, Tensor):  # of a part nobody looks for them
        return None, A
    near = torch.zeros(len(A), 1, dtype=A.dtype, device=A.device)
    near[nodes] = 1
    for _ in range(reach):
        near = (A @ near + near > 0).to(A.dtype)  # a node itself also where A has no self-loops
    found = near.view(-1).nonzero().view(-1)
    if 2 * len(found) > len(A):
        return None, A
    import scipy.sparse

    values, columns, starts = (part.cpu().numpy() for part in (A.values(), A.col_indices(), A.crow_indices()))
    kept = found.cpu().numpy()
    part = scipy.sparse.csr_array((values, columns, starts), shape=tuple(A.shape))[kept][:, kept]
    indices = (each.astype(starts.dtype, copy=False) for each in (part.indptr, part.indices))
    own = [torch.from_numpy(each).to(A.device) for each in (*indices, part.data)]
    return found, csr(own[0], own[1], own[2], part.shape)


def to_unit_length(rows: Tensor, blocks: Sequence[int]) -> None:
    """Scale each of the blocks, of so many columns, of each row to length 1; zero rows stay zero."""
    for block in rows.split([*blocks], dim=1):
        norm = torch.linalg.vector_norm(block, dim=1, keepdim=True)
        block.div_(norm.where(norm > 0, 1.0))


def column_blocks(x: Tensor, dtype: torch.dtype, num_nodes: int = 0) -> Iterator[tuple[int, Tensor]]:
    """Consecutive column ranges of ``x``, rows of so many nodes in all, dense, each with its first column."""
    num_nodes, width = num_nodes or len(x), x.shape[1]
    step = max(1, min(BLOCK_BYTES // max(1, num_nodes * dtype.itemsize), max(COLUMNS, -(-width // BLOCKS))))
    columns = to_csc(x) if x.layout != torch.strided else None
    for start in range(0, width, step):
        if columns is None:
            block = x[:, start : start + step].to(dtype, copy=True, memory_format=torch.contiguous_format)
        else:
            block = torch.from_numpy(columns[:, start : start + step].toarray()).to(x.device, dtype)
        yield start, block.contiguous()


def to_csc(x: Tensor) -> scipy.sparse.csc_array:
    """The sparse matrix for scipy, which has no half precision."""
    import scipy.sparse

    coo = x.to_sparse_coo().coalesce().cpu()
    values = coo.values().float() if coo.dtype in (torch.float16, torch.bfloat16) else coo.values()
    return scipy.sparse.csc_array((values.numpy(), tuple(coo.indices().numpy())), shape=tuple(coo.shape))


def inverse_row_sums(x: Tensor, dtype: torch.dtype) -> Tensor:
    """One over the sum of the absolute values of each row, as a column; 1 for rows of zeros."""
    if x.layout == torch.strided:
        sums = torch.zeros(x.shape[0], dtype=torch.float64, device=x.device)
        for _, block in column_blocks(x, dtype):
            sums += block.abs_().sum(1, dtype=torch.float64)
    else:
        sums = torch.from_numpy(abs(to_csc(x)).sum(axis=1)).to(x.device, dtype)
    return inverse(sums, dtype).unsqueeze(1)


def inverse(sums: Tensor, dtype: torch.dtype) -> Tensor:
    """One over each sum, 1 where it is zero; of a sum that is next to nothing the largest number that there is."""
    return (1 / sums.where(sums > 0, 1.0)).to(dtype).clamp(max=torch.finfo(dtype).max)


# -------------------------------------------------------------------------------------------------- known labels

PARTS = 5


class KnownLabels(NamedTuple):
    r"""The targets of some nodes, named by their keys (:func:`~.graph.node_keys`): those of neighbours are features.

    .. math:: x_i^{(k)} = \frac{\sum_j (P^k)_{ij} t_j}{\sum_j (P^k)_{ij}}, \quad P = D^{-1/2} A D^{-1/2}, \quad
              k = 1, \ldots, K

    The sums are over the nodes j whose target :math:`t_j` is known; where there is none, x is 0. A node's own target is
    never part of its features: nodes with a known target are dealt into five parts by their ids, and for a node of one
    part only targets of the four others count. So rows that train are made as those that are predicted.
    """

    keys: Tensor
    #: A column a class, label or number (nodes, columns).
    targets: Tensor
    #: The sums of their features, which tell whether a graph without ids is the one that the targets are of.
    sums: Tensor

    @classmethod
    def of(cls, data: Graph, nodes: Tensor, targets: Tensor) -> KnownLabels:
        """The targets of these nodes of a graph."""
        return cls(torch.from_numpy(node_keys(data)[nodes.numpy()].copy()), targets.float(), _sums(data, nodes))

    def check(self) -> None:
        """Raise a ValueError if these, which somebody else may have written, are none."""
        keys, targets, sums = self
        kinds = (keys.dtype == torch.int64, targets.is_floating_point(), sums.is_floating_point())
        if not all(kinds) or (keys.ndim, targets.ndim, sums.ndim) != (1, 2, 1):
            raise ValueError("its known labels are none")
        if not 0 < len(keys) == len(targets) == len(sums) or len(keys.unique()) < len(keys):
            raise ValueError("its known labels do not fit each other")

    def rows(self, data: Graph, nodes: Tensor | None, hops: int) -> Tensor:
        """The features of ``nodes`` (all by default) in a graph that has some of the known ones: a block a hop."""
        keys, width = node_keys(data), self.targets.shape[1]
        place = self._places(data, keys)
        part = np.where(place >= 0, _parts(keys), -1)
        here = part_of(data)
        nodes = torch.arange(len(keys)) if nodes is None else nodes.cpu()
        asked, own_part = here.own(nodes), slice(here.first, here.first + here.count)
        P = adjacency(data, self_loops=False)
        assert not isinstance(P, tuple)
        P = P.cpu() if isinstance(P, Tensor) else P
        found = torch.zeros(len(asked), hops, width)
        for own in np.unique(part[nodes]):
            counted = torch.from_numpy(np.flatnonzero(((place >= 0) & (part != own))[own_part]))
            H = torch.zeros(here.count, width + 1)
            H[counted, :width] = self.targets[torch.from_numpy(place[own_part])[counted]]
            H[counted, width] = 1.0
            rows = np.flatnonzero(part[own_part][asked] == own)
            where = asked[torch.from_numpy(rows)]
            for hop in range(hops):
                with quiet():
                    H = P @ H
                sums, total = H[where].split([width, 1], dim=1)
                found[torch.from_numpy(rows), hop] = torch.where(total > 0, sums / total, 0.0)
        return found.flatten(1).to(data.x.device)

    def _places(self, data: Graph, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where each node of a graph is among the known ones; -1 for all others."""
        import pandas as pd

        nobody = np.full(len(keys), -1)
        if data.get("ids") is None:
            if int(self.keys.max()) >= len(keys) or not torch.allclose(_sums(data, self.keys), self.sums, rtol=1e-5):
                return nobody  # it is another graph
            nobody[self.keys.numpy()] = np.arange(len(self.keys))
            return nobody
        found: NDArray[np.int64] = pd.Index(self.keys.numpy()).get_indexer(pd.Index(keys))
        return found


def _parts(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The part of each node, whatever the others are."""
    import pandas as pd

    return (pd.util.hash_array(keys) % np.uint64(PARTS)).astype(np.int64)


def _sums(data: Graph, nodes: Tensor) -> Tensor:
    part, x = part_of(data), data.x.cpu()
    own = part.own(nodes.cpu())
    x = (x if x.layout == torch.strided else x.to_sparse_coo()).index_select(0, own)
    sums = x.to_dense().double().sum(1) if x.layout == torch.strided else torch.sparse.sum(x.double(), 1).to_dense()
    return part.together(nodes, sums)
