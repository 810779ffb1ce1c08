"""Principal directions of features: fewer numbers a node, nearly the same distances after propagation."""

from __future__ import annotations

import torch
from torch import Tensor

from .propagation import BLOCK_BYTES, DENSE, column_blocks, inverse_row_sums, neighbourhood, quiet

#: So many nodes at the most, evenly spaced, say which directions matter, after this many steps over the graph.
SAMPLE, HOPS = 20_000, 2
#: Iterations, and directions beyond those that are kept, which make them accurate.
ITERATIONS, EXTRA = 2, 32


def principal_directions(H: Tensor, A: Tensor | None, number: int) -> Tensor:
    r"""An orthonormal basis (features, ``number``) of the directions in which :math:`\tilde A^2 H` is longest.

    By subspace iteration from random directions, in single precision.
    """
    nodes = torch.arange(0, len(H), -(-len(H) // SAMPLE))
    near, A = neighbourhood(A, nodes, HOPS)
    if near is not None:
        H, nodes = _some(H, near), torch.searchsorted(near, nodes)

    def onto(M: Tensor) -> Tensor:
        """A^2 H M, of the sample."""
        return _propagated(A, H @ M)[nodes]

    def back(Y: Tensor) -> Tensor:
        """(A^2 H)^T Y."""
        whole = torch.zeros(len(H), Y.shape[1], dtype=Y.dtype).index_copy_(0, nodes, Y)
        return turned @ _propagated(A, whole)  # A is symmetric

    with quiet():
        turned = H.mT.to_sparse_csr() if H.layout != torch.strided else H.mT
        width = min(number + EXTRA, *H.shape, len(nodes))
        basis = torch.randn(H.shape[1], width, generator=torch.Generator().manual_seed(0), dtype=H.dtype)
        for _ in range(ITERATIONS):
            basis = torch.linalg.qr(back(onto(basis)))[0]
        image = onto(basis).double()
        _, axes = torch.linalg.eigh(image.mT @ image)  # from the shortest to the longest
    return (basis @ axes.flip(1)[:, :number].to(basis.dtype)).contiguous()


def _propagated(A: Tensor | None, H: Tensor) -> Tensor:
    if A is not None:
        for _ in range(HOPS):
            H = A @ H
    return H


def _some(H: Tensor, nodes: Tensor) -> Tensor:
    if H.layout == torch.strided:
        return H[nodes]
    with quiet():
        return H.to_sparse_coo().index_select(0, nodes).to_sparse_csr()


def are_dense(x: Tensor, dtype: torch.dtype) -> bool:
    """Is so much of these features not zero that they are not multiplied as a sparse matrix?"""
    if x.layout != torch.strided:
        return False
    return sum(int(block.count_nonzero()) for _, block in column_blocks(x, dtype)) >= DENSE * x.numel()


def projected_rows(x: Tensor, basis: Tensor, dtype: torch.dtype, *, row_normalize: bool) -> Tensor:
    """What :func:`feature_rows` gives of dense features, times ``basis``, without ever being all in memory."""
    scale = inverse_row_sums(x, dtype) if row_normalize else None
    found = torch.empty(len(x), basis.shape[1], dtype=dtype)
    step = max(1, BLOCK_BYTES // (x.shape[1] * dtype.itemsize))
    for own in (slice(start, start + step) for start in range(0, len(x), step)):
        rows = x[own].to(dtype).contiguous()
        found[own] = (rows if scale is None else rows * scale[own]) @ basis
    return found


def feature_rows(x: Tensor, dtype: torch.dtype, *, row_normalize: bool) -> Tensor:
    """All features on the CPU, rows divided by their absolute sums if asked for, sparse where most of them is zero."""
    x = x.cpu()
    scale = inverse_row_sums(x, dtype) if row_normalize else None
    x = x.to(dtype)
    if x.layout == torch.strided and int(x.count_nonzero()) >= DENSE * x.numel():
        return x if scale is None else x * scale
    with quiet():
        x = x.to_sparse_csr()
        if scale is None:
            return x
        values = x.values() * scale.view(-1).repeat_interleave(x.crow_indices().diff())
        return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), values, x.shape, check_invariants=False)
