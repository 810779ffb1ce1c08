from __future__ import annotations

from experiments.convergence import rises


def test_rises() -> None:
    assert rises([4.0, 2.0, 2.5, 1.0]) == (1, 0.25)
    assert rises([3.0, 2.0]) == (0, 0.0)
