from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.columns import ring
from pdadmm_g import InputError, as_graph, load_dataset
from pdadmm_g.config import ModelConfig
from pdadmm_g.data.augmentation_choice import choose_augmentation, linear_score
from pdadmm_g.data.checks import check_graph
from pdadmm_g.data.facts import graph_facts
from pdadmm_g.data.sharding import graph_source
from pdadmm_g.data.splits import with_masks
from pdadmm_g.data.targets import columns_of, is_indicator, labelled, strata, target_of


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


def test_every_label_validates_and_trains() -> None:
    data = check_graph(ring("multilabel", masks=False))
    split, reasons = with_masks(data, ModelConfig(), seed=0)
    assert bool(split.y[split.val_mask].any(0).all())
    assert bool(split.y[split.train_mask].any(0).all())
    assert "some of each label" in reasons[-1]


@pytest.mark.parametrize("target", ["multilabel", "regression"])
def test_the_linear_model_is_what_it_says(target: str) -> None:
    """By its definition for numbers, and with weights as if rows were there so often for both."""
    data = check_graph(as_graph(ring(target), target=target))
    X, y = data.x.double(), data.y
    order = torch.arange(len(X))
    scoring = "f1_micro" if target == "multilabel" else "r2"
    score, _ = linear_score(X, [y[:80], y[80:]], None, scoring, target)
    weighed = linear_score(X, [y[:80], y[80:]], torch.full((80,), 2.0), scoring, target)
    twice = torch.cat([order[:80], order[:80], order[80:]])
    repeated = linear_score(X[twice], [y[twice[:160]], y[80:]], None, scoring, target)
    assert weighed == pytest.approx(repeated, abs=1e-9)
    assert score == pytest.approx(weighed[0], abs=1e-9)
    if target == "regression":
        A = torch.cat([X - X[:80].mean(0), torch.ones(len(X), 1, dtype=torch.float64)], dim=1)
        best = -torch.inf
        for ridge in (1e-4, 1e-3, 1e-2, 1e-1):
            D = 80 * ridge * torch.eye(A.shape[1], dtype=torch.float64)
            D[-1, -1] = 0
            B = torch.linalg.solve(A[:80].T @ A[:80] + D, A[:80].T @ y[:80])
            error = (A[80:] @ B - y[80:]).square().sum(0) / (y[80:] - y[80:].mean(0)).square().sum(0)
            best = max(best, float((1 - error).mean()))
        assert score == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("target", ["multilabel", "regression"])
def test_features_are_chosen_by_it(target: str) -> None:
    data = check_graph(as_graph(ring(target), target=target))
    training, validation = (data[mask].nonzero().view(-1) for mask in ("train_mask", "val_mask"))
    choice = choose_augmentation(data, training, validation, ModelConfig().resolved(target))
    # Targets are smooth along the ring: neighbours help.
    assert choice.config.augment in ("average", "hops")
    assert "of a linear model" in choice.reasons[0]


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join([*lines, ""]))
    return path


def test_tables(tmp_path: Path) -> None:
    nodes = write(tmp_path / "nodes.csv", "id,size,red,new", "a,1,1,0", "b,2,no,yes", "c,3,,")
    edges = write(tmp_path / "edges.csv", "source,target", "a,b", "b,c")
    data = load_dataset(nodes, edges=edges, labels=("red", "new"))
    assert target_of(data) == "multilabel"
    assert data.label_names.tolist() == ["red", "new"]
    assert data.feature_names == ("size",)
    np.testing.assert_array_equal(data.y.numpy(), [[1, 0], [0, 1], [np.nan, np.nan]])
    one = load_dataset(write(tmp_path / "one.csv", "size,kind", "1,a", "2,b", "3,"), labels=("kind",))
    assert (target_of(one), one.y.tolist(), one.label_names.tolist()) == ("classification", [0, 1, -1], ["a", "b"])
    write(tmp_path / "half.csv", "size,red,new", "1,1,0", "2,1,")
    with pytest.raises(InputError, match=r"half.csv: row 1 of 'y' has NaN in some columns"):
        load_dataset(tmp_path / "half.csv", labels=("red", "new"))


def test_tables_of_numbers(tmp_path: Path) -> None:
    nodes = write(tmp_path / "nodes.csv", "id,size,price", "a,1,2.5", "b,2,", "c,3,-1")
    edges = write(tmp_path / "edges.csv", "source,target", "a,b", "b,c")
    data = load_dataset(nodes, edges=edges, labels=("price",), target="regression")
    np.testing.assert_array_equal(data.y[:, 0].numpy(), [2.5, np.nan, -1])
    assert data.feature_names == ("size",)
    assert data.label_names.tolist() == ["price"]
    without = load_dataset(
        write(tmp_path / "new.csv", "id,size", "a,1", "b,2", "c,4"), edges=edges, labels=("price",), target="regression"
    )
    assert without.y is None
    with pytest.raises(InputError, match=r"nodes.csv: column 'weight' of the labels is missing; there are id, size"):
        load_dataset(nodes, edges=edges, labels=("price", "weight"), target="regression")
    with pytest.raises(InputError, match=r"nodes.csv: labels must be 0 or 1 in each column, but .* GAMLPRegressor"):
        load_dataset(nodes, edges=edges, labels=("size", "price"))


def test_not_for_a_folder_of_shards() -> None:
    with pytest.raises(InputError, match="several labels or numbers a node are not for a folder of shards"):
        graph_source(check_graph(ring("multilabel")), "mark")
