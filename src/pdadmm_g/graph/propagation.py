r"""Propagation over a graph, a block of feature columns at a time; needs no graph library, so that workers can do it.

.. math:: \tilde A = (D+I)^{-1/2} (A+I) (D+I)^{-1/2}

Where edges have weights or directions, see :func:`renormalized_adjacency`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:  # it takes long to import, and a worker that draws copies of a small graph does without
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
#: A sparse matrix; two of them, out and in, where each direction is an operator of its own.
Adjacency = Tensor | tuple[Tensor, Tensor]


def renormalized_adjacency(edge_index: Tensor, num_nodes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    r""":math:`\tilde A` as a sparse CSR tensor, :math:`A` being the undirected simple graph under ``edge_index``.

    Edges are symmetrised, duplicates count once, and given self-loops are dropped, since :math:`A + I` brings its own.
    """
    import scipy.sparse

    # 32-bit indices where they suffice: half the memory.
    kind = np.int32 if 2 * edge_index.shape[1] + num_nodes < 2**31 else np.int64
    row, col = edge_index.cpu().numpy().astype(kind)
    ones = np.ones(len(row), dtype=bool)
    A = scipy.sparse.coo_array((ones, (row, col)), shape=(num_nodes, num_nodes)).tocsr()
    A = A + A.T + scipy.sparse.eye_array(num_nodes, dtype=bool, format="csr")
    A.sort_indices()
    degrees_plus_one = np.diff(A.indptr)
    scale = torch.from_numpy(1 / np.sqrt(degrees_plus_one)).to(dtype).numpy()
    values = np.repeat(scale, degrees_plus_one)
    values *= scale[A.indices]
    starts, columns, weights = (torch.from_numpy(part).to(edge_index.device) for part in (A.indptr, A.indices, values))
    return csr(starts, columns, weights, (num_nodes, num_nodes))


def weighted_adjacency(
    edge_index: Tensor,
    num_nodes: int,
    dtype: torch.dtype = torch.float32,
    *,
    weights: Tensor | None = None,
    directed: Directed = "symmetric",
    self_loops: bool = True,
) -> Adjacency:
    r"""The same of a graph with weights or directions, or without the self-loops that :math:`A + I` brings.

    .. math:: \tilde A = (D_{out}+I)^{-1/2} (A+I) (D_{in}+I)^{-1/2}, \quad A_{ij} = w_{ij} / \bar w

    with the sums of the rows of A in :math:`D_{out}` and of its columns in :math:`D_{in}`. Weights of an edge that is
    there several times add up, and all are divided by their mean, so that their unit does not matter. ``symmetric``
    takes the larger of :math:`A_{ij}` and :math:`A_{ji}`: an edge may be listed once or both ways. ``out`` takes A as
    it is, a node getting what the nodes have that it points to; ``in`` its transpose, and ``both`` the two.
    """
    if weights is None and directed == "symmetric" and self_loops:
        return renormalized_adjacency(edge_index, num_nodes, dtype)
    W = summed(edge_index, num_nodes, weights)
    W.setdiag(0)
    W.eliminate_zeros()
    W.data = np.ones_like(W.data) if weights is None else W.data / (W.data.mean() if W.nnz else 1.0)
    matrices = {"symmetric": (W.maximum(W.T),), "out": (W,), "in": (W.T,), "both": (W, W.T)}[directed]
    found = [_normalised(part.tocsr(), dtype, self_loops).to(edge_index.device) for part in matrices]
    return (found[0], found[1]) if directed == "both" else found[0]


def summed(edge_index: Tensor, num_nodes: int, weights: Tensor | None) -> scipy.sparse.csr_array:
    """The sum of the weights of the edges, or how many there are, from each node to each other."""
    import scipy.sparse

    row, col = edge_index.cpu().numpy()
    values = np.ones(len(row))
    if weights is not None:
        values = weights.double().cpu().numpy()
        order = values.argsort(kind="stable")  # sums of the same numbers are the same whatever the order of the edges
        row, col, values = row[order], col[order], values[order]
    return scipy.sparse.coo_array((values, (row, col)), shape=(num_nodes, num_nodes)).tocsr()


def _normalised(W: scipy.sparse.csr_array, dtype: torch.dtype, self_loops: bool) -> Tensor:
    """Entries divided by the square roots of the sums of their row and of their column."""
    import scipy.sparse

    if self_loops:
        W = (W + scipy.sparse.eye_array(W.shape[0], format="csr")).tocsr()
    W.sort_indices()
    out, into = (np.asarray(W.sum(axis=axis)).ravel() for axis in (1, 0))
    out, into = (np.divide(1, np.sqrt(total), out=np.zeros_like(total), where=total > 0) for total in (out, into))
    values = np.repeat(out, np.diff(W.indptr)) * W.data * into[W.indices]
    starts, columns, values = (torch.from_numpy(part) for part in (W.indptr, W.indices, values))
    return csr(starts, columns, values.to(dtype), tuple(W.shape))


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


class Propagator(Protocol):
    """What takes features a step over the graph: the renormalised adjacency, or a process's rows of it."""

    def __matmul__(self, H: Tensor, /) -> Tensor: ...


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

    def __call__(self, A: Propagator | tuple[Propagator, Propagator] | None, H: Tensor) -> Iterator[Tensor]:
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

    def _one(self, A: Propagator, H: Tensor) -> Iterator[Tensor]:
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


def neighbourhood(A: Tensor | None, nodes: Tensor, reach: int) -> tuple[Tensor | None, Tensor | None]:
    """The nodes within so many edges of ``nodes``, in order, and their part of A; None and A where that is most nodes.

    Propagation over so many edges gives ``nodes`` the same from the part as from the whole.
    """
    if A is None:
        return None, None
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


def normalized(
    rows: Tensor, normalize: str, blocks: Sequence[int], mean: Tensor | None, scale: Tensor | None
) -> Tensor:
    """The propagated ``rows``, in ``blocks`` of so many columns, as the network takes them. Overwrites ``rows``.

    See :class:`~pdadmm_g.graph.augmentation.GraphAugment`.
    """
    if normalize in ("unit", "centered"):
        to_unit_length(rows, blocks)
    if normalize in LEARNED:
        assert mean is not None
        assert scale is not None
        rows.sub_(mean.to(rows.device)).div_(scale.to(rows.device))
    if normalize == "centered":
        to_unit_length(rows, blocks)
    return rows


def to_unit_length(rows: Tensor, blocks: Sequence[int]) -> None:
    """Scale each of the blocks, of so many columns, of each row to length 1; zero rows stay zero."""
    for block in rows.split([*blocks], dim=1):
        norm = torch.linalg.vector_norm(block, dim=1, keepdim=True)
        block.div_(norm.where(norm > 0, 1.0))


def column_blocks(x: Tensor, dtype: torch.dtype) -> Iterator[tuple[int, Tensor]]:
    """Consecutive column ranges of ``x`` as fresh dense tensors, each with its first column."""
    num_nodes, width = x.shape
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
