from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from pdadmm_g import Graph, InputError, as_graph, load_dataset
from pdadmm_g.graph.checks import check_graph
from pdadmm_g.graph.parts import graph_facts
from pdadmm_g.graph.targets import columns_of, is_indicator, labelled, row_weights, strata, target_of, weighed


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (torch.tensor([[0, 1], [1, 1]]), True),
        (torch.tensor([[False, True], [True, True]]), True),
        (torch.tensor([[0.0, 1.0], [1.0, 1.0]]), True),
        (torch.tensor([[0.0, 1.0], [torch.nan, torch.nan], [0.0, 0.0]]), True),
        (torch.tensor([[0.0, 1.0], [1.0, 0.0]]), False),  # probabilities of classes as well
        (torch.tensor([[0.2, 0.8], [1.0, 0.0]]), False),
        (torch.tensor([[3.0, 1.0], [1.0, 0.0]]), False),
        (torch.tensor([[0], [1]]), False),
        (torch.tensor([0, 1]), False),
    ],
)
def test_several_labels_are_told_from_all_else(y: torch.Tensor, expected: bool) -> None:
    assert is_indicator(y) == expected
    assert (columns_of(y.numpy(), "auto", "y") is not None) == expected
    assert (columns_of(y, "auto", "y") is not None) == expected


def test_words_and_gaps() -> None:
    given = np.array([["yes", "0"], ["false", "1"], ["", None]], dtype=object)
    found = columns_of(given, "multilabel", "y")
    assert found is not None
    np.testing.assert_array_equal(found[0].numpy(), [[1, 0], [0, 1], [np.nan, np.nan]])
    found = columns_of([1.5, None, "2"], "regression", "y")
    assert found is not None
    np.testing.assert_array_equal(found[0].numpy(), [[1.5], [np.nan], [2]])
    with pytest.raises(InputError, match="y must be 0 or 1 in each column, got 'maybe'"):
        columns_of(np.array([["maybe", "1"]], dtype=object), "multilabel", "y")


def test_words_among_numbers_are_named(tmp_path: Path) -> None:
    """They are no classes, and what is wrong is the word, not a number with a decimal comma."""
    path = tmp_path / "nodes.csv"
    rents = [f"{row},5" if row % 2 else f"{row}.25" for row in range(40)]
    pd.DataFrame({"a": np.arange(62) % 7, "rent": [*rents, *["unknown"] * 20, "", "?"]}).to_csv(path, index=False)
    nodes = pd.read_csv(path)
    for data in (path, nodes):
        read = partial(load_dataset if data is path else as_graph, data, labels="rent")
        with pytest.raises(InputError, match="but for '[?]', 'unknown': .*--target regression"):
            read()
        with pytest.raises(InputError, match="got 'unknown'"):
            read(target="regression")
        assert len(read(target="classification").label_names) == 42
    whole = nodes["rent"].where(nodes["rent"].isin(rents))
    found = as_graph(nodes.assign(rent=whole), labels="rent", target="regression").y.ravel()
    assert found[:4].tolist() == [0.25, 1.5, 2.25, 3.5]
    assert found.isnan().sum() == 22
    some = nodes.assign(rent=["1.5", "2.5"] * 30 + ["unknown"] * 2)  # three classes
    assert len(as_graph(some, labels="rent").label_names) == 3


def test_labelled_nodes_and_strata() -> None:
    y = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [torch.nan] * 3, [1.0, 1.0, 0.0]])
    data = check_graph(as_graph(torch.eye(5).numpy(), y, np.zeros((2, 0))))
    assert target_of(data) == "multilabel"
    assert labelled(data).tolist() == [True, True, True, False, True]
    # The first node has the labels 0, of three nodes, and 2, of one; the third has none.
    assert strata(data).tolist() == [2, 0, 3, -1, 1]
    assert "outputs" in graph_facts(data)
    assert "classes" not in graph_facts(data)
    numbers = check_graph(as_graph(torch.eye(5).numpy(), y[:, 0], np.zeros((2, 0)), target="regression"))
    assert strata(numbers).tolist() == [0, 0, 0, -1, 0]
    np.testing.assert_array_equal(check_graph(numbers).y, numbers.y)


