from __future__ import annotations

import pytest

from experiments.paired import average, difference


def row(method: str, dataset: str, **accuracies: float) -> dict:
    runs = [{"seed": int(seed[1:]), "test_accuracy": value, "status": "DONE"} for seed, value in accuracies.items()]
    return {"method": method, "dataset": dataset, "runs": runs, "mean": sum(accuracies.values()) / len(runs)}


def test_differences_are_paired_by_seed() -> None:
    """0.80 - 0.79, 0.90 - 0.86, 0.70 - 0.69: 1, 4 and 1 points; the spread is sqrt(3), the error 1."""
    ours = row("ours", "cora", s0=0.80, s1=0.90, s2=0.70, s5=0.1)
    theirs = row("theirs", "cora", s2=0.69, s1=0.86, s0=0.79, s7=0.9)
    assert difference(ours, theirs) == (pytest.approx(2.0), pytest.approx(1.0))
    assert difference(row("ours", "cora", s0=0.80), theirs) == (pytest.approx(1.0), None)
    assert difference(row("ours", "cora", s5=0.80), theirs) is None
    assert difference(ours, None) is None


def test_the_average_over_graphs_has_the_error_of_independent_ones() -> None:
    """3 and 4 in quadrature are 5, over two graphs."""
    first = difference(row("a", "x", s0=0.53, s1=0.47), row("b", "x", s0=0.5, s1=0.5))
    second = difference(row("a", "y", s0=0.64, s1=0.56), row("b", "y", s0=0.5, s1=0.5))
    assert first == (pytest.approx(0.0, abs=1e-9), pytest.approx(3.0))
    assert second == (pytest.approx(10.0), pytest.approx(4.0))
    assert average([first, second]) == (pytest.approx(5.0), pytest.approx(2.5))
    assert average([first, None]) is None
    assert average([]) is None
