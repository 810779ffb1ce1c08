from __future__ import annotations

import pytest
import torch

from helpers.communities import communities
from pdadmm_g.data.propagation import Operator, neighbourhood, renormalized_adjacency

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


def test_a_neighbourhood_of_most_nodes_is_the_graph_itself() -> None:
    data = communities(60)
    A = renormalized_adjacency(data.edge_index, 60)
    near, part = neighbourhood(A, torch.arange(0, 60, 3), 3)
    assert near is None
    assert part is A


def test_without_edges_there_is_nothing_to_be_near() -> None:
    assert neighbourhood(None, torch.tensor([1]), 2) == (None, None)
