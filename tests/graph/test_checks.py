"""Graphs of any kind: checked as they should be, or an error of one line."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from helpers.estimators import classifier
from pdadmm_g import InputError, as_graph
from pdadmm_g.graph.checks import check_graph, check_training
from pdadmm_g.graph.graph import Graph, as_mask
from pdadmm_g.graph.shards import check_block


def changed(data: Data, changes: dict[str, object]) -> Data:
    for name, value in changes.items():
        data[name] = value
    return data


NAMES = "label_names must be different names, one for each label: mend or delete it"
UNSOUND = [
    ({"y": ["a"] * 20}, "labels 'y' must be integers"),
    ({"y": torch.full((20,), 0.5)}, r"labels 'y' have fractions \(row 0: 0.5\)"),
    ({"y": torch.zeros(19, dtype=torch.long)}, r"labels 'y' have shape \(19,\), expected \(20,\)"),
    ({"y": torch.full((20,), -2)}, "labels must be integers from 0"),
    ({"x": torch.zeros(20)}, "features 'x' must be a matrix"),
    ({"x": torch.zeros(20, 5, dtype=torch.complex64)}, "features 'x' must be real numbers"),
    ({"edge_index": torch.eye(2, 20).to_sparse()}, "edge_index must be dense"),
    ({"edge_index": torch.zeros(2, 4)}, "edge_index must hold integers"),
    ({"edge_index": torch.tensor([[0, 20], [1, 0]])}, r"edge_index names node 20, but nodes are 0\.\.19"),
    ({"edge_index": torch.tensor([[0, -1], [1, 0]])}, "edge_index names node -1"),
    ({"edge_index": torch.zeros(3, 4, dtype=torch.long)}, r"edge_index must have shape \(2, edges\)"),
    ({"num_nodes": 7}, "'num_nodes' contradicts the 20 rows of 'x'"),
    ({"train_mask": "all"}, "train_mask must be booleans or a list of node indices"),
    ({"train_mask": torch.ones(20)}, "train_mask must be booleans or a list of node indices"),
    ({"train_mask": torch.ones(19, dtype=torch.bool)}, r"train_mask has shape \(19,\), expected \(20,\)"),
    ({"train_mask": torch.tensor([0, 20])}, r"train_mask names a node outside 0\.\.19"),
    ({"label_names": ["ant", "ant"]}, NAMES),
    ({"label_names": ["ant", None]}, NAMES),
    ({"ids": ["a", "b"]}, "ids must be 20 names, one for each node: mend or delete it"),
]


@pytest.mark.parametrize(("changes", "message"), UNSOUND)
def test_unsound_graphs_are_refused(tiny_graph: Data, changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_graph(changed(tiny_graph, changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": None}, "labels 'y' are missing"),
        ({"train_mask": torch.zeros(20, dtype=torch.bool)}, "train_mask is empty"),
        ({"train_mask": torch.tensor([0, 1])}, "all training nodes are of class 0"),
        ({"y": torch.tensor([-1, *[0] * 9, *[1] * 10])}, r"node 0 of train_mask has no label \(y = -1\)"),
    ],
)
def test_untrainable_graphs_are_refused(tiny_graph: Data, changes: dict, message: str) -> None:
    data = check_graph(changed(tiny_graph, changes))
    with pytest.raises(InputError, match=message):
        check_training(data)


def test_a_class_without_training_nodes_is_named_and_never_predicted(tiny_graph: Data) -> None:
    tiny_graph.y = tiny_graph.y.clone()
    strangers = torch.tensor([3, 13, 6, 16])  # two validate, two are for the test
    tiny_graph.y[strangers] = 2
    clf = classifier(epochs=20).fit(tiny_graph)
    assert clf.classes_.tolist() == [0, 1]
    assert "no training node is of class 2: it is never predicted" in " ".join(clf.choices_)
    assert not np.isin(clf.nodes_.val, strangers).any()
    assert clf.score(tiny_graph) == 6 / 8


def test_overlapping_masks_warn(tiny_graph: Data) -> None:
    tiny_graph.test_mask |= tiny_graph.train_mask
    with pytest.warns(UserWarning, match="train_mask and test_mask share 6 nodes"):
        check_training(tiny_graph)


def test_as_mask() -> None:
    assert as_mask([1, 3], 4, "mask").tolist() == [False, True, False, True]
    assert as_mask([True, False], 2, "mask").tolist() == [True, False]
    for dtype in (np.uint8, np.int64, np.uint16):
        assert as_mask(np.array([1, 0, 1], dtype=dtype), 3, "mask").tolist() == [True, False, True]
    with pytest.raises(InputError, match="mask names a node twice"):
        as_mask([0, 2, 2], 4, "mask")


@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_coo])
@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (float("nan"), torch.float32, "NaN or infinity"),
        (-float("inf"), torch.float16, "NaN or infinity"),
        (3e38, torch.float64, "exceed 1e.15"),
    ],
)
def test_features_that_are_not_finite_name_the_row(
    tiny_graph: Data, value: float, dtype: torch.dtype, message: str, layout: torch.layout
) -> None:
    tiny_graph.x = tiny_graph.x.to(dtype)
    tiny_graph.x[13, 2] = value
    tiny_graph.x = tiny_graph.x if layout == torch.strided else tiny_graph.x.to_sparse()
    with pytest.raises(InputError, match=f"{message}, first in row 13"):
        check_graph(tiny_graph)


@pytest.mark.parametrize("value", [10**15 + 1, -(2**63)])
def test_whole_numbers_that_are_too_large_for_features(value: int) -> None:
    x = torch.tensor([[1, 2], [3, value]])
    with pytest.raises(InputError, match="features exceed 1e\\+15, first in row 1"):
        check_graph(Graph(x=x))
    with pytest.raises(InputError, match="features exceed 1e\\+15, first in row 8"):
        check_block(x.numpy(), 7, "x.npy")
    assert check_graph(Graph(x=torch.tensor([[10**15]]))).x.tolist() == [[10**15]]


@pytest.mark.parametrize(
    ("names", "soft"), [(np.array(["zebra", "ant", "not there"]), False), (["zebra", "ant"], True)]
)
def test_names_of_labels_in_any_order(tiny_graph: Data, names: object, soft: bool) -> None:
    """People keep them in the order of the numbers, which need not be that of the alphabet."""
    if soft:
        tiny_graph.y = torch.nn.functional.one_hot(tiny_graph.y).double() * 0.8 + 0.1
    tiny_graph.label_names = names
    clf = classifier(epochs=20).fit(tiny_graph)
    assert clf.history_[-1]["val_accuracy"] == 1.0
    assert clf.predict(tiny_graph).tolist() == ["zebra"] * 10 + ["ant"] * 10
    assert clf.score(tiny_graph) == 1.0
    tiny_graph.y = None
    assert check_graph(as_graph(tiny_graph, target="multilabel")).get("label_names") is None
