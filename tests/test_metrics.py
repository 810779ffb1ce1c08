"""Figures by hand, and by scikit-learn; and what happens where nothing is defined."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    get_scorer,
    log_loss,
    make_scorer,
    matthews_corrcoef,
    roc_auc_score,
)

from pdadmm_g.metrics import BINS, METRICS, by_output, estimate, metrics, optimism_of, reliability, score

RNG = np.random.default_rng(0)
P = RNG.dirichlet(np.ones(4), 200)
Y = np.array([RNG.choice(4, p=row) for row in P])


def test_rows_that_are_alike_are_ranked_alike_and_a_row_may_be_certain() -> None:
    """Probabilities of one digit, of which many are the same; some are zero and one."""
    rough = np.round(P, 1) / np.round(P, 1).sum(1, keepdims=True)
    found = metrics(Y, rough)
    each = [(roc_auc_score(c == Y, rough[:, c]), average_precision_score(c == Y, rough[:, c])) for c in range(4)]
    assert (found["roc_auc_ovr"], found["average_precision"]) == pytest.approx(np.mean(each, axis=0), rel=1e-12)
    assert found["f1_micro"] == found["accuracy"] == (rough.argmax(1) == Y).mean()
    certain = np.eye(4)[P.argmax(1)]
    assert metrics(Y, certain)["log_loss"] == pytest.approx(log_loss(Y, certain), rel=1e-12)


@pytest.mark.parametrize("digits", [1, 8])
def test_of_several_labels_they_are_those_of_scikit_learn(digits: int) -> None:
    """Also where many probabilities are the same, one label is everybody's, or there is but one."""
    rough = np.round(P, digits)
    labels = (RNG.random(P.shape) < rough).astype(float)
    found, best = metrics(labels, rough, "multilabel"), rough > 0.5
    for average in ("micro", "macro"):
        assert found[f"f1_{average}"] == pytest.approx(f1_score(labels, best, average=average))
    assert found["accuracy"] == (best == labels).all(1).mean()
    losses = [log_loss(labels[:, k], rough[:, k]) for k in range(4)]
    assert found["log_loss"] == pytest.approx(np.mean(losses))
    one = metrics(labels[:, :1], rough[:, :1], "multilabel")
    assert one["f1_macro"] == one["f1_micro"] == f1_score(labels[:, 0], best[:, 0])
    labels[:, 0] = 1
    found = metrics(labels, rough, "multilabel")
    assert found["roc_auc_ovr"] == pytest.approx(roc_auc_score(labels[:, 1:], rough[:, 1:]))
    (share, *_), *_ = (list(each.values()) for each in by_output(labels, rough, "multilabel"))
    assert share == 1
    assert by_output(0 * labels, 0 * rough, "multilabel")[0] == {
        "share": 0, "precision": None, "recall": None, "f1": None, "average_precision": None,
    }  # fmt: skip


def test_of_numbers_each_column_counts_alike() -> None:
    """Also of columns whose numbers are all the same, met or missed."""
    y = np.array([[1.0, 3.0, 7.0], [2.0, 3.0, 7.0]])
    given = np.array([[1.0, 3.0, 6.0], [3.0, 3.0, 7.0]])
    found = metrics(y, given, "regression")
    assert found["r2"] == pytest.approx((-1 + 1 + 0) / 3)
    assert found["root_mean_squared_error"] == pytest.approx(2 * 0.5**0.5 / 3)
    assert metrics(y[:1], given[:1], "regression")["r2"] is None
    assert by_output(y, given, "regression")[0] == metrics(y[:, :1], given[:, :1], "regression")


def test_calibration_error_by_hand() -> None:
    """Two rows of confidence 0.7, one right; two of 0.95, both right; one of certainty, wrong."""
    probabilities = [[0.7, 0.3], [0.7, 0.3], [0.05, 0.95], [0.95, 0.05], [1.0, 0.0]]
    y = [0, 1, 1, 0, 1]
    bins = reliability(y, probabilities)
    assert [(each["rows"], each["accuracy"]) for each in bins] == [(2, 0.5), (3, pytest.approx(2 / 3))]
    assert [each["confidence"] for each in bins] == [pytest.approx(0.7), pytest.approx(2.9 / 3)]
    expected = 2 / 5 * 0.2 + 3 / 5 * (2.9 / 3 - 2 / 3)
    assert metrics(y, probabilities)["calibration_error"] == pytest.approx(expected)
    edges = reliability([0] * 3, [[1 / 3] * 3, [2 / 3, 1 / 6, 1 / 6], [1.0, 0.0, 0.0]])
    assert len(edges) == 3 <= BINS


