from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from torch_geometric.data import Data

from helpers.communities import communities
from pdadmm_g import GAMLPClassifier, InputError
from pdadmm_g.training.finish import LARGEST_TEMPERATURE, inverse_temperature

SETTINGS = {
    "layers": 2, "hidden": 8, "epochs": 5, "augment": "average", "hops": 2, "normalize": "unit", "weight_decay": 1.0,
    "random_state": 0,
}  # fmt: skip


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
    assert inverse_temperature(torch.eye(3), torch.arange(3)) == pytest.approx(LARGEST_TEMPERATURE)
    assert inverse_temperature(torch.eye(3), torch.tensor([1, 2, 0])) == pytest.approx(1 / LARGEST_TEMPERATURE)


def test_probabilities_change_and_classes_do_not(tmp_path: Path) -> None:
    data = communities()
    settings = SETTINGS | {"unlabelled": 0}
    plain, fitted = (GAMLPClassifier(**settings, calibrate=calibrate).fit(data) for calibrate in (False, True))
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
        GAMLPClassifier(calibrate=True, validation=0, **SETTINGS).fit(tiny_graph)
    X, y = load_iris(return_X_y=True)
    with pytest.raises(InputError, match="CalibratedClassifierCV"):
        GAMLPClassifier(calibrate=True, layers=2, epochs=1).fit(X, y)
