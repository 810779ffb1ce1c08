from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from helpers.communities import communities
from pdadmm_g import GAMLPClassifier
from pdadmm_g.graph.parts import are_directed, graph_facts, homophily, join_unlike


def test_homophily_is_one_in_cliques_and_nothing_by_chance(tiny_graph: Data) -> None:
    tiny_graph.edge_index = tiny_graph.edge_index[:, (tiny_graph.edge_index != 9).all(0)]
    assert homophily(tiny_graph, torch.arange(20)) == (81, 1.0, (36**2 + 45**2) / 81**2)
    # By hand: of four edges with both ends known, half join equal classes, and half would by chance.
    tiny_graph.edge_index = torch.tensor([[0, 0, 10, 10, 3], [1, 10, 11, 1, 3]])
    assert homophily(tiny_graph, torch.arange(20)) == (4, 0.5, 0.5)
    # Both ways, repeated, or from a node to itself, it is the same edge, or none.
    tiny_graph.edge_index = torch.cat([tiny_graph.edge_index, torch.tensor([[1, 0, 0], [0, 1, 1]])], dim=1)
    assert homophily(tiny_graph, torch.arange(20)) == (4, 0.5, 0.5)
    assert homophily(tiny_graph, torch.tensor([5])) == (0, 0.0, 0.0)


def test_facts_of_a_graph_by_hand() -> None:
    """Both directions and a loop are one edge and none; of the six labelled ends, four are of class 0."""
    data = Data(
        x=torch.zeros(5, 2),
        edge_index=torch.tensor([[0, 1, 1, 2, 0, 3], [1, 0, 2, 0, 3, 3]]),
        y=torch.tensor([0, 0, 0, -1, 1]),
        train_mask=torch.tensor([True, True, False, False, True]),
    )
    data.y[2] = 1
    assert graph_facts(data) == {
        "nodes": 5, "features": 2, "classes": 2, "labelled": 4, "train": 3, "val": 0, "test": 0, "edges": 4,
        "degrees": [0, 1, 2, 2, 3], "mean_degree": 1.6, "isolated": 1, "homophily": 1 / 3,
        "homophily_beyond_chance": pytest.approx((1 / 3 - 5 / 9) / (1 - 5 / 9)),
    }  # fmt: skip
    data.edge_index = torch.empty(2, 0, dtype=torch.int64)
    facts = graph_facts(data)
    assert (facts["edges"], facts["degrees"], facts["homophily"]) == (0, [0] * 5, None)
    data.edge_index = data.y = None
    assert graph_facts(data)["classes"] == graph_facts(data)["edges"] == 0


def test_unlike_nodes_are_joined_where_edges_say_so(tiny_graph: Data) -> None:
    everyone = torch.arange(20)
    assert join_unlike(tiny_graph, everyone) is None
    ends = torch.arange(30)
    tiny_graph.edge_index = torch.stack([ends % 10, 10 + (ends + ends // 10) % 10])
    assert join_unlike(tiny_graph, everyone) == (30, 0.0, 0.5)
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


def test_a_graph_of_edges_alone_is_learned() -> None:
    """Edges within communities say enough, and new nodes find their way."""
    data = communities(150, labels=10)
    bare = Data(edge_index=data.edge_index, y=data.y, train_mask=data.train_mask, val_mask=data.val_mask)
    clf = GAMLPClassifier(layers=2, epochs=30, weight_decay=0.1, unlabelled=0, random_state=0).fit(bare)
    assert clf.score(bare, data.test_mask) > 0.7
    assert "there are no features: degrees and random projections" in clf.choices_[0]
    assert clf.predict(Data(edge_index=data.edge_index, num_nodes=151)).shape == (151,)
