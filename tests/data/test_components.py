from __future__ import annotations

import pytest
import torch

from helpers.communities import communities
from pdadmm_g.data import augmentation
from pdadmm_g.data.augmentation import (
    GraphAugment,
    directions_in_memory,
    feature_rows,
)
from pdadmm_g.data.propagation import renormalized_adjacency


def features(rank: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Features that mostly lie in a few directions, and a graph."""
    data = communities(90, features=30)
    generator = torch.Generator().manual_seed(1)
    scale = torch.cat([torch.linspace(9, 6, rank), torch.full((30 - rank,), 0.5)]).double()
    H = torch.randn(90, 30, generator=generator, dtype=torch.float64) * scale
    turn = torch.linalg.qr(torch.randn(30, 30, generator=generator, dtype=torch.float64))[0]
    return H @ turn, renormalized_adjacency(data.edge_index, 90, torch.float64)


def test_the_directions_are_those_of_the_largest_singular_values() -> None:
    H, A = features()
    basis = directions_in_memory(H, A, 4)
    image = A.to_dense() @ A.to_dense() @ H
    _, _, right = torch.linalg.svd(image, full_matrices=False)
    assert torch.allclose(basis.mT @ basis, torch.eye(4, dtype=torch.float64), atol=1e-10)
    # The same subspace: nothing of the true directions is outside of it.
    assert float((right[:4].mT - basis @ (basis.mT @ right[:4].mT)).norm()) < 1e-3
    lengths = (image @ basis).norm(dim=0)
    assert torch.equal(lengths, lengths.sort(descending=True).values)


def test_a_sample_of_nodes_is_enough(monkeypatch) -> None:
    H, A = features()
    every = directions_in_memory(H, A, 4)
    monkeypatch.setattr(augmentation, "SAMPLE", 30)
    some = directions_in_memory(H, A, 4)
    assert float((every - some @ (some.mT @ every)).norm()) < 0.5  # of 2; unrelated directions would leave 1.9


@pytest.mark.parametrize("sparse", [True, False])
def test_rows_are_divided_by_their_sums_sparse_or_not(sparse) -> None:
    x = torch.zeros(6, 40)
    x[torch.arange(6), torch.arange(6)] = 2.0
    x[0, 7] = -2.0
    x[5] = 0
    rows = feature_rows(x.to_sparse() if sparse else x, torch.float32, row_normalize=True)
    assert rows.layout == torch.sparse_csr  # few entries: sparse either way
    expected = x / x.abs().sum(1, keepdim=True).clamp(min=1)
    assert torch.equal(rows.to_dense(), expected)
    dense = torch.rand(5, 3) + 1
    assert torch.allclose(feature_rows(dense, torch.float32, row_normalize=True).sum(1), torch.ones(5))


def test_features_are_dense_where_a_tenth_of_them_is_not_zero() -> None:
    x = torch.zeros(10, 20)
    x.view(-1)[::10] = 1
    for given in (x, x.double()):
        assert feature_rows(given, torch.float32, row_normalize=True).layout == torch.strided
    x[0, 0] = 0
    for given in (x, x.to_sparse(), torch.full((10, 20), 1e-300, dtype=torch.float64)):
        assert feature_rows(given, torch.float32, row_normalize=True).layout == torch.sparse_csr


def test_as_many_directions_as_features_leave_the_distances_as_they_are() -> None:
    data = communities(40, features=12)
    whole = GraphAugment("average", 2, normalize="unit").fit_transform(data)
    turned = GraphAugment("average", 2, normalize="unit", components=11)
    rows = turned.fit_transform(data)
    assert rows.shape == (40, 11)
    assert turned.basis is not None
    assert (
        GraphAugment("average", 2, normalize="unit", components=12)
        .fit_transform(data)
        .equal(GraphAugment("average", 2, normalize="unit", components=None).fit_transform(data))
    )
    assert float((whole @ whole.mT - rows @ rows.mT).abs().max()) < 0.2


def test_what_was_learned_goes_to_another_transform() -> None:
    data = communities(40, features=12)
    first = GraphAugment("average", 2, normalize="centered", components=5)
    rows = first.fit_transform(data)
    second = GraphAugment("average", 2, normalize="centered", components=5)
    second.restore(first.learned(), 12)
    assert torch.allclose(second.features(data), rows, atol=1e-6)
    with pytest.raises(ValueError, match="do not fit its features"):
        second.restore(first.learned(), 13)
    with pytest.raises(KeyError):
        second.restore({}, 12)
