from __future__ import annotations

import pytest
import torch

from helpers.communities import communities
from pdadmm_g.data.augmentation import GraphAugment
from pdadmm_g.data.propagation import renormalized_adjacency
from pdadmm_g.errors import InputError


def brute_force(data, augment: GraphAugment, kept: torch.Tensor, drop: float) -> torch.Tensor:
    """A copy of all nodes, with dense matrices."""
    A = renormalized_adjacency(data.edge_index, data.num_nodes, torch.float64).to_dense()
    H = data.x.double() / data.x.double().abs().sum(1, keepdim=True)
    if augment.basis is not None:
        H = H @ augment.basis.double()
    H = H * (kept[:, None] / (1 - drop))
    X = augment.teleport * H + (1 - augment.teleport) * (A @ H + A @ A @ H) / 2
    X = X / X.norm(dim=1, keepdim=True).clamp(min=1e-30)
    if augment.normalize == "centered":
        X = (X - augment.mean) / augment.scale
        X = X / X.norm(dim=1, keepdim=True)
    return X


@pytest.mark.parametrize("components", [None, 6])
@pytest.mark.parametrize("normalize", ["unit", "centered"])
def test_a_copy_is_what_propagation_makes_of_the_nodes_that_are_kept(components, normalize) -> None:
    data = communities(60)
    kind = torch.float64
    augment = GraphAugment("average", 2, teleport=0.2, normalize=normalize, components=components, dtype=kind)
    augment.fit(data)
    copies = augment.copies(augment.source(data), drop=0.4)
    nodes = torch.tensor([5, 50, 17])
    drawn = copies.draw(nodes, 2, seed=11)
    generator = torch.Generator().manual_seed(11)
    for copy in drawn:
        kept = torch.rand(60, 1, generator=generator)[:, 0] >= 0.4
        assert torch.allclose(copy, brute_force(data, augment, kept, 0.4)[nodes], rtol=0, atol=1e-12)
    assert not torch.equal(drawn[0], drawn[1])


def test_copies_that_drop_nothing_are_the_clean_features() -> None:
    data = communities(60)
    augment = GraphAugment("hops", 3, normalize="centered")
    clean = augment.fit(data)
    copy = augment.copies(augment.source(data), drop=0.0).draw(torch.arange(60), 1, seed=0)[0]
    assert torch.allclose(copy, clean, atol=1e-6)


def test_few_nodes_of_a_large_graph_get_the_copies_that_they_get_among_all() -> None:
    data = communities(400)
    augment = GraphAugment("average", 2, teleport=0.2, normalize="unit")
    copies = augment.copies(augment.source(data))
    few = copies.draw(torch.tensor([7, 3]), 2, seed=5)
    everyone = copies.draw(torch.arange(400), 2, seed=5)
    assert torch.allclose(few, everyone[:, [7, 3]], atol=1e-6)


def test_copies_share_the_statistics_of_clean_features() -> None:
    data = communities(30)
    augment = GraphAugment("average", 2, normalize="centered")
    with pytest.raises(InputError, match="fit the transform before it makes copies"):
        augment.copies(augment.source(data))
