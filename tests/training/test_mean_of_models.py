"""The mean of the best models on different features: one network on the features of all, wherever it goes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.communities import communities
from pdadmm_g import GAMLPClassifier, Graph, InputError
from pdadmm_g.runs.export import export
from pdadmm_g.training import choose


def noisy(*, crossed: bool = False) -> Graph:
    """Two communities, in which every fifth label is wrong."""
    data = communities(120, 2, 8, labels=20, noise=4.0)
    wrong = torch.rand(120, generator=torch.Generator().manual_seed(0)) < 0.2
    data.y = torch.where(wrong, 1 - data.y, data.y)
    if crossed:
        del data.val_mask
    return data


@pytest.fixture(scope="module", params=[False, True], ids=["masks", "out of fold"])
def fitted(request: pytest.FixtureRequest) -> tuple[GAMLPClassifier, Graph]:
    data = noisy(crossed=request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "WIDE", 12)
        clf = GAMLPClassifier(layers=2, epochs=5, unlabelled=0, random_state=0).fit(data)
    assert any(choice.startswith("kept: the mean of") for choice in clf.choices_), clf.choices_
    return clf, data


def test_it_is_one_network_on_the_features_of_all(fitted: tuple[GAMLPClassifier, Graph]) -> None:
    clf, data = fitted
    augment = clf.augmentation_
    parts = [part.own_features(data) for part in augment.parts]
    assert len(parts) > 1
    assert torch.equal(augment.features(data), torch.cat(parts, dim=1))
    assert clf.model_.widths[0] == augment.width(8) == sum(part.shape[1] for part in parts)
    assert clf.config_.hidden in (None, clf.model_.widths[1])
    nodes = torch.tensor([5, 1, 7])
    whole = clf.predict_proba(data)
    np.testing.assert_allclose(clf.predict_proba(data, nodes), whole[nodes], atol=1e-6)


def test_files_have_all_of_it(fitted: tuple[GAMLPClassifier, Graph], tmp_path: Path) -> None:
    clf, data = fitted
    clf.save(tmp_path / "model.safetensors")
    again = GAMLPClassifier.load(tmp_path / "model.safetensors")
    assert np.array_equal(again.predict_proba(data), clf.predict_proba(data))
    export(clf, tmp_path / "model.pt2", "torch-export")
    program = torch.export.load(tmp_path / "model.pt2").module()
    torch.testing.assert_close(program(clf.augmentation_.propagated(data)), clf._logits(data))


def test_training_goes_on_from_it_but_not_with_unlabelled_nodes(fitted: tuple[GAMLPClassifier, Graph]) -> None:
    clf, data = fitted
    again = GAMLPClassifier(layers=2, epochs=2, unlabelled=0, random_state=0).fit(data, init=clf)
    assert again.model_.widths[0] == clf.model_.widths[0]
    with pytest.raises(InputError, match="unlabelled"):
        GAMLPClassifier(layers=2, epochs=2, unlabelled=20, random_state=0).fit(data, init=clf)


@pytest.mark.parametrize("given", [{"hidden": 8}, {"weight_decay": 0.1}, {"growth": "all"}, {"activation": "tanh"}])
def test_who_says_what_network_it_is_gets_that_one(given: dict) -> None:
    clf = GAMLPClassifier(**{"layers": 2, "epochs": 5, "unlabelled": 0, "random_state": 0} | given).fit(noisy())
    assert not clf.augmentation_.others
