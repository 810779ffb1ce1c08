from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from pdadmm_g.data.facts import are_directed, join_unlike


def test_unlike_nodes_are_joined_where_edges_say_so(tiny_graph: Data) -> None:
    everyone = torch.arange(20)
    assert join_unlike(tiny_graph, everyone) is None
    tiny_graph.edge_index = torch.stack([torch.arange(10).repeat(3), 10 + torch.arange(30) % 10])
    assert join_unlike(tiny_graph, everyone) == pytest.approx(-1.0)
    assert join_unlike(tiny_graph, torch.arange(10)) is None  # nobody knows the other ends


@pytest.mark.parametrize(
    ("edges", "weights", "directed"),
    [
        ([[0, 1], [1, 0]], None, False),
        ([[0, 1, 2], [1, 0, 1]], None, True),
        ([[0, 0, 1], [1, 2, 2]], None, False),
        ([[2, 2, 1], [1, 0, 0]], None, False),
        ([[0, 1], [1, 0]], [2.0, 2.0], False),
        ([[0, 1], [1, 0]], [2.0, 3.0], True),
        ([[0, 1, 1], [1, 0, 0]], None, False),
        ([[], []], None, False),
    ],
    ids=["both ways", "one missing", "once, rising", "once, falling", "weights", "other weights", "doubled", "none"],
)
def test_which_edges_have_directions(edges: list[list[int]], weights: list[float] | None, directed: bool) -> None:
    data = Data(x=torch.ones(3, 1), edge_index=torch.tensor(edges, dtype=torch.int64))
    if weights is not None:
        data.edge_weight = torch.tensor(weights)
    assert are_directed(data) is directed