def test_what_is_not_defined_is_none_and_nothing_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = metrics([2, 2, 2], P[:3])
        assert one["roc_auc_ovr"] is one["average_precision"] is None
        assert one["log_loss"] == pytest.approx(-np.log(P[:3, 2]).mean())
        missing = metrics(np.where(Y == 3, 0, Y), P)  # a class that nobody is of
        assert None not in missing.values()
        unseen = metrics(np.where(Y == 3, -1, Y), P)  # a class that the model does not know
        assert unseen["log_loss"] is None
        assert unseen["accuracy"] < 1
        assert set(metrics([], np.zeros((0, 4))).values()) == {None}
        assert set(metrics([0], [[np.nan, np.nan]]).values()) == {None}
        assert metrics([0, 0], [[1.0], [1.0]])["accuracy"] == 1.0
    assert list(metrics([], np.zeros((0, 4)))) == list(METRICS["classification"])


@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "f1_macro", "roc_auc_ovr", "neg_log_loss"])
def test_names_mean_what_they_mean_in_scikit_learn(name: str) -> None:
    """The logarithms of the probabilities, as features of a model that gives them back."""
    model = LogisticRegression().fit(np.log(P), Y)
    probabilities = model.predict_proba(np.log(P))
    assert score(name, Y, probabilities) == pytest.approx(get_scorer(name)(model, np.log(P), Y))


def test_a_scorer_is_asked_as_scikit_learn_asks_it() -> None:
    assert score(make_scorer(matthews_corrcoef), Y, P) == pytest.approx(matthews_corrcoef(Y, P.argmax(1)))
    loss = make_scorer(log_loss, response_method="predict_proba", greater_is_better=False)
    assert score(loss, Y, P) == pytest.approx(score("neg_log_loss", Y, P))
    assert score(lambda estimator, X, y: float(estimator.predict(X)[0] == y[0]), Y, P) in (0.0, 1.0)
    assert score(lambda *_: float("nan"), Y, P) is None
    assert score("roc_auc_ovr", [1, 1], P[:2]) is None


@pytest.mark.parametrize(("shares", "apart"), [((0.8, 0.2), 1.0), ((0.85, 0.15), 2.0), ((0.5, 0.3, 0.15, 0.05), 1.5)])
@pytest.mark.parametrize("nodes", [40, 100, 200])
def test_intervals_cover_the_truth_with_few_nodes_too(shares: tuple[float, ...], apart: float, nodes: int) -> None:
    random = np.random.default_rng(nodes)

    def drawn(number: int) -> tuple[np.ndarray, np.ndarray]:
        y = random.choice(len(shares), size=number, p=shares)
        scores = random.standard_normal((number, len(shares))) + apart * np.eye(len(shares))[y]
        P = np.exp(apart * scores) * shares
        return y, P / P.sum(1, keepdims=True)

    truth = metrics(*drawn(100_000))
    found = [estimate(*drawn(nodes)).figures for _ in range(120)]
    for name in ("accuracy", "balanced_accuracy", "roc_auc_ovr"):
        covered = [low <= truth[name] <= high for _, low, high in (figures[name] for figures in found)]
        assert np.mean(covered) >= 26 / 30, name
        assert np.mean([high - low for _, low, high in (figures[name] for figures in found)]) < 3.5 / nodes**0.5


def test_an_estimate_has_the_figures_the_baseline_and_no_interval_without_width() -> None:
    y, P = np.array([0, 0, 0, 1]), np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.4, 0.6]])
    found = estimate(y, P)
    assert (found.on, found.nodes, found.largest_class) == ("validation", 4, 0.75)
    assert found.figures["accuracy"] == pytest.approx((1.0, 0.05**0.25, 1.0))  # of Clopper and Pearson
    assert found.figures["roc_auc_ovr"][1] < 0.5
    assert "roc_auc_ovr" not in estimate(y * 0, P).figures


@pytest.mark.parametrize("scoring", ["accuracy", "roc_auc_ovr"])
def test_the_best_of_many_guesses_is_not_expected_to_do_better_than_chance(scoring: str) -> None:
    random, y = np.random.default_rng(0), np.arange(60) % 2
    expected = []
    for _ in range(10):
        models = random.dirichlet(np.ones(2), size=(30, 60))
        best = max(score(scoring, y, P) for P in models)
        assert optimism_of(y, models[:1], scoring)[scoring] < 0.02  # nobody chose
        expected.append(best - optimism_of(y, models, scoring)[scoring])
    assert np.mean(expected) == pytest.approx(0.5, abs=0.03)
