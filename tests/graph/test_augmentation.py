from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from helpers.communities import communities, renormalized_adjacency
from pdadmm_g.admm.risks import Targets
from pdadmm_g.engine.team import Line
from pdadmm_g.graph import propagation
from pdadmm_g.graph.augmentation import GraphAugment, directions
from pdadmm_g.graph.parts import Part

UNASKED = Targets(torch.empty(0, dtype=torch.int64))


def path_of_four() -> Data:
    """0 - 1 - 2 - 3."""
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [0.0, 4.0]])
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1))


def raw(mode: str = "hops", hops: int = 4, **options) -> GraphAugment:
    return GraphAugment(mode, hops, row_normalize=False, normalize="none", **options)


def test_star_of_five_with_every_blemish() -> None:
    """Directed, doubled and self-looped edges around node 0; node 4 is isolated."""
    edges = torch.tensor([[0, 0, 2, 3, 3, 1, 1], [1, 1, 0, 0, 0, 1, 0]])
    A = renormalized_adjacency(edges, 5)
    assert A.layout == torch.sparse_csr
    s = 1 / 8**0.5  # 1 / sqrt((3 + 1) (1 + 1))
    expected = torch.tensor(
        [
            [1 / 4, s, s, s, 0],
            [s, 1 / 2, 0, 0, 0],
            [s, 0, 1 / 2, 0, 0],
            [s, 0, 0, 1 / 2, 0],
            [0, 0, 0, 0, 1],
        ]
    )
    torch.testing.assert_close(A.to_dense(), expected)


def test_hops_by_hand() -> None:
    data = path_of_four()
    X = raw(hops=3).features(data)
    assert X.shape == (4, 6)
    torch.testing.assert_close(X[:, :2], data.x)
    torch.testing.assert_close(X[0, 2:4], torch.tensor([0.5, 2 / 6**0.5]))
    torch.testing.assert_close(X[1, 2:4], torch.tensor([1 / 6**0.5 + 1, 2 / 3]))
    # Second hop of node 0: half of its own first hop and 1/sqrt(6) of node 1's.
    torch.testing.assert_close(X[0, 4:], X[0, 2:4] / 2 + X[1, 2:4] / 6**0.5)


def test_average_and_power_by_hand() -> None:
    data = path_of_four()
    hops = raw(hops=4).features(data).split(2, dim=1)
    torch.testing.assert_close(raw("power", 3).features(data), hops[3])
    torch.testing.assert_close(raw("none", 1).features(data), data.x)
    X = raw("average", 3, teleport=0.1).features(data)
    torch.testing.assert_close(X, 0.9 * (hops[1] + hops[2] + hops[3]) / 3 + 0.1 * data.x)


def test_row_normalisation_and_unit_norm() -> None:
    data = path_of_four()
    data.x[0] = torch.tensor([-1.0, 3.0])
    data.x[3] = 0
    X = GraphAugment("none", 1, row_normalize=True, normalize="none").features(data)
    torch.testing.assert_close(X[0], torch.tensor([-0.25, 0.75]))
    torch.testing.assert_close(X[3], torch.zeros(2))
    blocks = GraphAugment("hops", 3).features(data).split(2, dim=1)
    norms = torch.stack([block.norm(dim=1) for block in blocks])
    expected = torch.ones(3, 4)
    expected[0, 3] = 0  # the zero row has no direction before the first hop
    torch.testing.assert_close(norms, expected)


