from __future__ import annotations

import torch
from torch_geometric.data import Data

from pdadmm_g.data.facts import graph_facts, homophily


def test_homophily_is_one_in_cliques_and_nothing_by_chance(tiny_graph: Data) -> None:
    tiny_graph.edge_index = tiny_graph.edge_index[:, (tiny_graph.edge_index != 9).all(0)]
    assert homophily(tiny_graph, torch.arange(20)) == (tiny_graph.edge_index.shape[1], 1.0, 1.0)
    # By hand: of four edges with both ends known, half join equal classes, and half would by chance.
    tiny_graph.edge_index = torch.tensor([[0, 0, 10, 10, 3], [1, 10, 11, 1, 3]])
    assert homophily(tiny_graph, torch.arange(20)) == (4, 0.5, 0.0)
    assert homophily(tiny_graph, torch.tensor([5])) == (0, 0.0, 0.0)


def test_facts_of_a_graph_by_hand() -> None:
    """Both directions and a loop are one edge and none; of the eight labelled ends, six are of class 0."""
    data = Data(
        x=torch.zeros(5, 2),
        edge_index=torch.tensor([[0, 1, 1, 2, 0, 3], [1, 0, 2, 0, 3, 3]]),
        y=torch.tensor([0, 0, 0, -1, 1]),
        train_mask=torch.tensor([True, True, False, False, True]),
    )
    data.y[2] = 1
    assert graph_facts(data) == {
        "nodes": 5, "features": 2, "classes": 2, "labelled": 4, "train": 3, "val": 0, "test": 0, "edges": 4,
        "degrees": [0, 1, 2, 2, 3], "mean_degree": 1.6, "isolated": 1, "homophily": 0.5,
        "homophily_beyond_chance": (0.5 - 0.625) / (1 - 0.625),
    }  # fmt: skip
    data.edge_index = torch.empty(2, 0, dtype=torch.int64)
    facts = graph_facts(data)
    assert (facts["edges"], facts["degrees"], facts["homophily"]) == (0, [0] * 5, None)
    data.edge_index = data.y = None
    assert graph_facts(data)["classes"] == graph_facts(data)["edges"] == 0
