"""Graphs in matrices: features, and edges as pairs of nodes or as a sparse adjacency."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config import TargetKind
from ..errors import InputError
from .checks import as_tensor
from .graph import Graph
from .labels import set_targets
from .propagation import quiet
from .targets import asked

Array = NDArray[Any]


def from_matrix(X: Any, y: Any, edge_index: Any, edge_weight: Any, target: TargetKind) -> Graph:
    """The graph of features, None if there are none, labels if there are any, and edges by the numbers of nodes."""
    data = Graph()
    if X is not None:
        data.x = as_features(X, "X")
    pairs, weights = pairs_of(edge_index, edge_weight)
    data.edge_index = pairs
    if weights is not None:
        data.edge_weight = weights
    if X is None and is_sparse(edge_index):
        data["num_nodes"] = edge_index.shape[0]
    if y is not None:
        set_targets(data, y, "y", target)
    return asked(data, target)


def is_sparse(X: Any) -> bool:
    """Is it a sparse matrix of scipy?"""
    import scipy.sparse

    return bool(scipy.sparse.issparse(X))


def pairs_of(edge_index: Any, edge_weight: Any) -> tuple[Tensor, Any]:
    """Edges as pairs of nodes, and their weights, from pairs or an adjacency."""
    if is_sparse(edge_index):
        if edge_index.shape[0] != edge_index.shape[1]:
            raise InputError(f"edge_index: an adjacency must be square, got {edge_index.shape}")
        if edge_weight is not None:
            raise InputError("edge_weight is given beside an adjacency, whose entries are the weights: leave it out")
        coo = edge_index.tocoo()
        kept = coo.data != 0  # setdiag(0), for one, leaves zeros that are no edges
        values = None if coo.dtype == bool or bool((coo.data[kept] == 1).all()) else coo.data[kept]
        return torch.from_numpy(np.stack([coo.row[kept], coo.col[kept]]).astype(np.int64)), values
    if not isinstance(edge_index, Tensor):
        edge_index = np.asarray(edge_index)
        if edge_index.size == 0:
            edge_index = np.empty((2, 0), dtype=np.int64)
    pairs = as_tensor(edge_index, "edge_index must be whole numbers")
    if pairs.ndim != 2 or pairs.shape[0] != 2:
        remedy = "; weights of rows are sample_weight=..." if pairs.ndim == 1 else ""
        raise InputError(f"edge_index must have shape (2, edges), got {tuple(pairs.shape)}{remedy}")
    return pairs, edge_weight


def as_features(X: Any, culprit: str) -> Tensor:
    """Features as a tensor, sparse if they are."""
    if isinstance(X, Tensor):
        return X
    if hasattr(X, "to_torch_sparse_csr_tensor"):  # torch_sparse's own kind
        return cast(Tensor, X.to_torch_sparse_csr_tensor())
    if is_sparse(X):
        coo = X.tocoo()
        place = torch.from_numpy(np.stack([coo.row, coo.col]).astype(np.int64))
        with quiet():
            return torch.sparse_coo_tensor(place, torch.from_numpy(coo.data.astype(np.float32)), coo.shape).coalesce()
    return as_tensor(as_matrix(X, culprit), f"{culprit} must be numbers")


def as_matrix(rows: Any, culprit: str) -> Array:
    """A matrix of numbers, or an :class:`InputError`."""
    try:
        matrix = np.asarray(rows)
        if matrix.dtype.kind not in "biufc":
            matrix = np.asarray(rows, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError(f"{culprit} must be numbers, as many for each node") from None
    if matrix.ndim != 2:
        raise InputError(f"{culprit} must be a matrix with a row a node, got shape {matrix.shape}")
    return matrix
