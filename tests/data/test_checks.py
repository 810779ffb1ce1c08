"""Graphs of any kind: checked as they should be, or an error of one line."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch_geometric.data import Data

from helpers.anything import VALUES, refused
from pdadmm_g import GAMLPClassifier, InputError, as_graph
from pdadmm_g.data.checks import check_graph
from pdadmm_g.data.graph import Graph, as_mask
from pdadmm_g.data.sharding import check_block
from pdadmm_g.data.targets import check_labels, encoded_labels


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": ["a"] * 20}, "labels 'y' must be integers, not list"),
        ({"y": np.array(["a"] * 20)}, "labels 'y' must be integers, not <U1"),
        ({"y": {}}, "labels 'y' must be integers, not dict"),
        ({"train_mask": "all"}, "train_mask must be booleans or a list of node indices, not str"),
        ({"edge_index": torch.eye(2, 20).to_sparse()}, "edge_index must be dense"),
        ({"edge_index": torch.zeros(2, 3, dtype=torch.complex64)}, "edge_index must hold integers"),
        ({"num_nodes": 7}, "'num_nodes' contradicts the 20 rows of 'x'"),
    ],
)
def test_attributes_of_any_type(tiny_graph: Data, changes: dict, message: str) -> None:
    for name, value in changes.items():
        tiny_graph[name] = value
    with pytest.raises(InputError, match=message):
        check_graph(tiny_graph)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_infinity_in_half_precision_is_seen(tiny_graph: Data, layout: str) -> None:
    tiny_graph.x = tiny_graph.x.half()
    tiny_graph.x[3, 1] = float("inf")
    tiny_graph.x = tiny_graph.x.to_sparse() if layout == "sparse" else tiny_graph.x
    with pytest.raises(InputError, match="NaN or infinity, first in row 3"):
        check_graph(tiny_graph)


ARRAYS = arrays.arrays(
    st.one_of(
        arrays.boolean_dtypes(), arrays.integer_dtypes(), arrays.unsigned_integer_dtypes(), arrays.floating_dtypes(),
        arrays.complex_number_dtypes(), arrays.unicode_string_dtypes(max_len=3), arrays.datetime64_dtypes(),
    ),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6),
)  # fmt: skip


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(["x", "edge_index", "y", "train_mask", "val_mask"]), ARRAYS | VALUES))
def test_any_graph(values: dict) -> None:
    data = Data()
    for name, value in values.items():
        with contextlib.suppress(TypeError, ValueError):
            value = torch.as_tensor(value) if isinstance(value, np.ndarray) else value
        data[name] = value
    try:
        checked = check_graph(data)
    except InputError as error:
        return refused(error)
    nodes = len(checked.x)
    assert checked.x.ndim == 2
    assert bool(torch.isfinite(checked.x).all())
    assert checked.y is None or (checked.y.shape == (nodes,) and int(checked.y.min()) >= -1)
    return None


@settings(max_examples=100)
@given(ARRAYS | VALUES | st.lists(st.integers(0, 5)) | st.lists(st.booleans(), min_size=6, max_size=6))
def test_any_mask(values: object) -> None:
    try:
        mask = as_mask(values, 6, "mask")
    except InputError as error:
        return refused(error)
    assert mask.dtype == torch.bool
    assert mask.shape == (6,)
    if isinstance(values, list) and values and not isinstance(values[0], bool) and len(set(values)) == len(values):
        assert mask.nonzero().view(-1).tolist() == sorted(values)
    return None


@pytest.mark.parametrize("value", [10**15 + 1, -(2**63)])
def test_whole_numbers_that_are_too_large_for_features(value: int) -> None:
    x = torch.tensor([[1, 2], [3, value]])
    with pytest.raises(InputError, match="features exceed 1e\\+15, first in row 1"):
        check_graph(Graph(x=x))
    with pytest.raises(InputError, match="features exceed 1e\\+15, first in row 8"):
        check_block(x.numpy(), 7, "x.npy")
    assert check_graph(Graph(x=torch.tensor([[10**15]]))).x.tolist() == [[10**15]]


def test_labels_that_are_too_large_are_named_as_they_are() -> None:
    with pytest.raises(InputError, match=r"but y\[1\] = 1e\+300"):
        check_labels(torch.tensor([0.0, 1e300], dtype=torch.float64), 2, "data")
    assert encoded_labels(np.array([0, 2**60], dtype=object), "labels")[0].tolist() == [0, 2**60]
    with pytest.raises(InputError, match="labels must be at most 9223372036854775807"):
        encoded_labels(np.array([0, 2**64], dtype=object), "labels")


@pytest.mark.parametrize("names", [["zebra", "ant"], np.array(["zebra", "ant", "not there"])])
@pytest.mark.parametrize("soft", [False, True])
def test_names_of_labels_in_any_order(tiny_graph: Data, names: object, soft: bool) -> None:
    """People keep them in the order of the numbers, which need not be that of the alphabet."""
    if soft:
        names = ["zebra", "ant"]
        tiny_graph.y = torch.nn.functional.one_hot(tiny_graph.y).double() * 0.8 + 0.1
    settings = {"layers": 2, "hidden": 8, "epochs": 20, "augment": "hops", "weight_decay": 0.1, "unlabelled": 0}
    clf = GAMLPClassifier(random_state=0, **settings)
    tiny_graph.label_names = names
    clf.fit(tiny_graph)
    assert clf.history_[-1]["val_accuracy"] == 1.0
    assert clf.predict(tiny_graph).tolist() == ["zebra"] * 10 + ["ant"] * 10
    assert clf.score(tiny_graph) == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label_names": ["ant"]}, "label_names must be different names, one for each label"),
        ({"label_names": ["ant", "ant"]}, "label_names must be different names, one for each label"),
        ({"label_names": ["ant", None]}, "label_names must be different names, one for each label"),
        ({"label_names": {0: "ant"}}, "label_names must be different names, one for each label"),
        ({"label_names": [["ant"], ["bee", "cat"]]}, "label_names must be different names, one for each label"),
        ({"ids": ["a", "b"]}, "ids must be 20 names, one for each node"),
    ],
)
def test_names_that_are_none(tiny_graph: Data, changes: dict, message: str) -> None:
    for name, value in changes.items():
        tiny_graph[name] = value
    with pytest.raises(InputError, match=f"data: {message}: mend or delete it"):
        check_graph(tiny_graph)


def test_names_of_labels_that_are_not_there(tiny_graph: Data) -> None:
    tiny_graph.label_names, tiny_graph.y = ["ant", "bee"], None
    assert check_graph(as_graph(tiny_graph, target="multilabel")).get("label_names") is None
