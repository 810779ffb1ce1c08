r"""Feature augmentation by multi-hop operators of the graph.

.. math:: \tilde A = (D+I)^{-1/2} (A+I) (D+I)^{-1/2}
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Literal

import scipy.sparse
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import coalesce, remove_self_loops, to_undirected

from .errors import InputError

#: Bytes that one dense block of feature columns may take during propagation.
BLOCK_BYTES = 64 * 2**20


def renormalized_adjacency(edge_index: Tensor, num_nodes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    r""":math:`\tilde A` as a sparse CSR tensor, :math:`A` being the undirected simple graph under ``edge_index``.

    Edges are symmetrised, duplicates count once, and given self-loops are dropped, since :math:`A + I` brings its own.
    """
    edges, _ = remove_self_loops(to_undirected(edge_index, num_nodes=num_nodes))
    loops = torch.arange(num_nodes, device=edges.device).expand(2, -1)
    degree_plus_one = torch.bincount(edges[0], minlength=num_nodes).to(dtype) + 1
    scale = degree_plus_one.rsqrt()
    row, col = coalesce(torch.cat([edges, loops], dim=1), num_nodes=num_nodes)
    starts = torch.cat([row.new_zeros(1), torch.bincount(row, minlength=num_nodes).cumsum(0)])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse (CSR tensor support is in beta|invariant checks)")
        return torch.sparse_csr_tensor(
            starts, col, scale[row] * scale[col], (num_nodes, num_nodes), check_invariants=False
        )


class GraphAugment(BaseTransform):
    r"""Multi-hop features, as a :class:`torch_geometric` transform that replaces ``data.x``.

    From "Towards Quantized Model Parallelism for Graph-Augmented MLPs Based on Gradient-Free ADMM Framework".

    ``mode="hops"`` stacks the powers side by side,

    .. math:: X = [H,\; \tilde A H,\; \ldots,\; \tilde A^{K-1} H],

    ``mode="average"`` takes their mean with a teleport :math:`\alpha` to the input,

    .. math:: X = \tfrac1K \sum_{k=1}^{K} \left( (1-\alpha) \tilde A^k H + \alpha H \right),

    and ``mode="none"`` leaves the graph out, :math:`X = H`.

    Args:
        mode: Which operators.
        hops: Their number K.
        teleport: The share alpha.
        row_normalize: Divide each row of H by the sum of its absolute values first.
        unit_norm: Scale each block of each row of X to Euclidean length 1. Zero rows stay zero.
    """

    def __init__(
        self,
        mode: Literal["none", "hops", "average"] = "hops",
        hops: int = 4,
        *,
        teleport: float = 0.05,
        row_normalize: bool = True,
        unit_norm: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if mode not in ("none", "hops", "average") or hops < 1:
            raise InputError(f"augmentation must be none, hops or average with at least one hop, got {mode!r}, {hops}")
        self.mode = mode
        self.hops = hops
        self.teleport = teleport
        self.row_normalize = row_normalize
        self.unit_norm = unit_norm
        self.dtype = dtype

    @property
    def blocks(self) -> int:
        """How many blocks of the input's width the output has."""
        return self.hops if self.mode == "hops" else 1

    def forward(self, data: Data) -> Data:
        data.x = self.features(data)
        return data

    def features(self, data: Data, nodes: Tensor | None = None) -> Tensor:
        """The augmented rows of ``nodes`` (all by default), dense.

        Propagates a block of feature columns at a time, so that memory stays near input plus output.
        """
        num_nodes, width = data.x.shape
        device = data.x.device
        A = None
        if self.mode != "none" and data.edge_index is not None:
            A = renormalized_adjacency(data.edge_index.to(device), num_nodes, self.dtype)
        rows = slice(None) if nodes is None else nodes.to(device)
        out = torch.empty(
            num_nodes if nodes is None else len(nodes), self.blocks * width, dtype=self.dtype, device=device
        )
        scale = _inverse_row_sums(data.x, self.dtype) if self.row_normalize else None
        for start, H in _column_blocks(data.x, self.dtype):
            if scale is not None:
                H *= scale
            stop = start + H.shape[1]
            for block, operated in enumerate(self._operators(A, H)):
                out[:, block * width + start : block * width + stop] = operated[rows]
        if self.unit_norm:
            for block in out.split(width, dim=1):
                norm = torch.linalg.vector_norm(block, dim=1, keepdim=True)
                block.div_(norm.where(norm > 0, 1.0))
        return out

    def _operators(self, A: Tensor | None, H: Tensor) -> Iterator[Tensor]:
        """psi_k(A) H for each block of the output."""
        if A is None:
            # Without edges A~ = I, and every operator leaves H as it is.
            yield from [H] * self.blocks
        elif self.mode == "hops":
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.mode!r}, {self.hops})"


def _column_blocks(x: Tensor, dtype: torch.dtype) -> Iterator[tuple[int, Tensor]]:
    """Consecutive column ranges of ``x`` as fresh dense tensors, each with its first column."""
    num_nodes, width = x.shape
    step = max(1, BLOCK_BYTES // max(1, num_nodes * dtype.itemsize))
    columns = _to_csc(x) if x.layout != torch.strided else None
    for start in range(0, width, step):
        if columns is None:
            block = x[:, start : start + step].to(dtype, copy=True)
        else:
            block = torch.from_numpy(columns[:, start : start + step].toarray()).to(x.device, dtype)
        yield start, block.contiguous()


def _to_csc(x: Tensor) -> scipy.sparse.csc_array:
    coo = x.to_sparse_coo().coalesce().cpu()
    return scipy.sparse.csc_array((coo.values().numpy(), tuple(coo.indices().numpy())), shape=tuple(coo.shape))


def _inverse_row_sums(x: Tensor, dtype: torch.dtype) -> Tensor:
    if x.layout == torch.strided:
        sums = torch.zeros(x.shape[0], dtype=torch.float64, device=x.device)
        for _, block in _column_blocks(x, dtype):
            sums += block.abs_().sum(1, dtype=torch.float64)
    else:
        sums = torch.from_numpy(abs(_to_csc(x)).sum(axis=1)).to(x.device, dtype)
    return (1 / sums.where(sums > 0, 1.0)).to(dtype).unsqueeze(1)
