r"""Feature augmentation by multi-hop operators of the graph.

.. math:: \tilde A = (D+I)^{-1/2} (A+I) (D+I)^{-1/2}
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from ..errors import InputError
from .examples import Graph

#: Bytes that one dense block of feature columns may take during propagation, and the fewest blocks and columns: three
#: such blocks are held beside input and output, and a product with fewer columns spends its time on the indices.
BLOCK_BYTES, BLOCKS, COLUMNS = 256 * 2**20, 8, 16
#: Features of a whole graph with a smaller share of entries that are not zero are multiplied as a sparse matrix: words
#: in a text are few of all words (1.3 % on Cora, where a step takes a twentieth of the time).
DENSE = 0.1


def renormalized_adjacency(edge_index: Tensor, num_nodes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    r""":math:`\tilde A` as a sparse CSR tensor, :math:`A` being the undirected simple graph under ``edge_index``.

    Edges are symmetrised, duplicates count once, and given self-loops are dropped, since :math:`A + I` brings its own.
    """
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
    with _quiet():
        return torch.sparse_csr_tensor(starts, columns, weights, (num_nodes, num_nodes), check_invariants=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's remarks on sparse matrices."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse (CSR tensor support is in beta|invariant checks)")
        yield


class GraphAugment(BaseTransform):
    r"""Multi-hop features, as a :class:`torch_geometric` transform that replaces ``data.x``.

    From "Towards Quantized Model Parallelism for Graph-Augmented MLPs Based on Gradient-Free ADMM Framework".

    ``mode="hops"`` stacks the powers side by side,

    .. math:: X = [H,\; \tilde A H,\; \ldots,\; \tilde A^{K-1} H],

    ``mode="average"`` takes their mean with a teleport :math:`\alpha` to the input,

    .. math:: X = \tfrac1K \sum_{k=1}^{K} \left( (1-\alpha) \tilde A^k H + \alpha H \right),

    ``mode="power"`` keeps the last one only, :math:`X = \tilde A^K H`, and ``mode="none"`` leaves the graph out,
    :math:`X = H`.

    With ``normalize="unit"`` each block of each row of X is scaled to Euclidean length 1 (zero rows stay zero). With
    ``"centered"`` the column means are then subtracted, each column is divided by the fourth root of its standard
    deviation, and rows are scaled to length 1 again: what all nodes have in common no longer drowns what tells them
    apart. The means come from the graph that the transform first sees (:meth:`fit`), and stay.

    Args:
        mode: Which operators.
        hops: Their number K.
        teleport: The share alpha.
        row_normalize: Divide each row of H by the sum of its absolute values first.
        normalize: What is done to the rows of X.
    """

    #: Evenly spaced nodes give the column means: at least so many where there are, and fewer than twice as many.
    sample = 10_000

    def __init__(
        self,
        mode: Literal["none", "hops", "average", "power"] = "hops",
        hops: int = 4,
        *,
        teleport: float = 0.05,
        row_normalize: bool = True,
        normalize: Literal["none", "unit", "centered"] = "unit",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if mode not in ("none", "hops", "average", "power") or hops < 1:
            raise InputError(
                f"augmentation must be none, hops, average or power with at least one hop, got {mode!r}, {hops}"
            )
        self.mode = mode
        self.hops = hops
        self.teleport = teleport
        self.row_normalize = row_normalize
        self.normalize = normalize
        self.dtype = dtype
        #: Column means and scales of the centred features, on the CPU wherever the graph is; None before :meth:`fit`.
        self.mean: Tensor | None = None
        self.scale: Tensor | None = None

    @property
    def blocks(self) -> int:
        """How many blocks of the input's width the output has."""
        return self.hops if self.mode == "hops" else 1

    def forward(self, data: Data) -> Data:
        data.x = self.features(data)
        return data

    def fit(self, data: Data, nodes: Tensor | None = None) -> Tensor:
        """Learn the column means from this graph, if they are needed; the augmented rows of ``nodes``."""
        if self.normalize != "centered":
            return self.features(data, nodes)
        nodes = torch.arange(data.num_nodes) if nodes is None else nodes
        sample = torch.arange(0, data.num_nodes, max(1, data.num_nodes // self.sample), device=nodes.device)
        rows = self.propagated(data, torch.cat([nodes, sample]))
        self._learn(rows[len(nodes) :])
        return self._normalized(rows[: len(nodes)])

    def fit_rows(self, rows: Tensor) -> Tensor:
        """What :meth:`fit` makes of rows that are propagated already, with these rows as the sample."""
        if self.normalize == "centered":
            self._learn(rows)
        return self._normalized(rows.clone())

    def _learn(self, rows: Tensor) -> None:
        rows = rows.clone()
        _to_unit_length(rows, self.blocks)
        mean = rows.mean(0)
        deviation = torch.linalg.vector_norm(rows.sub_(mean), dim=0) / len(rows) ** 0.5
        self.mean = mean.cpu()
        self.scale = (deviation.where(deviation > 1e-12, 1.0) ** 0.25).cpu()

    def features(self, data: Data, nodes: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
        """The augmented rows of ``nodes`` (all by default), dense. Fits first if that is still to be done.

        They are written into ``out`` where it is given. With memory maps for ``data.x`` and ``out``, blocks of columns
        stream from disk to disk, and a graph that does not fit in memory can be augmented (not ``"centered"`` unless
        the transform is fitted).
        """
        if self.normalize == "centered" and self.mean is None:
            if out is not None:
                raise InputError("fit the transform before it writes centred features into 'out'")
            return self.fit(data, nodes)
        return self._normalized(self.propagated(data, nodes, out=out))

    def _normalized(self, rows: Tensor) -> Tensor:
        """Overwrites ``rows``."""
        mean, scale = (None if learned is None else learned.to(rows.device) for learned in (self.mean, self.scale))
        return normalized(rows, self.normalize, self.blocks, mean, scale)

    def propagated(self, data: Data, nodes: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
        """The rows of ``nodes`` before they are normalised."""
        return _propagate(data, nodes, self._operators, self.blocks, self, out)

    def _operators(self, A: Tensor | None, H: Tensor) -> Iterator[Tensor]:
        """psi_k(A) H for each block of the output."""
        if A is None or self.mode == "none":
            # Without edges A~ = I, and every operator leaves H as it is.
            yield from [H] * self.blocks
        elif self.mode == "power":
            for _ in range(self.hops):
                H = A @ H
            yield H
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


def whole_graph(data: Data, augment: GraphAugment, device: str | torch.device) -> Graph:
    """All nodes with their features, which ``augment`` makes, and the renormalised adjacency."""
    A = renormalized_adjacency(data.edge_index, data.num_nodes, augment.dtype)
    X = augment.features(data)
    # On a GPU it is no faster, and the gradient would not be the same twice.
    if torch.device(device).type == "cpu" and int(X.count_nonzero()) < DENSE * X.numel():
        with _quiet():
            X = X.to_sparse_csr()
    return Graph(X.to(device), A.to(device))


def candidate_features(
    data: Data, nodes: Tensor, averages: Sequence[int], like: GraphAugment
) -> Iterator[tuple[Literal["none", "hops", "average"], int, Tensor]]:
    """Rows of ``nodes`` under several augmentations, from one propagation: mode, hops and features of each.

    The features alone, averages over so many powers, and four hop blocks, before they are normalised.
    """
    reach = max(3, *averages)

    def operators(A: Tensor | None, H: Tensor) -> Iterator[Tensor]:
        assert A is not None
        yield H
        power, total = H, torch.zeros_like(H)
        for k in range(1, reach + 1):
            power = A @ power
            total += power
            if k <= 3:
                yield power
            if k in averages:
                yield torch.add(like.teleport * H, total, alpha=(1 - like.teleport) / k)

    names: list[int | str] = ["hop 0"]
    for k in range(1, reach + 1):
        names += ([f"hop {k}"] if k <= 3 else []) + ([k] if k in averages else [])
    width = data.x.shape[1]
    blocks = dict(zip(names, _propagate(data, nodes, operators, len(names), like).split(width, dim=1), strict=True))
    candidates: list[tuple[Literal["none", "hops", "average"], int, list[int | str]]] = [("none", 1, ["hop 0"])]
    candidates += [("average", k, [k]) for k in averages]
    candidates += [("hops", 4, [f"hop {k}" for k in range(4)])]
    for mode, hops, parts in candidates:
        yield mode, hops, torch.cat([blocks[part] for part in parts], dim=1)


def _propagate(
    data: Data,
    nodes: Tensor | None,
    operators: Callable[[Tensor | None, Tensor], Iterator[Tensor]],
    blocks: int,
    like: GraphAugment,
    out: Tensor | None = None,
) -> Tensor:
    """What the operators make of the features: so many blocks side by side, for ``nodes`` (all by default).

    Propagates a block of feature columns at a time, so that memory stays near input plus output.
    """
    num_nodes, width = data.x.shape
    device, dtype = data.x.device, like.dtype
    A = None
    if like.mode != "none" and data.edge_index is not None:
        A = renormalized_adjacency(data.edge_index.to(device), num_nodes, dtype)
    rows = slice(None) if nodes is None else nodes.to(device)
    shape = (num_nodes if nodes is None else len(nodes), blocks * width)
    if out is None:
        out = torch.empty(shape, dtype=dtype, device=device)
    elif out.shape != shape:
        raise InputError(f"out must be of shape {shape}, got {tuple(out.shape)}")
    scale = _inverse_row_sums(data.x, dtype) if like.row_normalize else None
    for start, H in _column_blocks(data.x, dtype):
        if scale is not None:
            H *= scale
        stop = start + H.shape[1]
        for block, operated in enumerate(operators(A, H)):
            out[:, block * width + start : block * width + stop] = operated[rows]
    return out


def normalized(rows: Tensor, normalize: str, blocks: int, mean: Tensor | None, scale: Tensor | None) -> Tensor:
    """The propagated ``rows`` as the network takes them, see :class:`GraphAugment`. Overwrites ``rows``."""
    if normalize != "none":
        _to_unit_length(rows, blocks)
    if normalize == "centered":
        assert mean is not None
        assert scale is not None
        rows.sub_(mean).div_(scale)
        _to_unit_length(rows, blocks)
    return rows


def _to_unit_length(rows: Tensor, blocks: int) -> None:
    """Scale each of so many blocks of each row to length 1; zero rows stay zero."""
    for block in rows.chunk(blocks, dim=1):
        norm = torch.linalg.vector_norm(block, dim=1, keepdim=True)
        block.div_(norm.where(norm > 0, 1.0))


def _column_blocks(x: Tensor, dtype: torch.dtype) -> Iterator[tuple[int, Tensor]]:
    """Consecutive column ranges of ``x`` as fresh dense tensors, each with its first column."""
    num_nodes, width = x.shape
    step = max(1, min(BLOCK_BYTES // max(1, num_nodes * dtype.itemsize), max(COLUMNS, -(-width // BLOCKS))))
    columns = _to_csc(x) if x.layout != torch.strided else None
    for start in range(0, width, step):
        if columns is None:
            block = x[:, start : start + step].to(dtype, copy=True)
        else:
            block = torch.from_numpy(columns[:, start : start + step].toarray()).to(x.device, dtype)
        yield start, block.contiguous()


def _to_csc(x: Tensor) -> scipy.sparse.csc_array:
    """The sparse matrix for scipy, which has no half precision."""
    coo = x.to_sparse_coo().coalesce().cpu()
    values = coo.values().float() if coo.dtype in (torch.float16, torch.bfloat16) else coo.values()
    return scipy.sparse.csc_array((values.numpy(), tuple(coo.indices().numpy())), shape=tuple(coo.shape))


def _inverse_row_sums(x: Tensor, dtype: torch.dtype) -> Tensor:
    if x.layout == torch.strided:
        sums = torch.zeros(x.shape[0], dtype=torch.float64, device=x.device)
        for _, block in _column_blocks(x, dtype):
            sums += block.abs_().sum(1, dtype=torch.float64)
    else:
        sums = torch.from_numpy(abs(_to_csc(x)).sum(axis=1)).to(x.device, dtype)
    return (1 / sums.where(sums > 0, 1.0)).to(dtype).unsqueeze(1)
