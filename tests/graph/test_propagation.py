from __future__ import annotations

import pytest
import torch

from helpers.communities import communities, renormalized_adjacency
from pdadmm_g.graph.propagation import (
    Operator,
    inverse_row_sums,
    neighbourhood,
)

OPERATORS = (Operator("average", 2, 0.25), Operator("hops", 3), Operator("power", 2), Operator("none", 1))


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.mode)
def test_a_neighbourhood_gives_its_centre_what_the_whole_graph_does(operator) -> None:
    data = communities(400)
    A = renormalized_adjacency(data.edge_index, 400, torch.float64)
    H, nodes = torch.randn(400, 5, dtype=torch.float64), torch.tensor([7, 3])
    near, part = neighbourhood(A, nodes, operator.reach)
    assert near is not None
    assert len(near) < 200
    rows = torch.searchsorted(near, nodes)
    for whole, own in zip(operator(A, H), operator(part, H[near]), strict=True):
        assert torch.allclose(own[rows], whole[nodes], rtol=0, atol=1e-14)


# ---------------------------------------------------------------------------------------------- weights and directions


def dense(edges: list[list[int]], nodes: int, **options: object) -> torch.Tensor:
    weights = options.pop("weights", None)
    weights = None if weights is None else torch.tensor(weights)
    return renormalized_adjacency(torch.tensor(edges), nodes, torch.float64, weights=weights, **options).to_dense()


def test_weights_by_hand() -> None:
    """Two edges of weight 1 and 3 have mean 2: A = 0.5 and 1.5 between 0-1 and 1-2."""
    found = dense([[0, 1], [1, 2]], 3, weights=[1.0, 3.0])
    A = torch.tensor([[1, 0.5, 0], [0.5, 1, 1.5], [0, 1.5, 1]], dtype=torch.float64)
    scale = A.sum(1).rsqrt()
    torch.testing.assert_close(found, scale[:, None] * A * scale)
    # Their unit does not matter, nor whether an edge is listed once or both ways; one that is there twice adds up.
    torch.testing.assert_close(found, dense([[0, 1], [1, 2]], 3, weights=[10.0, 30.0]))
    torch.testing.assert_close(found, dense([[0, 1, 1, 2], [1, 0, 2, 1]], 3, weights=[1.0, 1.0, 3.0, 3.0]))
    torch.testing.assert_close(found, dense([[0, 1, 1], [1, 2, 2]], 3, weights=[1.0, 1.0, 2.0]))


def test_directions_by_hand() -> None:
    """0 -> 1 -> 2: a node gets of itself and of those it points to, by the roots of out- and in-degrees."""
    out = dense([[0, 1], [1, 2]], 3, directed="out")
    A = torch.tensor([[1, 1, 0], [0, 1, 1], [0, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(out, A / (A.sum(1, keepdim=True) * A.sum(0, keepdim=True)).sqrt())
    torch.testing.assert_close(dense([[0, 1], [1, 2]], 3, directed="in"), out.T)
    both = renormalized_adjacency(torch.tensor([[0, 1], [1, 2]]), 3, torch.float64, directed="both")
    torch.testing.assert_close(both[0].to_dense(), out)
    torch.testing.assert_close(both[1].to_dense(), out.T)


def test_without_self_loops_a_node_alone_gets_nothing() -> None:
    found = dense([[0, 0, 2], [1, 2, 2]], 4, self_loops=False)
    expected = torch.zeros(4, 4, dtype=torch.float64)
    expected[0, 1] = expected[1, 0] = expected[0, 2] = expected[2, 0] = 2**-0.5
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("mode", "blocks"), [("hops", 5), ("apart", 5), ("average", 2), ("power", 2), ("none", 1)])
def test_both_directions_have_blocks_of_their_own(mode: str, blocks: int) -> None:
    edges, H = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.eye(3)
    out, into = renormalized_adjacency(edges, 3, directed="both", self_loops=mode != "apart")
    single, both = Operator(mode, 3 if blocks == 5 else 2), Operator(mode, 3 if blocks == 5 else 2, both=True)
    found = list(both((out, into), H))
    assert len(found) == both.blocks == blocks
    if mode != "none":
        expected = [*single(out, H), *list(single(into, H))[1 if blocks == 5 else 0 :]]
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("sparse", [False, True])
def test_a_row_that_is_next_to_nothing_is_scaled_to_something_finite(sparse: bool) -> None:
    x = torch.tensor([[2.0, -2.0], [0.0, 0.0], [1e-40, 0.0], [1e-45, 0.0]])
    scale = inverse_row_sums(x.to_sparse() if sparse else x, torch.float32)
    assert scale[:2, 0].tolist() == [0.25, 1.0]
    rows = (x * scale).abs().sum(1)
    assert bool((rows <= 1).all())
    assert float(rows[2]) > 0.03
