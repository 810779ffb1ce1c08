"""What the edges of a graph tell: whether they have directions, and whether they join nodes of one class."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from .facts import homophily
from .graph import Graph
from .targets import has_columns


def are_directed(data: Graph) -> bool:
    """Does it matter which way the edges go: is not each there both ways with the same weight, nor each only once?

    Edges that all go from a smaller number to a larger, or all the other way, are those of an undirected graph that are
    listed once.
    """
    if data.edge_index is None or data.edge_index.numel() == 0:
        return False
    row, col = data.edge_index.cpu().numpy()
    if bool((row <= col).all()) or bool((row >= col).all()):
        return False
    import scipy.sparse

    weights = data.get("edge_weight")
    values = np.ones(len(row)) if weights is None else weights.double().cpu().numpy()
    W = scipy.sparse.coo_array((values, (row, col)), shape=(data.num_nodes, data.num_nodes)).tocsr()
    if weights is None:
        W.data[:] = 1
    gap = abs(W - W.T)
    return bool(gap.nnz) and float(gap.max()) > 1e-6 * float(W.max())


#: Edges are said to join unlike nodes where fewer than this, beyond chance, join nodes of one class; if so many edges
#: join nodes whose class is known.
LEAST_HOMOPHILY, EDGES = 0.3, 20


def join_unlike(data: Graph, known: Tensor) -> float | None:
    """The homophily where it is low, None where it is not or nobody can tell."""
    if data.edge_index is None or has_columns(data):
        return None
    found = homophily(data, known)
    return found.beyond_chance if found.edges >= EDGES and found.beyond_chance < LEAST_HOMOPHILY else None
