from __future__ import annotations

import numpy as np
import pytest

from experiments import homophily as graphs


@pytest.mark.parametrize("homophily", [0.0, 0.4, 1.0])
def test_made_graphs_have_the_homophily_they_are_named_after(homophily: float) -> None:
    arrays = graphs.make(homophily)
    source, target = arrays["edge_index"]
    assert (arrays["y"][source] == arrays["y"][target]).mean() == pytest.approx(homophily, abs=0.02)
    assert (np.bincount(arrays["y"][arrays["train_mask"]]) == 20).all()
    nodes = np.concatenate([arrays[mask] for mask in ("train_mask", "val_mask", "test_mask")])
    assert len(np.unique(nodes)) == 100 + 500 + 1000
