from __future__ import annotations

import pytest
import torch

from helpers.communities import communities
from pdadmm_g.data.augmentation import GraphAugment, NodeCopies
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
    clean = augment.fit_transform(data)
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


def words(nodes: int):
    """Communities whose features are mostly zero."""
    data = communities(nodes, features=40)
    data.x = data.x * (torch.rand(data.x.shape, generator=torch.Generator().manual_seed(2)) < 0.05)
    data.x[:, 0] = 1.0  # no node without any
    return data


@pytest.mark.parametrize("components", [None, 6])
def test_single_entries_are_dropped_before_projection_and_propagation(components) -> None:
    data = words(60)
    augment = GraphAugment("average", 2, teleport=0.2, components=components, dtype=torch.float64)
    augment.fit(data)
    source = augment.source(data)
    drawn = augment.copies(source, drop=0.4, drop_entries=0.3).draw(torch.tensor([5, 50, 17]), 2, seed=11)
    generator = torch.Generator().manual_seed(11)
    sums = data.x.double().abs().sum(1, keepdim=True)
    for copy in drawn:
        kept = torch.rand(60, 1, generator=generator)[:, 0] >= 0.4
        thinned = data.x.double() / sums  # of all entries, so that rows do not sum to one
        thinned[data.x != 0] *= (torch.rand(int((data.x != 0).sum()), generator=generator) >= 0.3) / 0.7
        H = (thinned if augment.basis is None else thinned @ augment.basis) * (kept[:, None] / 0.6)
        A = source.A.to_dense()
        X = 0.2 * H + 0.8 * (A @ H + A @ A @ H) / 2
        X = X / X.norm(dim=1, keepdim=True).clamp(min=1e-30)
        assert torch.allclose(copy, X[[5, 50, 17]], rtol=0, atol=1e-12)


def test_few_nodes_lose_the_entries_that_they_lose_among_all() -> None:
    data = words(400)
    augment = GraphAugment("average", 2, teleport=0.2, normalize="unit", components=6)
    copies = augment.copies(augment.source(data), drop_entries=0.5)
    few = copies.draw(torch.tensor([7, 3]), 2, seed=5)
    everyone = copies.draw(torch.arange(400), 2, seed=5)
    assert torch.allclose(few, everyone[:, [7, 3]], atol=1e-6)


@pytest.mark.parametrize("components", [None, 6])
def test_another_process_draws_the_same_copies(components) -> None:
    data = words(60)
    augment = GraphAugment("average", 2, normalize="centered", components=components)
    augment.fit(data)
    own = NodeCopies.of(augment.copies(augment.source(data), drop_entries=0.5), torch.tensor([4, 9]))
    theirs = NodeCopies.of_tensors(own.tensors(), augment.operator, "centered", 0.5, 0.5)
    drawn = [copies.draw(2, 20, torch.Generator().manual_seed(3)) for copies in (own, theirs)]
    assert torch.equal(*drawn)


def test_entries_are_dropped_only_of_features_that_are_mostly_zero() -> None:
    augment = GraphAugment("average", 2)
    with pytest.raises(InputError, match="drop_entries is for features that are nearly all zero"):
        augment.copies(augment.source(communities(30)), drop_entries=0.5)
