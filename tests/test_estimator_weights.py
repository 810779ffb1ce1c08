"""Weights of rows and classes, and labels that are probabilities: what the estimator makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from helpers.commands import SMALL, assert_refused, save
from pdadmm_g import GAMLPClassifier, InputError
from pdadmm_g.cli import main
from pdadmm_g.config import RunConfig
from pdadmm_g.data import augmentation_choice
from pdadmm_g.runs.run import train_run


def small(**settings: object) -> GAMLPClassifier:
    fixed = {"layers": 3, "hidden": 8, "epochs": 20, "weight_decay": 0.1, "random_state": 0}
    return GAMLPClassifier(**fixed | settings)


def graph_model(**settings: object) -> GAMLPClassifier:
    return small(**{"augment": "average", "hops": 2, "normalize": "unit"} | settings)


def parameters(clf: GAMLPClassifier) -> list[np.ndarray]:
    return [parameter.detach().numpy() for parameter in clf.model_.parameters()]


def assert_same(a: GAMLPClassifier, b: GAMLPClassifier) -> None:
    assert a.classes_.tolist() == b.classes_.tolist()
    for ours, theirs in zip(parameters(a), parameters(b), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.fixture
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of three classes, and how often each is there: some twice or thrice, some not at all."""
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    return np.eye(3, 6)[y] + 0.7 * rng.standard_normal((30, 6)), y, rng.integers(0, 4, 30)


@pytest.fixture
def soft() -> np.ndarray:
    return np.random.default_rng(1).dirichlet(np.ones(3) / 2, 30)


# ---------------------------------------------------------------------------------------------------- weights of rows


SETTINGS = [
    {}, {"solver": "linearized"}, {"weight_decay": 0.0}, {"risk": "squared-error"},
    {"quantize": "pq", "bits": 4},  # with more, a last bit moves some value to the next level
]  # fmt: skip


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_weight_is_a_number_of_equal_rows(rows, settings: dict[str, object]) -> None:
    X, y, times = rows
    weighted = small(**settings).fit(X, y, sample_weight=times)
    repeated = small(**settings).fit(X.repeat(times, 0), y.repeat(times))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-5)
    for name in ("train_accuracy", "train_loss"):
        assert weighted.history_[-1][name] == pytest.approx(repeated.history_[-1][name], rel=1e-3)


def test_fewer_rows_than_features(rows) -> None:
    X, y, times = rows
    X = np.random.default_rng(2).standard_normal((30, 40))
    weighted, repeated = small(), small()
    weighted.fit(X, y, sample_weight=times)
    repeated.fit(X.repeat(times, 0), y.repeat(times))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=3e-5)


def test_weights_of_one_change_no_bit(rows, tiny_graph: Data) -> None:
    X, y, _ = rows
    assert_same(small().fit(X, y), small().fit(X, y, sample_weight=np.ones(30)))
    plain = graph_model().fit(tiny_graph)
    assert_same(plain, graph_model().fit(tiny_graph, sample_weight=torch.ones(20)))
    assert_same(plain, graph_model(class_weight="balanced").fit(tiny_graph))


def test_rows_that_weigh_nothing_are_not_there(rows) -> None:
    X, y, _ = rows
    names = np.array(["a", "b", "c"])[y]
    clf = small().fit(X, names, sample_weight=y != 1)
    assert clf.classes_.tolist() == ["a", "c"]
    assert_same(clf, small().fit(X[y != 1], names[y != 1]))


def test_weights_of_a_graph(tiny_graph: Data) -> None:
    """Of all nodes or of the training nodes; those of others do not matter, and zero takes a node out."""
    weights = torch.full((20,), torch.nan)
    weights[tiny_graph.train_mask] = torch.tensor([1.0, 2.0, 0.0, 1.5, 0.0, 3.0])
    by_node = graph_model().fit(tiny_graph, sample_weight=weights)
    of_training = graph_model().fit(tiny_graph, sample_weight=weights[tiny_graph.train_mask].numpy())
    assert_same(by_node, of_training)
    without = tiny_graph.clone()
    without.train_mask = weights > 0
    assert_same(by_node, graph_model().fit(without, sample_weight=[1.0, 2.0, 1.5, 3.0]))
    unlabelled = tiny_graph.clone()
    unlabelled.y[tiny_graph.train_mask & (weights == 0)] = -1
    assert_same(by_node, graph_model().fit(unlabelled, sample_weight=weights))
    plain = graph_model().fit(tiny_graph)
    assert any((a != b).any() for a, b in zip(parameters(by_node), parameters(plain), strict=True))
    assert "train_mask" in tiny_graph
    assert int(tiny_graph.train_mask.sum()) == 6


