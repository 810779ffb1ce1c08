"""How figures are printed."""

from __future__ import annotations

#: What is said where the figure of the test nodes is a dash.
NO_TEST = "no test nodes: mark some that neither train nor validate, in a column 'split' or test_mask"

#: The kinds of nodes, and what they are called.
PARTS = {"train": "train", "val": "validation", "test": "test"}


def shown(name: str, value: float | None) -> str:
    """A figure by its name: errors are in the units of the data, all others shares."""
    in_units = name in ("mean_absolute_error", "root_mean_squared_error")
    return f"{value:.4g}" if in_units and value is not None else percent(value)


def percent(accuracy: float | None) -> str:
    """An accuracy, or a dash where there is none."""
    return "-" if accuracy is None else f"{accuracy:.3f}"
