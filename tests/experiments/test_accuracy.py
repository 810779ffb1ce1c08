"""Accuracy on the real benchmark files, 2 layers of 100 neurons on four raw hops, one seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdadmm_g import GAMLPClassifier, load_dataset


@pytest.mark.parametrize(("name", "least"), [("cora", 0.76), ("amazon-photo", 0.84)])
def test_two_layers_on_raw_hops(data_root: Path, name: str, least: float) -> None:
    data = load_dataset(name, data_root)
    clf = GAMLPClassifier(
        augment="hops", hops=4, row_normalize=False, normalize="none", layers=2, nu=1e-2, rho=5e-2, weight_decay=1e-2,
        epochs=100, patience=50, random_state=0,
    )  # fmt: skip
    assert clf.fit(data).score(data, data.test_mask) >= least
