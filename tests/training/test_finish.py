"""Training again on all labels, calibration, and the model file."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from torch_geometric.data import Data

from helpers.communities import communities
from pdadmm_g import GAMLPClassifier, InputError
from pdadmm_g.metrics import score
from pdadmm_g.training.finish import LARGEST_TEMPERATURE, best_threshold, inverse_temperature, platt

SMALL = {"layers": 3, "hidden": 8, "epochs": 15, "random_state": 0}
FIXED = SMALL | {
    "augment": "average", "hops": 2, "teleport": 0.05, "normalize": "unit", "weight_decay": 0.1, "unlabelled": 0,
    "calibrate": False,
}  # fmt: skip


def test_it_is_training_on_all_labels_with_what_was_kept(tiny_graph: Data) -> None:
    settings = FIXED | {"growth": "all"}
    chosen = GAMLPClassifier(**settings, refit=False).fit(tiny_graph)
    clf = GAMLPClassifier(**settings, refit=True).fit(tiny_graph)
    assert clf.history_ == [record | {"seconds": clf.history_[i]["seconds"], "workers": clf.history_[i]["workers"]}
                            for i, record in enumerate(chosen.history_)]  # fmt: skip
    kept = []
    for stage in (1, 2):
        own = [(record["val_score"], -record["val_loss"]) for record in chosen.history_ if record["stage"] == stage]
        kept.append(own.index(max(own)) + 1)
    together = tiny_graph.clone()
    together.train_mask = tiny_graph.train_mask | tiny_graph.val_mask
    together.val_mask = torch.zeros(20, dtype=torch.bool)
    epochs = -(-sum(kept) // 2)
    expected = GAMLPClassifier(**settings | {"epochs": epochs, "patience": None}).fit(together)
    assert np.array_equal(clf.predict_proba(tiny_graph), expected.predict_proba(tiny_graph))
    assert f"trained again on all 12 labels, {epochs} epochs a stage" in clf.choices_[-1]


def test_it_grows_to_the_depth_that_was_kept_and_no_further() -> None:
    data, settings = communities(), FIXED | {"layers": 10}
    chosen = GAMLPClassifier(**settings).fit(data)
    assert len(chosen.model_.linears) == 5  # of 2, 5 and 10
    clf = GAMLPClassifier(**settings, refit=True).fit(data)
    assert len(clf.model_.linears) == sum(clf.plan_) == 5
    data.train_mask, data.val_mask = data.train_mask | data.val_mask, torch.zeros_like(data.val_mask)
    epochs = int(clf.choices_[-1].split(", ")[1].split()[0])
    expected = GAMLPClassifier(**settings | {"layers": 5, "epochs": epochs, "patience": None}).fit(data)
    assert np.array_equal(clf.predict_proba(data), expected.predict_proba(data))


def test_a_model_that_was_found_on_the_way_is_not_trained_again() -> None:
    data = communities(150, 2, 8, labels=15, noise=4.0)
    clf = GAMLPClassifier(layers=2, hidden=2, epochs=1, random_state=0, unlabelled=0, refit=True).fit(data)
    assert len(clf.nodes_.val) == int(data.val_mask.sum())
    assert any("refit is left out" in choice for choice in clf.choices_)


def test_without_validation_nodes_there_is_nothing_to_add(tiny_graph: Data) -> None:
    tiny_graph.val_mask = torch.zeros(20, dtype=torch.bool)
    clf = GAMLPClassifier(**FIXED, refit=True).fit(tiny_graph)
    assert not any("again" in choice for choice in clf.choices_)


def test_an_interrupt_keeps_the_model_that_training_gave(tiny_graph: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = GAMLPClassifier(**FIXED).fit(tiny_graph)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pdadmm_g.estimator.refit", interrupted)
    monkeypatch.setattr("pdadmm_g.estimator.calibration", interrupted)
    for setting in ("refit", "calibrate"):
        clf = GAMLPClassifier(**FIXED | {setting: True}).fit(tiny_graph)
        assert clf.status_.name == "INTERRUPTED"
        assert np.array_equal(clf.predict_proba(tiny_graph), trained.predict_proba(tiny_graph))


def test_the_temperature_is_where_the_log_loss_is_smallest() -> None:
    """Labels drawn from the softmax of logits: stretched by three, they are to be divided by three again."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4000, 5, generator=generator, dtype=torch.float64)
    y = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator)[:, 0]
    s = inverse_temperature(3 * logits, y)
    assert 3 * s == pytest.approx(inverse_temperature(logits, y), rel=1e-9)
    assert 1 / s == pytest.approx(3, rel=0.1)
    less, best, more = (
        float(torch.nn.functional.cross_entropy(scale * 3 * s * logits, y)) for scale in (0.99, 1.0, 1.01)
    )
    assert best < min(less, more)