def test_a_graph_that_loses_a_class_to_its_weights_is_refused(tiny_graph: Data) -> None:
    with pytest.raises(InputError, match="class 1 has no training node"):
        graph_model().fit(tiny_graph, sample_weight=1 - tiny_graph.y)


@pytest.mark.parametrize("soft_labels", [False, True])
def test_choices_by_the_data_take_weights(tiny_graph: Data, monkeypatch: pytest.MonkeyPatch, soft_labels: bool) -> None:
    monkeypatch.setattr("pdadmm_g.data.augmentation_choice.HOPS", (2, 4))
    monkeypatch.setattr("pdadmm_g.training.choose.WEIGHT_DECAYS", (0.1, 1.0))
    if soft_labels:
        tiny_graph.y = torch.tensor([[0.8, 0.2], [0.3, 0.7]])[tiny_graph.y]
    clf = GAMLPClassifier(layers=2, hidden=8, epochs=20, random_state=0)
    clf.fit(tiny_graph, sample_weight=torch.arange(20.0))
    assert "auto" not in (clf.config_.augment, clf.config_.normalize)
    assert clf.config_.weight_decay in (0.1, 1.0)
    assert clf.score(tiny_graph) == 1.0


def test_weighted_linear_models_choose_otherwise(tiny_graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes without weight do not train the model that chooses, either."""
    seen = []

    def spy(X: torch.Tensor, labels: list[torch.Tensor], weights: torch.Tensor | None, *_: object) -> None:
        seen.append((len(labels[0]), None if weights is None else weights.tolist()))
        raise InputError("enough")

    monkeypatch.setattr(augmentation_choice, "linear_score", spy)
    for weights in ([1, 2, 0, 1, 1, 2], None):
        with pytest.raises(InputError, match="enough"):
            GAMLPClassifier(layers=2, unlabelled=0).fit(tiny_graph, sample_weight=weights)
    assert seen == [(5, [1, 2, 1, 1, 2]), (6, None)]


def test_a_weight_of_two_in_a_linear_model_is_two_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    X, validation = torch.randn(12, 4, generator=generator), torch.randn(9, 4, generator=generator)
    y, y_val = torch.arange(12) % 3, torch.arange(9) % 3
    times = 1 + torch.arange(12) % 2
    weighted = augmentation_choice.linear_score(torch.cat([X, validation]), [y, y_val], times)
    twice = X.repeat_interleave(times, 0), y.repeat_interleave(times)
    repeated = augmentation_choice.linear_score(torch.cat([twice[0], validation]), [twice[1], y_val])
    assert weighted == pytest.approx(repeated)
    assert weighted != pytest.approx(augmentation_choice.linear_score(torch.cat([X, validation]), [y, y_val]))


def test_one_most_probable_class_is_enough(tiny_graph: Data) -> None:
    """Then there is nothing for a linear model to tell apart, and the choice is that without validation."""
    tiny_graph.y = torch.tensor([[0.9, 0.1], [0.6, 0.4]])[tiny_graph.y]
    clf = GAMLPClassifier(layers=2, hidden=8, epochs=20, weight_decay=0.1, random_state=0).fit(tiny_graph)
    assert (clf.config_.augment, clf.config_.hops, clf.config_.normalize) == ("average", 8, "centered")


# ------------------------------------------------------------------------------------------------- weights of classes


def test_a_weight_of_a_class_is_that_of_its_rows(rows) -> None:
    X, y, times = rows
    names = np.array(["a", "b", "c"])[y]
    by_class = small(class_weight={"b": 4, "c": 0.5}).fit(X, names, sample_weight=times + 1)
    by_row = small().fit(X, names, sample_weight=(times + 1) * np.array([1, 4, 0.5])[y])
    assert_same(by_class, by_row)


@pytest.mark.parametrize(
    "labels", [np.array([3, 7]), np.array([0.0, 1.0]), np.array([False, True]), np.array(["0", "1"])]
)
def test_labels_as_the_user_knows_them(rows, labels: np.ndarray) -> None:
    X, y, _ = rows
    y = labels[y % 2]
    by_row = small().fit(X, y, sample_weight=np.where(y == labels[1], 5.0, 1.0))
    for key in (labels[1], labels[1].item()):
        assert_same(small(class_weight={key: 5}).fit(X, y), by_row)


def test_balanced_classes(rows, tiny_graph: Data) -> None:
    X, y, _ = rows
    X, y = X[5:25], np.where(y == 2, 1, y)[5:25]
    counts = np.bincount(y)
    assert counts[0] != counts[1]
    assert_same(small(class_weight="balanced").fit(X, y), small().fit(X, y, sample_weight=(20 / (2 * counts))[y]))
    tiny_graph.train_mask = torch.tensor([0, 1, 2, 10])
    by_row = graph_model().fit(tiny_graph, sample_weight=[2 / 3, 2 / 3, 2 / 3, 2])
    assert_same(graph_model(class_weight="balanced").fit(tiny_graph), by_row)


@pytest.mark.parametrize("class_weight", ["balanced", {3: 2.0, 8: 1.0}, None])
def test_class_weights_survive_a_file(tmp_path: Path, rows, class_weight: object) -> None:
    X, y, _ = rows
    clf = small(class_weight=class_weight).fit(X, np.array([3, 5, 8])[y])
    clf.save(tmp_path / "model.safetensors")
    again = GAMLPClassifier.load(tmp_path / "model.safetensors")
    assert again.class_weight == class_weight
    assert again.config_ == clf.config_
    assert_same(again, clf)
    assert_same(again.set_params(random_state=0).fit(X, np.array([3, 5, 8])[y]), clf)


@pytest.mark.timeout(100)
@pytest.mark.parametrize("refit", [False, True])
def test_a_class_of_no_weight_neither_trains_nor_validates(tiny_graph: Data, tmp_path: Path, refit: bool) -> None:
    """Where validation nodes are set aside, they are of the classes that are told apart, also in a run's figures."""
    for mask in ("train_mask", "val_mask", "test_mask"):
        del tiny_graph[mask]
    tiny_graph.y = torch.tensor([4, 6, 9])[torch.arange(20) % 3]
    clf = graph_model(class_weight={6: 0}, refit=refit).fit(tiny_graph)
    assert clf.classes_.tolist() == [4, 9]
    assert any("2 of the 13 nodes with a label for training" in choice for choice in clf.choices_)
    assert any("trained again on all 13 labels" in choice for choice in clf.choices_) == refit
    assert clf.history_[-1]["val_accuracy"] is not None
    path = save(tmp_path / "graph.npz", tiny_graph)
    fixed = {"layers": 2, "epochs": 3, "weight_decay": 0.1, "unlabelled": 0, "augment": "hops", "hops": 2}
    config = RunConfig.load(None, fixed | {"dataset": str(path), "out": str(tmp_path / "run"), "class_weight": {6: 0}})
    summary = train_run(config)
    assert summary["confusion"]["classes"] == [4, 9]


def test_class_weights_in_a_run_of_two_workers_and_its_checkpoints(tmp_path: Path, graph_file: Path) -> None:
    (tmp_path / "run.yaml").write_text("class_weight: {0: 3, 1: 0.5}\n")
    fixed = {
        "dataset": str(graph_file), "layers": 3, "hidden": 8, "epochs": 4, "augment": "average", "hops": 2,
        "normalize": "unit", "weight_decay": 0.1, "checkpoint_every": 2,
    }  # fmt: skip
    one, two = (
        RunConfig.load(tmp_path / "run.yaml", fixed | {"out": str(tmp_path / name), "workers": workers})
        for name, workers in (("one", 1), ("two", 2))
    )
    for config in (one, two):
        train_run(config)
    model = (tmp_path / "one/model.safetensors").read_bytes()
    assert (tmp_path / "two/model.safetensors").read_bytes() == model
    assert RunConfig.load(tmp_path / "one/config.yaml").class_weight == {"0": 3.0, "1": 0.5}

    class Stopped(Exception):
        pass

    def stop(record: dict[str, object]) -> None:
        if record["epoch"] == 3:
            raise Stopped

    again = RunConfig.load(tmp_path / "run.yaml", fixed | {"out": str(tmp_path / "again")})
    with pytest.raises(Stopped):
        train_run(again, on_epoch=stop)
    other = RunConfig.load(None, fixed | {"out": str(tmp_path / "again"), "class_weight": {0: 3}})
    with pytest.raises(InputError, match=r"cannot resume with class_weight = \{'0': 3.0\}, the run has"):
        train_run(other, resume=True)
    train_run(again, resume=True)
    assert (tmp_path / "again/model.safetensors").read_bytes() == model


# ------------------------------------------------------------------------------------------------------- probabilities


def test_certain_labels_as_probabilities_change_no_bit(rows) -> None:
    X, y, times = rows
    onehot = np.eye(3)[y]
    assert_same(small().fit(X, onehot), small().fit(X, y))
    weighted = small().fit(X, onehot, sample_weight=times)
    assert_same(weighted, small().fit(X, y, sample_weight=times))
    assert weighted.score(X, onehot) == weighted.score(X, y)


def test_certain_labels_of_a_graph_as_probabilities_change_no_bit(tiny_graph: Data) -> None:
    changed = tiny_graph.clone()
    changed.y = torch.eye(2)[tiny_graph.y]
    clf = graph_model().fit(changed)
    assert_same(clf, graph_model().fit(tiny_graph))
    assert clf.score(changed) == clf.score(tiny_graph)


def test_probabilities_are_more_than_their_largest(rows, soft: np.ndarray) -> None:
    X = rows[0]
    by_all, by_largest = (small(epochs=100).fit(X, y).predict_proba(X) for y in (soft, soft.argmax(1)))
    assert -(soft * np.log(by_all)).sum() < -(soft * np.log(by_largest)).sum() - 1


def test_weighted_probabilities_are_equal_rows(rows, soft: np.ndarray) -> None:
    X, _, times = rows
    for settings in ({}, {"class_weight": "balanced"}, {"class_weight": {1: 3.0}}):
        weighted = small(**settings).fit(X, soft, sample_weight=times)
        repeated = small(**settings).fit(X.repeat(times, 0), soft.repeat(times, 0))
        np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-5)


