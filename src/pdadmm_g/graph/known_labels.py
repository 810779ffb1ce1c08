r"""Known labels of neighbours as features.

.. math:: x_i^{(k)} = \frac{\sum_j (P^k)_{ij} t_j}{\sum_j (P^k)_{ij}}, \quad P = D^{-1/2} A D^{-1/2}, \quad
          k = 1, \ldots, K

The sums are over the nodes j whose target :math:`t_j` is known; where there is none, x is 0. A node's own target is
never part of its features: nodes with a known target are dealt into five parts by their ids, and for a node of one part
only targets of the four others count. So rows that train are made as those that are predicted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .graph import Graph, node_keys
from .parts import part_of
from .propagation import adjacency, quiet

PARTS = 5


class KnownLabels(NamedTuple):
    """The targets of some nodes, which are named by their keys (see :func:`~.graph.node_keys`)."""

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
