"""Training may start from a network that is there, with the features that it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from torch_geometric.data import Data

from helpers.blobs import TRAINING, VALIDATION, fit
from helpers.commands import save
from helpers.communities import communities
from pdadmm_g import GAMLPClassifier, InputError
from pdadmm_g.cli import main
from pdadmm_g.config import ModelConfig
from pdadmm_g.training.train import train

SMALL: dict[str, Any] = {
    "layers": 3, "hidden": 8, "epochs": 5, "augment": "average", "hops": 2, "teleport": 0.05, "normalize": "centered",
    "weight_decay": 0.1, "unlabelled": 0, "random_state": 0,
}  # fmt: skip
OPEN: dict[str, Any] = dict.fromkeys(("hops", "weight_decay", "unlabelled")) | {"augment": "auto", "normalize": "auto"}


def small(**settings: Any) -> GAMLPClassifier:
    return GAMLPClassifier(**SMALL | settings)


@pytest.fixture(scope="module")
def data() -> Data:
    return communities(90)


@pytest.fixture(scope="module")
def trained(data: Data) -> GAMLPClassifier:
    return small(epochs=30, growth="all").fit(data)


def test_it_starts_from_that_network(data: Data, trained: GAMLPClassifier, tmp_path: Path) -> None:
    """In whatever form it is given; in one stage, since the depth is there; with nothing to choose."""
    trained.save(tmp_path / "run")
    trained.save(tmp_path / "model.safetensors")
    before = [parameter.clone() for parameter in trained.model_.parameters()]
    given = (trained, trained.model_, tmp_path / "run", str(tmp_path / "model.safetensors"))
    found = []
    for init in given:
        clf = small(**OPEN if init is not trained.model_ else {}).fit(data, init=init)
        assert {record["stage"] for record in clf.history_} == {1}
        assert [record["workers"][0]["layers"] for record in clf.history_] == [3] * len(clf.history_)
        found.append(clf.predict_proba(data))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)
    fresh = small().fit(data)
    assert clf.history_[0]["risk"] < 0.5 * fresh.history_[0]["risk"]
    assert clf.history_[0]["val_accuracy"] >= max(record["val_accuracy"] for record in trained.history_) - 0.05
    assert all(torch.equal(a, b) for a, b in zip(before, trained.model_.parameters(), strict=True))


def test_the_network_is_the_first_to_beat(data: Data, trained: GAMLPClassifier) -> None:
    """With far too much weight decay, no epoch is as good, and the network stays what it was."""
    clf = small(weight_decay=1e6).fit(data, init=trained)
    np.testing.assert_allclose(clf.predict_proba(data), trained.predict_proba(data), rtol=1e-5)


def test_a_part_outside_of_the_row_space_is_kept() -> None:
    """Fewer training rows than features: a network that was trained on others uses what these do not span."""
    config = ModelConfig(layers=2, hidden=8, epochs=1, weight_decay=1e6)
    start = fit(layers=2, stages=(2,)).model
    few = TRAINING._replace(X=TRAINING.X[:4], y=TRAINING.y[:4])
    result = train(few, VALIDATION, 3, config, seed=0, start=start)
    for ours, theirs in zip(result.model.parameters(), start.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_what_was_learned_of_the_features_stays(data: Data, trained: GAMLPClassifier) -> None:
    """On a graph that has changed, the columns mean what they meant."""
    other = communities(120, seed=1)
    clf = small(**OPEN).fit(other, init=trained)
    for name in ("mean", "scale"):
        assert torch.equal(getattr(clf.augmentation_, name), getattr(trained.augmentation_, name))
    taught = small(unlabelled=30, rounds=2, layers=2, components=4, sharpness=2.0, drop_entries=0.0).fit(data)
    assert taught.augmentation_ is not None
    again = small(**OPEN, layers=2, rounds=2).fit(other, init=taught)
    assert torch.equal(again.augmentation_.basis, taught.augmentation_.basis)
    assert again.config_.unlabelled == 30
    assert max(record["round"] for record in again.history_) > 0


def test_a_matrix(tmp_path: Path, data: Data, trained: GAMLPClassifier) -> None:
    X, y = load_iris(return_X_y=True)
    first = GAMLPClassifier(layers=2, hidden=8, epochs=20, random_state=0).fit(X, y)
    clf = GAMLPClassifier(layers=2, hidden=8, epochs=1, random_state=1).fit(X, y, init=first)
    assert clf.score(X, y) >= first.score(X, y) - 0.05
    with pytest.raises(InputError, match=r"init was fitted on a graph, this is a matrix"):
        small(**OPEN).fit(X, y, init=trained)
    with pytest.raises(InputError, match=r"init was fitted on a matrix, this is a graph"):
        GAMLPClassifier(layers=2, hidden=8, epochs=1).fit(data, init=first)


@pytest.mark.parametrize(
    ("settings", "culprit"),
    [
        ({"hidden": 9}, "init has 8 neurons .* not to 9"),
        ({"layers": 2}, "init has 3 layers"),
        ({"hops": 3}, "init was trained with hops = 2, not 3"),
        ({"directed": "out"}, "directed = symmetric, not out"),
        ({"activation": "tanh"}, "relu activation"),
    ],
)
def test_what_does_not_fit_is_refused(data: Data, trained: GAMLPClassifier, settings, culprit: str) -> None:
    with pytest.raises(InputError, match=culprit):
        small(**settings).fit(data, init=trained)


def test_other_data_are_refused(data: Data, trained: GAMLPClassifier, tmp_path: Path) -> None:
    other = data.clone()
    other.y = other.y + 5
    for given, init, culprit in (
        (communities(90, features=21), trained, "21 features, init was trained with 20"),
        (communities(90, features=21), trained.model_, "init has 20 features, the data have 21"),
        (communities(90, classes=4), trained, "init has 3 classes, the data have 4"),
        (other, trained, r"init knows the classes \[0, 1, 2\], the data have \[5, 6, 7\]"),
        (data, [], "got list"),
        (data, tmp_path / "nothing", "nothing: no such model file"),
    ):
        with pytest.raises(InputError, match=culprit):
            small().fit(given, init=init)


COMMON = ["--dataset", "graph.npz", "--layers", "3", "--hidden", "8", "--epochs", "5"]


@pytest.mark.timeout(120)
def test_the_command(data: Data, trained: GAMLPClassifier, tmp_path: Path, capsys, monkeypatch) -> None:
    """Alone and resumed: the same network, whose folder says what it began with."""
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "graph.npz", data)
    trained.save("old")

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(["train", *COMMON, "--init", "old", *arguments])
        return int(caught.value.code or 0), *capsys.readouterr()

    code, _, err = run("--out", "new", "--checkpoint-every", "2")
    assert code == 0, err
    assert "3 layers (stage 1/1), epoch 5/5" in err
    model = Path("new/model.safetensors").read_bytes()
    config = (tmp_path / "new/config.yaml").read_text()
    assert f"init: {tmp_path / 'old'}" in config
    small(**OPEN).fit(data, init=trained).save("python.safetensors")
    assert Path("python.safetensors").read_bytes() == model
    Path("new/summary.json").unlink()  # as if it had been killed
    with pytest.raises(SystemExit) as caught:
        main(["train", "--resume", "--out", "new"])
    assert not caught.value.code
    assert Path("new/model.safetensors").read_bytes() == model