def test_probabilities_may_be_nearly_of_sum_one(rows, soft: np.ndarray) -> None:
    X, _, _ = rows
    exact, nearly = small().fit(X, soft), small().fit(X, soft * 1.0009)
    np.testing.assert_allclose(exact.predict_proba(X), nearly.predict_proba(X), atol=1e-5)


def test_a_graph_with_probabilities(tiny_graph: Data) -> None:
    """Validation, test and score go by the most probable class; NaN is no label."""
    tiny_graph.y = torch.tensor([[0.7, 0.3, 0.0], [0.1, 0.5, 0.4]])[tiny_graph.y]
    unused = ~(tiny_graph.train_mask | tiny_graph.val_mask | tiny_graph.test_mask)
    assert not unused.any()
    tiny_graph.test_mask[9] = False
    tiny_graph.y[9] = torch.nan
    clf = graph_model().fit(tiny_graph)
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.score(tiny_graph) == 1.0
    assert clf.history_[-1]["val_accuracy"] == 1.0
    with pytest.raises(InputError, match=r"node 9 has no label \(a row of NaN\) to score against"):
        clf.score(tiny_graph, [9])
    tiny_graph.y[3] = torch.tensor([0.1, 0.1, 0.8])  # a validation node of a class that training has only a share of
    graph_model().fit(tiny_graph)
    tiny_graph.y[tiny_graph.train_mask] = torch.tensor([0.5, 0.5, 0.0])
    with pytest.raises(InputError, match="class 2 has no training node"):
        graph_model().fit(tiny_graph)


