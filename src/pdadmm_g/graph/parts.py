"""A graph is a sequence of parts, each of consecutive nodes: one in memory, one a process of a folder of shards.

And what there is to know of it before anything is trained on it: sizes, directions, homophily, structure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..engine.team import Line
from .graph import MASKS, Graph
from .targets import hard_labels, has_columns, labelled

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
        counts = self.line.counts(len(rows))
        lasts = torch.tensor(self.line.counts(self.first + self.count))
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
    if not weighed and weights is None:
        # 32-bit indices where they suffice: half the memory.
        kind = np.int32 if 2 * data.edge_index.shape[1] + number < 2**31 else np.int64
        row, col = data.edge_index.cpu().numpy().astype(kind)
        A = scipy.sparse.coo_array((row != col, (row, col)), shape=(number, number)).tocsr()
        del row, col
        A.eliminate_zeros()
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


# ----------------------------------------------------------------------------------------------- what there is to know

#: Which degrees are told: least, quartiles, most.
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def graph_facts(data: Graph) -> dict[str, Any]:
    """Sizes, homophily and degrees of a graph that went through :func:`~pdadmm_g.graph.checks.check_graph`.

    Homophily is that of classes; where nodes have several labels or numbers, ``outputs`` is how many. Edges are pairs
    of different nodes that are joined, each counted once, as training sees them.
    """
    known = labelled(data).nonzero().view(-1) if data.y is not None else torch.empty(0, dtype=torch.int64)
    # How many classes the known nodes have, or how many labels or numbers each of them.
    classes = len(hard_labels(data)[known].unique()) if len(known) and not has_columns(data) else 0
    facts: dict[str, Any] = {
        "nodes": data.num_nodes,
        "features": data.x.shape[1],
        **({"outputs": data.y.shape[1]} if has_columns(data) else {"classes": classes}),
        "labelled": len(known),
        **{mask.removesuffix("_mask"): int(data[mask].sum()) if mask in data else 0 for mask in MASKS},
    }
    if data.edge_index is None and not has_edges(data):
        return facts | {"edges": 0}
    joined, line = pairs(data), part_of(data).line
    degrees = line.sum(torch.bincount(joined.flatten(), minlength=data.num_nodes))
    found = homophily(data, known) if not has_columns(data) else Homophily(0, 0.0, 0.0)
    return facts | {
        "edges": int(line.sum(torch.tensor(joined.shape[1]))),
        "degrees": [int(each) for each in degrees.sort().values[[round(q * (len(degrees) - 1)) for q in QUANTILES]]],
        "mean_degree": float(degrees.double().mean()),
        "isolated": int((degrees == 0).sum()),
        "homophily": found.share if found.edges else None,
        "homophily_beyond_chance": found.beyond_chance if found.edges else None,
    }


def distinct(edges: Tensor, nodes: int) -> Tensor:
    """Each edge once, in order, without those from a node to itself."""
    codes = (edges[0] * nodes + edges[1])[edges[0] != edges[1]].unique()
    return torch.stack([codes // nodes, codes % nodes])


def pairs(data: Graph) -> Tensor:
    """The nodes that edges join, each pair once; of a part the pairs whose smaller node is its own."""
    own: Neighbours | None = data.get("neighbours")
    if own is None:
        return distinct(data.edge_index.cpu().sort(0).values, data.num_nodes)
    row, col = (torch.from_numpy(ends).long() for ends in own.ends(part_of(data).first))
    return torch.stack([row, col])[:, row < col]


class Homophily(NamedTuple):
    """How much nodes of one class keep to themselves."""

    #: Edges between nodes whose class is known, and the share of them within a class.
    edges: int
    share: float
    #: The share that would be within a class if the same ends were joined at random.
    chance: float

    @property
    def beyond_chance(self) -> float:
        """How much more often than by chance these are within a class, 1 at the most."""
        return (self.share - self.chance) / max(1 - self.chance, 1e-9)


def homophily(data: Graph, known: Tensor) -> Homophily:
    """That of the edges between ``known`` nodes, each counted once."""
    labels = torch.full((data.num_nodes,), -1)
    labels[known] = hard_labels(data)[known]
    ends, line = labels[pairs(data)], part_of(data).line
    ends = ends[:, (ends >= 0).all(0)]
    number, alike = line.sum(torch.tensor([ends.shape[1], int((ends[0] == ends[1]).sum())])).tolist()
    if not number:
        return Homophily(0, 0.0, 0.0)
    counts = line.sum(torch.bincount(ends.flatten(), minlength=int(labels.max()) + 1))
    return Homophily(number, alike / number, float((counts.double() / (2 * number)).square().sum()))


def are_directed(data: Graph) -> bool:
    """Does it matter which way the edges go: is not each there both ways with the same weight, nor each only once?

    Edges that all go from a smaller number to a larger, or all the other way, are those of an undirected graph that are
    listed once. The numbers follow the ids where there are such, so that the order of rows says nothing.
    """
    if data.edge_index is None or not has_edges(data):
        return bool(data.get("directed"))
    row, col = data.edge_index
    if bool((row <= col).all()) or bool((row >= col).all()):
        return False
    weights = data.get("edge_weight")
    W = summed(data.edge_index, data.num_nodes, weights)
    if weights is None:
        W.data[:] = 1
    gap = abs(W - W.T)
    return bool(gap.nnz) and float(gap.max()) > 1e-6 * float(W.max())


#: Edges are said to join unlike nodes where fewer than this, beyond chance, join nodes of one class; if so many edges
#: join nodes whose class is known.
LEAST_HOMOPHILY, EDGES = 0.3, 20


def join_unlike(data: Graph, known: Tensor) -> Homophily | None:
    """The homophily where it is low, None where it is not or nobody can tell."""
    if not has_edges(data) or has_columns(data):
        return None
    found = homophily(data, known)
    return found if found.edges >= EDGES and found.beyond_chance < LEAST_HOMOPHILY else None


#: Columns for the degree, one a power of two, and of random numbers: more tell more exactly who is near whom, as long
#: as so many nodes have room for them.
DEGREES, RANDOM, MOST_NODES, LEAST_RANDOM = 16, 1024, 100_000, 64


def structural_features(edge_index: Tensor, num_nodes: int, keys: NDArray[np.int64] | None = None) -> Tensor:
    r"""Of each node its degree and 1024 random numbers, 64 in a graph of more than 100,000 nodes.

    The degree :math:`d` is a one in one of 16 columns, :math:`\lfloor \log_2 (d+1) \rfloor`. The random numbers R tell
    nothing by themselves, but augmentation makes random projections :math:`\tilde A^k R` of them, which tell who is
    near whom. They go by the id of a node, or by its number where there are no ids: in another graph, nodes that are to
    be told apart as before keep these, and new ones come behind them.
    """
    neighbours = torch.bincount(edge_index.cpu().flatten(), minlength=num_nodes)
    column = torch.log2(neighbours + 1.0).floor().long().clamp(max=DEGREES - 1)
    degrees = torch.nn.functional.one_hot(column, DEGREES).float()
    random = RANDOM if num_nodes <= MOST_NODES else LEAST_RANDOM
    if keys is None:  # from numpy, row by row: the first rows are the same however many there are
        noise = np.random.default_rng(0).standard_normal((num_nodes, random), dtype=np.float32)
    else:
        import pandas as pd
        from scipy.special import ndtri

        entries = keys[:, None].view(np.uint64) * np.uint64(random) + np.arange(random, dtype=np.uint64)
        hashed = pd.util.hash_array(entries.ravel()).reshape(entries.shape)
        noise = ndtri((hashed >> np.uint64(11)) * 2.0**-53 + 2.0**-54).astype(np.float32)
    noise /= random**0.5
    return torch.cat([degrees, torch.from_numpy(noise)], dim=1)
