"""A graph whose nodes without labels have something to say."""

from __future__ import annotations

from typing import Any

import torch

from pdadmm_g.graph.graph import Graph
from pdadmm_g.graph.propagation import Adjacency, adjacency


def communities(
    nodes: int = 150,
    classes: int = 3,
    features: int = 20,
    *,
    labels: int = 3,
    noise: float = 1.5,
    homophily: bool = True,
    seed: int = 0,
) -> Graph:
    """Nodes with noisy features in communities, so many labelled ones in each, and a third of the rest to validate.

    Without homophily, edges join nodes of different communities.
    """
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % classes
    centres = torch.randn(classes, features, generator=generator)
    x = centres[y] + noise * torch.randn(nodes, features, generator=generator)
    same = ((y[:, None] == y[None]) == homophily).float()
    edges = torch.rand(nodes, nodes, generator=generator).triu(1) > 1 - (0.06 * same + 0.005 * (1 - same))
    edges[torch.arange(nodes), torch.arange(nodes)] = False
    data = Graph(x=x, edge_index=edges.triu(1).nonzero().T, y=y)
    rest = torch.arange(labels * classes, nodes)[torch.randperm(nodes - labels * classes, generator=generator)]
    for mask, part in (
        ("train_mask", torch.arange(labels * classes)),
        ("val_mask", rest[::3]),
        ("test_mask", rest[1::3]),
    ):
        data[mask] = torch.zeros(nodes, dtype=torch.bool)
        data[mask][part] = True
    return data


def renormalized_adjacency(
    edge_index: torch.Tensor,
    nodes: int,
    dtype: torch.dtype = torch.float32,
    weights: torch.Tensor | None = None,
    **options: Any,
) -> Adjacency:
    return adjacency(Graph(edge_index=edge_index, num_nodes=nodes, edge_weight=weights), dtype, **options)