def test_without_a_mistake_it_stays_within_bounds() -> None:
    """Few rows are not certain: (1 + 1 / 3) / 5 of their weight is that of what they are not."""
    assert inverse_temperature(torch.eye(3), torch.arange(3)) == pytest.approx(math.log(13))
    many = torch.eye(3).repeat(50, 1), torch.arange(3).repeat(50)
    assert inverse_temperature(*many) > math.log(100)
    assert inverse_temperature(0.01 * many[0], many[1]) == pytest.approx(LARGEST_TEMPERATURE)
    assert inverse_temperature(torch.eye(3), torch.tensor([1, 2, 0])) == pytest.approx(1 / LARGEST_TEMPERATURE)


def test_of_two_classes_the_second_is_shifted_too() -> None:
    generator = torch.Generator().manual_seed(0)
    gap = 2 * torch.randn(4000, generator=generator, dtype=torch.float64)
    y = torch.bernoulli(torch.sigmoid(0.5 * gap - 1), generator=generator).long()
    found = platt(torch.stack([torch.zeros(4000), gap], dim=1), y)
    expected = LogisticRegression(C=1e9).fit(gap[:, None], y)
    assert (found.scale, found.shift) == pytest.approx((expected.coef_[0, 0], expected.intercept_[0]), abs=5e-3)


@pytest.mark.parametrize("scoring", ["balanced_accuracy", "f1_macro"])
def test_one_half_is_where_the_score_is_best(scoring: str) -> None:
    random = np.random.default_rng(0)
    y = (random.random(150) < 0.1).astype(int)
    p = torch.as_tensor(1 / (1 + np.exp(2 - y - random.standard_normal(150))))
    scores = {
        each: score(scoring, y, np.eye(2)[(p.numpy() > each).astype(int)]) for each in [0.5, *(p - 1e-9).tolist()]
    }
    found = best_threshold(p, torch.as_tensor(y), scoring)
    assert score(scoring, y, np.eye(2)[(p.numpy() > found).astype(int)]) == max(scores.values()) > scores[0.5]


def test_probabilities_change_and_classes_do_not(tmp_path: Path) -> None:
    data = communities()
    settings = FIXED | {"layers": 2, "epochs": 5, "weight_decay": 1.0}
    plain, fitted = (GAMLPClassifier(**settings | {"calibrate": calibrate}).fit(data) for calibrate in (False, True))
    np.testing.assert_array_equal(fitted.predict(data), plain.predict(data))
    y = data.y[data.val_mask]

    def loss(clf: GAMLPClassifier) -> float:
        P = torch.as_tensor(clf.predict_proba(data, data.val_mask))
        return float(torch.nn.functional.nll_loss(P.log(), y))

    assert loss(fitted) < loss(plain)
    assert fitted.choices_[-1].startswith("probabilities: temperature ")
    assert f"nodes {loss(fitted):.3f}, {loss(plain):.3f} without" in fitted.choices_[-1]
    fitted.save(tmp_path / "model.safetensors")
    restored = GAMLPClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(restored.predict_proba(data), fitted.predict_proba(data))


def test_it_needs_validation_nodes(tiny_graph: Data) -> None:
    del tiny_graph.val_mask
    with pytest.raises(InputError, match="calibrate needs validation nodes: give the graph a val_mask"):
        GAMLPClassifier(**FIXED | {"calibrate": True, "validation": 0}).fit(tiny_graph)
    X, y = load_iris(return_X_y=True)
    with pytest.raises(InputError, match="CalibratedClassifierCV"):
        GAMLPClassifier(calibrate=True, layers=2, epochs=1).fit(X, y)


OLD = Path(__file__).with_name("written_by_0_2_0") / "model.safetensors"


def test_a_model_file_of_0_2_0_predicts_as_it_did() -> None:
    x = torch.arange(24).view(8, 3) % 5 / 4
    ring = torch.arange(8)
    pairs = torch.cat([torch.stack([ring, (ring + 2) % 8]), torch.stack([(ring + 2) % 8, ring])], 1)
    P = GAMLPClassifier.load(OLD).predict_proba(Data(x=x, edge_index=pairs))
    np.testing.assert_allclose(P[:3, 0], [0.400023, 0.407031, 0.407742], atol=1e-5)


def test_a_model_file_with_a_setting_that_is_gone_is_refused(tmp_path: Path) -> None:
    content = OLD.read_bytes()
    (tmp_path / "model.safetensors").write_bytes(
        content.replace(b'penalty\\": \\"constant', b'penalty\\": \\"balance0')
    )
    with pytest.raises(InputError, match="penalty is no longer a setting"):
        GAMLPClassifier.load(tmp_path / "model.safetensors")
