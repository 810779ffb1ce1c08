from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from pdadmm_g import InputError
from pdadmm_g.data.targets import row_weights, weighed

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


def test_balanced_counts_only_classes_that_weigh_something() -> None:
    found = weighed(Y, CLASSES, "balanced", torch.tensor([1.0, 1.0, 1.0, 0.0, 1.0, 1.0], dtype=torch.float64))
    assert found.classes.tolist() == [3, 9]
    assert found.kept.tolist() == [True, True, True, False, True, True]
    assert found.y.tolist() == [0, 1, 1, 1, 0]
    assert found.weights.tolist() == pytest.approx([5 / 4, 5 / 6, 5 / 6, 5 / 6, 5 / 4])


def test_a_class_that_is_not_named_weighs_one() -> None:
    assert weighed(Y, CLASSES, {"9": 2.0}, WEIGHTS).weights.tolist() == [1.0, 1.0, 4.0, 3.0, 2.0, 1.5]


@pytest.mark.parametrize("weights", [None, torch.ones(6, dtype=torch.float64)])
@pytest.mark.parametrize("class_weight", [None, {}, {"3": 1.0}])
def test_weights_of_one_are_none(class_weight, weights) -> None:
    found = weighed(Y, CLASSES, class_weight, weights)
    assert (found.kept, found.weights) == (None, None)
    assert torch.equal(found.y, Y)


@pytest.mark.parametrize("class_weight", ["balanced", {"0": 3.0, "2": 0.5}])
def test_probabilities_count_as_rows_of_each_class(class_weight) -> None:
    """One row of 0.25 and 0.75 is two rows, of weights 0.25 and 0.75: their sums by class are the same."""
    soft = torch.softmax(torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64), 1)
    found = weighed(soft, np.arange(3), class_weight, WEIGHTS)
    every = torch.arange(3).repeat(6)
    split = weighed(every, np.arange(3), class_weight, (WEIGHTS[:, None] * soft).flatten())
    torch.testing.assert_close(found.y * found.weights[:, None], split.weights.double().view(6, 3), rtol=1e-6, atol=0)
    torch.testing.assert_close(found.y.sum(1), torch.ones(6, dtype=torch.float64))


def test_probabilities_of_zero_and_one_are_classes() -> None:
    soft = torch.eye(3, dtype=torch.float64)[Y]
    assert torch.equal(weighed(soft, np.arange(3), None, None).y, Y)
    assert torch.equal(weighed(soft, np.arange(3), "balanced", WEIGHTS).y, Y)
    hard = weighed(Y, np.arange(3), "balanced", WEIGHTS).weights
    torch.testing.assert_close(weighed(soft, np.arange(3), "balanced", WEIGHTS).weights, hard)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1, 2, -1], "sample_weight must not be negative, but that of row 7 is -1"),
        ([1, float("nan"), 1], "sample_weight must be finite, but that of row 4 is nan"),
        ([float("inf"), 1, 1], "sample_weight must be finite, but that of row 2 is inf"),
        ([1e16, 1, 1], r"sample_weight must be at most 1e\+15, but that of row 2 is 1e\+16"),
        ([0, 0, 0], "sample_weight is zero for every training row"),
        ([1, 1], r"sample_weight has shape \(2,\), expected \(9,\) or, training nodes alone, \(3,\)"),
        (torch.ones(3, 1), r"sample_weight has shape \(3, 1\), expected"),
        (2.0, r"sample_weight has shape \(\), expected"),
        (["a", "b", "c"], "sample_weight must be numbers, not <U1"),
        ([[1], [1, 2]], "sample_weight must be numbers"),
        ([1j, 1, 1], "sample_weight must be numbers, not torch.complex128"),
        ({"a": 1}, "sample_weight must be numbers"),
    ],
)
def test_weights_that_are_refused(given, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        row_weights(given, torch.tensor([2, 4, 7]), 9)
    assert "\n" not in str(caught.value)


def test_weights_of_all_rows_or_of_some() -> None:
    rows = torch.tensor([2, 4, 7])
    everywhere = np.full(9, np.nan)
    everywhere[[2, 4, 7]] = [3, 0, 1]
    for given in (everywhere, [3, 0, 1], np.array([3, 0, 1], dtype=np.uint16), torch.tensor([3.0, 0.0, 1.0])):
        assert row_weights(given, rows, 9).tolist() == [3, 0, 1]


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({"4": 2.0}, "class_weight names class 4, which no training row has; there are 3, 5, 9"),
        ({"3": 0.0, "5": 0.0, "9": 0.0}, "class_weight leaves every training row a weight of zero"),
    ],
)
def test_class_weights_that_are_refused(class_weight: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        weighed(Y, CLASSES, class_weight, None)
