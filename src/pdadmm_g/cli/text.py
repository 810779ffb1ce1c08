"""How figures are printed."""

from __future__ import annotations


def percent(accuracy: float | None) -> str:
    """An accuracy, or a dash where there is none."""
    return "-" if accuracy is None else f"{accuracy:.3f}"