# ---------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ([0.5, 0.6, 0.0], "the probabilities of row 4 must sum to one, got 0.5, 0.6, 0"),
        ([1.5, -0.5, 0.0], "the probabilities of row 4 must not be negative"),
        ([np.nan, 1.0, 0.0], "the probabilities of row 4 must be finite, got nan, 1, 0"),
        ([np.inf, 0.0, 0.0], "the probabilities of row 4 must be finite"),
    ],
)
def test_probabilities_that_are_refused(rows, tiny_graph: Data, soft: np.ndarray, change: list, message: str) -> None:
    soft[4] = change
    with pytest.raises(InputError, match=f"^y: {message}"):
        small().fit(rows[0], soft)
    tiny_graph.y = torch.tensor(soft[:20])
    with pytest.raises(InputError, match=f"^data: labels 'y': {message}"):
        graph_model().fit(tiny_graph)


def test_other_tables_of_labels_are_refused_as_before(rows, soft: np.ndarray, tiny_graph: Data) -> None:
    X, y, _ = rows
    with pytest.raises(InputError, match=r"y: labels must be 0 or 1 in each column, but y\[0, 0\] = 2"):
        small().fit(X, np.eye(3, dtype=int)[y] + 1)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        small().fit(X[:9], soft)
    soft[3] = np.nan
    with pytest.raises(InputError, match="the probabilities of row 3 must be finite"):
        small().fit(X, soft)
    tiny_graph.y = torch.tensor(soft[:20])
    with pytest.raises(InputError, match=r"node 3 of val_mask has no label \(a row of NaN\)"):
        graph_model().fit(tiny_graph)
    tiny_graph.y = torch.zeros(19, 3)
    with pytest.raises(InputError, match="targets 'y' have shape"):
        graph_model().fit(tiny_graph)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ("heavy", "class_weight must be a mapping .* or 'balanced' .*, got heavy"),
        ([1, 2], "class_weight must be a mapping"),
        ({0: -1}, "class_weight of class 0 must be .*, got -1"),
        ({0: np.nan}, "class_weight of class 0 must be"),
        ({0: "much"}, "class_weight of class 0 must be a number.*, got much"),
        ({0: 1, "0": 2}, "class_weight names class 0 twice"),
        ({7: 1}, "class_weight names class 7, which no training row has; there are 0, 1, 2"),
    ],
)
def test_class_weights_that_are_refused(rows, class_weight: object, message: str) -> None:
    clf = small(class_weight=class_weight)
    with pytest.raises(InputError, match=message):
        clf.fit(*rows[:2])
    assert not hasattr(clf, "model_")