def test_centered_features_by_hand() -> None:
    data = Data(x=torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]))
    augment = GraphAugment("none", 1, row_normalize=False, normalize="centered")
    X = augment.features(data)
    unit = torch.tensor([[0.6, 0.8], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    mean = unit.mean(0)
    torch.testing.assert_close(augment.mean, mean)
    expected = (unit - mean) / unit.std(0, correction=0) ** 0.25
    torch.testing.assert_close(X, expected / expected.norm(dim=1, keepdim=True))
    # What was learned stays: other nodes are centred by the means of the first graph.
    other = augment.features(Data(x=torch.tensor([[0.0, 5.0]])))
    torch.testing.assert_close(other[0], X[2])


@given(
    st.integers(0, 10**6), st.sampled_from(["hops", "average", "power"]), st.sampled_from(["none", "unit", "centered"])
)
def test_permuting_the_nodes_permutes_the_features(seed: int, mode: str, normalize: str) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(9, 4, generator=generator)
    edges = torch.randint(9, (2, 15), generator=generator)
    order = torch.randperm(9, generator=generator)
    place = order.argsort()
    X = GraphAugment(mode, 3, normalize=normalize).features(Data(x=x, edge_index=edges))
    permuted = GraphAugment(mode, 3, normalize=normalize).features(Data(x=x[order], edge_index=place[edges]))
    torch.testing.assert_close(permuted, X[order], rtol=1e-5, atol=1e-6)


def test_blocks_of_columns_and_of_nodes_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    data = Data(x=torch.randn(50, 13, generator=generator), edge_index=torch.randint(50, (2, 200), generator=generator))
    whole = GraphAugment().features(data)
    nodes = torch.tensor([7, 3, 3, 49])
    monkeypatch.setattr(propagation, "BLOCK_BYTES", 50 * 4 * 3)  # three columns at a time
    torch.testing.assert_close(GraphAugment().features(data), whole)
    torch.testing.assert_close(GraphAugment().features(data, nodes), whole[nodes])


def words(nodes: int):
    """Communities whose features are mostly zero."""
    data = communities(nodes, features=40)
    data.x = data.x * (torch.rand(data.x.shape, generator=torch.Generator().manual_seed(2)) < 0.05)
    data.x[:, 0] = 1.0  # no node without any
    return data


@pytest.mark.parametrize("entries", [0.0, 0.3])
@pytest.mark.parametrize("components", [None, 6])
@pytest.mark.parametrize("normalize", ["unit", "centered", "standard"])
def test_a_copy_is_what_propagation_makes_of_what_is_kept(components, normalize: str, entries: float) -> None:
    """Nodes, and single entries before the projection; a copy of all nodes by dense matrices."""
    data, kind = words(60) if entries else communities(60), torch.float64
    augment = GraphAugment("average", 2, teleport=0.2, normalize=normalize, components=components, dtype=kind)
    augment.fit(data)
    A = renormalized_adjacency(data.edge_index, 60, kind).to_dense()
    nodes = torch.tensor([5, 50, 17])
    drawn = augment.copies(augment.source(data), nodes, UNASKED, 0.4, entries).rows(nodes, 2, seed=11)
    generator = torch.Generator().manual_seed(11)
    for copy in drawn:
        kept = torch.rand(60, 1, generator=generator) >= 0.4
        H = data.x.double() / data.x.double().abs().sum(1, keepdim=True)  # of all entries
        if entries:
            H[data.x != 0] *= (torch.rand(int((data.x != 0).sum()), generator=generator) >= entries).double() / (
                1 - entries
            )
        H = (H if augment.basis is None else H @ augment.basis.double()) * (kept / 0.6)
        X = 0.2 * H + 0.8 * (A @ H + A @ A @ H) / 2
        X = X if normalize == "standard" else X / X.norm(dim=1, keepdim=True).clamp(min=1e-30)
        X = X if normalize == "unit" else (X - augment.mean) / augment.scale
        X = X / X.norm(dim=1, keepdim=True) if normalize == "centered" else X
        assert torch.allclose(copy, X[nodes], rtol=0, atol=1e-12)
    assert not torch.equal(drawn[0], drawn[1])


# ----------------------------------------------------------------------------- directions that say the most


def in_few_directions(rank: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Features that mostly lie in a few directions, and a graph."""
    data = communities(90, features=30)
    generator = torch.Generator().manual_seed(1)
    scale = torch.cat([torch.linspace(9, 6, rank), torch.full((30 - rank,), 0.5)]).double()
    H = torch.randn(90, 30, generator=generator, dtype=torch.float64) * scale
    turn = torch.linalg.qr(torch.randn(30, 30, generator=generator, dtype=torch.float64))[0]
    return H @ turn, renormalized_adjacency(data.edge_index, 90, torch.float64)


def test_the_directions_are_those_of_the_largest_singular_values() -> None:
    H, A = in_few_directions()
    basis = directions(H, A, 4, Part(0, 90, Line()))
    image = A.to_dense() @ A.to_dense() @ H
    _, _, right = torch.linalg.svd(image, full_matrices=False)
    assert torch.allclose(basis.mT @ basis, torch.eye(4, dtype=torch.float64), atol=1e-10)
    # The same subspace: nothing of the true directions is outside of it.
    assert float((right[:4].mT - basis @ (basis.mT @ right[:4].mT)).norm()) < 1e-3
    lengths = (image @ basis).norm(dim=0)
    assert torch.equal(lengths, lengths.sort(descending=True).values)
