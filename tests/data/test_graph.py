from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import Compose

from pdadmm_g.data.augmentation import GraphAugment
from pdadmm_g.data.datasets import load_dataset
from pdadmm_g.data.graph import Graph


def test_entries_are_attributes_and_items_and_none_is_not_there() -> None:
    graph = Graph(x=torch.zeros(3, 2), y=None)
    graph.train_mask = torch.ones(3, dtype=torch.bool)
    assert graph["train_mask"] is graph.train_mask is graph.get("train_mask")
    assert ("x" in graph, "y" in graph, graph.y, graph.edge_index, graph.get("ids", 5)) == (True, False, None, None, 5)
    graph.x = None
    del graph["train_mask"]
    assert graph.to_dict() == {}
    with pytest.raises(AttributeError, match=r"no 'train_mask'; to_pyg\(\)"):
        _ = graph.train_mask


def test_entries_do_not_hide_methods() -> None:
    graph = Graph(get=1, to_dict=2, self=3)
    assert graph.to_dict() == {"get": 1, "to_dict": 2, "self": 3}


def test_the_number_of_nodes() -> None:
    edges = torch.tensor([[0, 4], [1, 2]])
    assert Graph().num_nodes == 0
    assert Graph(edge_index=edges).num_nodes == 5
    assert Graph(edge_index=edges, x=torch.zeros(6, 1)).num_nodes == 6
    assert Graph(edge_index=edges, num_nodes=7).num_nodes == 7


def test_a_copy_has_entries_of_its_own_and_a_clone_their_values_too() -> None:
    graph = Graph(x=torch.zeros(2, 2))
    shallow, deep = copy.copy(graph), graph.clone()
    shallow.y = torch.arange(2)
    deep.x[0] = 1
    assert (graph.y, float(graph.x.sum()), shallow.x is graph.x) == (None, 0, True)


def test_to_pyg_and_back(tiny_graph: Graph) -> None:
    data = tiny_graph.to_pyg()
    assert isinstance(data, Data)
    assert data.num_nodes == 20
    assert data.to_dict() == tiny_graph.to_dict()


def test_a_saved_one_is_read(tiny_graph: Graph, tmp_path: Path) -> None:
    torch.save(tiny_graph, tmp_path / "graph.pt")
    assert torch.equal(load_dataset(tmp_path / "graph.pt").x, tiny_graph.x)


def test_augmentation_is_a_transform_of_either_kind(tiny_graph: Graph) -> None:
    before = tiny_graph.x
    ours, theirs = GraphAugment()(tiny_graph), Compose([GraphAugment()])(tiny_graph.to_pyg())
    assert isinstance(theirs, Data)
    assert torch.equal(ours.x, theirs.x)
    assert tiny_graph.x is before
