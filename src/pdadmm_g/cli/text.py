"""How figures are printed."""

from __future__ import annotations

#: What is said where the figure of the test nodes is a dash.
NO_TEST = "no test nodes: mark some that neither train nor validate, in a column 'split' or test_mask"


def percent(accuracy: float | None) -> str:
    """An accuracy, or a dash where there is none."""
    return "-" if accuracy is None else f"{accuracy:.3f}"
