"""A graph whose nodes have several labels, or numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from pdadmm_g.graph.graph import Graph


def ring(kind: str, nodes: int = 120, *, outputs: int = 3, seed: int = 0, masks: bool = True) -> Graph:
    """Nodes on a ring, joined to the next two, with noisy features and targets that are smooth along it.

    Numbers are far from zero, each column of another size. A third of the nodes train, a third validate.
    """
    generator = torch.Generator().manual_seed(seed)
    angle = torch.arange(nodes) * (2 * torch.pi / nodes)
    waves = torch.stack([torch.sin(angle * (1 + k // 2) + k) for k in range(outputs)], dim=1)
    x = torch.cat([waves, torch.zeros(nodes, 5)], dim=1) + 0.3 * torch.randn(nodes, outputs + 5, generator=generator)
    one = torch.arange(nodes)
    edges = torch.cat([torch.stack([one, (one + step) % nodes]) for step in (1, 2)], dim=1)
    data = Graph(x=x + 2, edge_index=torch.cat([edges, edges.flip(0)], dim=1), y=targets(kind, waves))
    if masks:
        part = torch.randperm(nodes, generator=generator) % 3
        for number, mask in enumerate(("train_mask", "val_mask", "test_mask")):
            data[mask] = part == number
    return data


def targets(kind: str, waves: Tensor) -> Tensor:
    """The waves as labels that are there or not, or as numbers."""
    if kind == "multilabel":
        return (waves > 0.2).long()
    return 100 * torch.arange(1, waves.shape[1] + 1) + waves.double() * 10.0 ** torch.arange(waves.shape[1])