def test_tables(tmp_path: Path) -> None:
    def read(text: str, *labels: str, **options: Any) -> Graph:
        (tmp_path / "nodes.csv").write_text(text)
        return load_dataset(tmp_path / "nodes.csv", labels=labels, **options)

    several = "id,size,red,new\na,1,1,0\nb,2,no,yes\nc,3,,\n"
    data = read(several, "red", "new")
    assert (target_of(data), data.feature_names, data.label_names.tolist()) == ("multilabel", ("size",), ["red", "new"])
    np.testing.assert_array_equal(data.y.numpy(), [[1, 0], [0, 1], [np.nan, np.nan]])
    one = read("size,kind\n1,a\n2,b\n3,\n", "kind")
    assert (target_of(one), one.y.tolist(), one.label_names.tolist()) == ("classification", [0, 1, -1], ["a", "b"])
    assert read("label,a,other\n1,0.5,0\n0,1.5,1\n", "label", "other").y.tolist() == [[1, 0], [0, 1]]
    numbers = "id,size,price,age\na,1,2.5,0\nb,2,,0\nc,3,-1,1\n"
    data = read(numbers, "price", target="regression")
    assert (data.feature_names, data.label_names.tolist()) == (("size", "age"), ["price"])
    np.testing.assert_array_equal(data.y[:, 0].numpy(), [2.5, np.nan, -1])
    assert read("id,size\na,1\nb,2\n", "price", target="regression").y is None
    for text, labels, options, message in (
        ("id,size,red,new\na,1,1,0\nb,2,1,\n", ("red", "new"), {}, "row 1 of 'y' has NaN in some columns"),
        (numbers, ("price", "weight"), {"target": "regression"}, "column 'weight' of the labels is missing"),
        (numbers, ("size", "price"), {}, "labels must be 0 or 1 in each column, but .* GAMLPRegressor"),
        (numbers, ("id",), {}, "column 'id' cannot be learned"),
        (numbers, ("price",), {}, r"column 'price' has fractions \(row 0: 2.5\): .*--target regression"),
    ):
        with pytest.raises(InputError, match=f"nodes.csv: {message}"):
            read(text, *labels, **options)


Y = torch.tensor([0, 2, 2, 1, 2, 0])
CLASSES = np.array([3, 5, 9])
WEIGHTS = torch.tensor([1.0, 0.5, 2.0, 3.0, 1.0, 1.5], dtype=torch.float64)


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    labels = CLASSES[Y]
    expected = compute_class_weight("balanced", classes=CLASSES, y=labels)
    assert weighed(Y, CLASSES, "balanced", None).weights.tolist() == pytest.approx(expected[Y].tolist())
    own = np.bincount(Y, WEIGHTS)
    found = weighed(Y, CLASSES, "balanced", WEIGHTS).weights
    assert found.tolist() == pytest.approx((WEIGHTS.numpy() * (own.sum() / (3 * own))[Y]).tolist())
    assert torch.bincount(Y, found).tolist() == pytest.approx([3.0] * 3)


@pytest.mark.parametrize("class_weight", ["balanced", {"0": 3.0, "2": 0.5}])
def test_probabilities_count_as_rows_of_each_class(class_weight) -> None:
    """One row of 0.25 and 0.75 is two rows, of weights 0.25 and 0.75: their sums by class are the same."""
    soft = torch.softmax(torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64), 1)
    found = weighed(soft, np.arange(3), class_weight, WEIGHTS)
    every = torch.arange(3).repeat(6)
    split = weighed(every, np.arange(3), class_weight, (WEIGHTS[:, None] * soft).flatten())
    torch.testing.assert_close(found.y * found.weights[:, None], split.weights.double().view(6, 3), rtol=1e-6, atol=0)
    torch.testing.assert_close(found.y.sum(1), torch.ones(6, dtype=torch.float64))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1, 2, -1], "that of row 7 is -1"),
        ([1, float("nan"), 1], "that of row 4 is nan"),
        ([1e16, 1, 1], r"that of row 2 is 1e\+16"),
        ([0, 0, 0], "sample_weight is zero for every training row"),
        ([1, 1], r"sample_weight has shape \(2,\), expected \(9,\) or, training nodes alone, \(3,\)"),
        (["a", "b", "c"], "sample_weight must be numbers, not <U1"),
    ],
)
def test_weights_that_are_refused(given, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        row_weights(given, torch.tensor([2, 4, 7]), 9)
    assert "\n" not in str(caught.value)
    everywhere = np.full(9, np.nan)
    everywhere[[2, 4, 7]] = [3, 0, 1]
    for each in (everywhere, [3, 0, 1], np.array([3, 0, 1], dtype=np.uint16), torch.tensor([3.0, 0.0, 1.0])):
        assert row_weights(each, torch.tensor([2, 4, 7]), 9).tolist() == [3, 0, 1]


def test_spaces_around_labels_are_no_part_of_them(tmp_path: Path) -> None:
    words, ends = (
        ["churned", "churned ", " Churned", "stayed", "\t", None],
        pd.DataFrame({"source": [0], "target": [1]}),
    )
    nodes = pd.DataFrame({"label": words, "a": np.arange(6.0)})
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    for graph in (as_graph(nodes, ends), load_dataset(tmp_path / "nodes.csv")):
        assert graph.label_names.tolist() == ["Churned", "churned", "stayed"]
        assert graph.y.tolist() == [1, 1, 0, 2, -1, -1]
        assert [note[:29] for note in graph.notes] == ["labels 'Churned' and 'churned"]
    assert as_graph(nodes.assign(label=["1 ", "01", "1", "01", "", None]), ends).label_names.tolist() == ["01", "1"]