@pytest.mark.parametrize("weights", [np.full(30, -1.0), np.full(30, np.nan), np.zeros(30), np.ones(29), "heavy"])
def test_bad_weights_leave_the_estimator_as_it_was(rows, weights: object) -> None:
    clf = small()
    with pytest.raises(InputError, match="^sample_weight "):
        clf.fit(*rows[:2], sample_weight=weights)
    assert not hasattr(clf, "model_")


# -------------------------------------------------------------------------------------------------------- command line


def test_on_the_command_line(
    tmp_path: Path, tiny_graph: Data, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main([*arguments, "--quiet"] if arguments[0] != "report" else list(arguments))
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    graph = ["--dataset", "graph.npz"]
    tiny_graph.y = torch.tensor([[0.9, 0.1], [0.2, 0.8]])[tiny_graph.y]
    save(tmp_path / "graph.npz", tiny_graph)
    Path("named.yaml").write_text("class-weight: {1: 2.5}\n")
    assert run("train", *graph, "--class-weight", "balanced", "--out", "balanced", *SMALL)[0] == 0
    assert run("train", *graph, "--config", "named.yaml", "--out", "named", *SMALL)[0] == 0
    code, out, _ = run("evaluate", "named", "--json")
    assert (code, json.loads(out)["test_accuracy"]) == (0, 1.0)
    assert run("report", "balanced", "named", "--out", "report.html")[0] == 0
    assert "1: 2.5" in Path("report.html").read_text()
    assert_refused(*run("train", *graph, "--class-weight", "heavy", "--out", "bad", *SMALL), "class_weight must be")
    Path("named.yaml").write_text("class-weight: {2: 2.5}\n")
    refused = run("train", *graph, "--config", "named.yaml", "--out", "bad", *SMALL)
    assert_refused(*refused, "class_weight names class 2, which no training row has; there are 0, 1")
    tiny_graph.y = tiny_graph.y * 2
    save(tmp_path / "graph.npz", tiny_graph)
    assert_refused(*run("train", *graph, "--out", "bad", *SMALL), "graph.npz", "row 0 must sum to one, got 1.8, 0.2")
    assert not Path("bad").exists()
