from __future__ import annotations

import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

from pdadmm_g import InputError, as_graph
from pdadmm_g.config import ModelConfig
from pdadmm_g.graph.checks import check_graph
from pdadmm_g.training.prepare import prepare_graph


def test_directions_that_cannot_be_taken_are_refused(tiny_graph: Data) -> None:
    with pytest.raises(InputError, match="unlabelled must be 0 with directed = out"):
        prepare_graph(check_graph(tiny_graph), ModelConfig(unlabelled=5, directed="out").resolved(), seed=0)


def test_what_is_not_used_is_said(tiny_graph: Data) -> None:
    """Several columns of edge_attr are no weights; directions that no validation node judges count both ways."""
    tiny_graph.edge_index = tiny_graph.edge_index[:, 1:]
    tiny_graph.edge_attr = torch.ones(tiny_graph.edge_index.shape[1], 2)
    config = ModelConfig(augment="average", normalize="unit", unlabelled=0, validation=0, hops=2).resolved()
    del tiny_graph.val_mask
    reasons = " ".join(prepare_graph(check_graph(tiny_graph), config, seed=0).reasons)
    assert "edge_attr has several columns and is not used" in reasons
    assert "edges have directions: features go along them both ways alike, directed='both' keeps" in reasons


def test_columns_of_edges_that_are_not_used_are_named(tiny_graph: Data) -> None:
    nodes = pd.DataFrame(tiny_graph.x.numpy(), columns=list("abcde")).assign(label=tiny_graph.y.numpy())
    edges = pd.DataFrame(tiny_graph.edge_index.T.numpy(), columns=["source", "target"]).assign(weight=1.0)
    config = ModelConfig(augment="average", normalize="unit", unlabelled=0, validation=0, hops=2).resolved()

    def remarks(table: pd.DataFrame) -> str:
        return " ".join(prepare_graph(check_graph(as_graph(nodes, table)), config, seed=0).reasons)

    assert "of the edges" not in remarks(edges)
    said = remarks(edges.assign(kind="road", year=1990))
    assert "columns 'kind', 'year' of the edges are not used: 'weight' is the place for a number an edge" in said


def test_errors_speak_of_labels_and_nodes_as_the_user_does(tiny_graph: Data) -> None:
    nodes = pd.DataFrame(tiny_graph.x.numpy(), columns=list("abcde")).assign(id=[f"n{i}" for i in range(20)])
    nodes["label"] = ["ant"] * 10 + ["bee"] * 10
    nodes["split"] = ["train"] * 10 + ["val"] * 10
    edges = pd.DataFrame({"source": ["n0"], "target": ["n1"]})
    config = ModelConfig(augment="none", unlabelled=0).resolved()
    with pytest.raises(InputError, match="data: all training nodes are of class ant: there is nothing to tell apart"):
        prepare_graph(check_graph(as_graph(nodes, edges)), config, seed=0)
    nodes["label"] = ["ant", "bee"] * 9 + ["ant", None]
    with pytest.raises(InputError, match=r"node n19 of val_mask has no label \(it is empty\)"):
        prepare_graph(check_graph(as_graph(nodes, edges)), config, seed=0)
