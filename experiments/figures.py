"""Figures as PNG, in one style."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from pdadmm_g.errors import InputError
from pdadmm_g.utils import write_atomically, writing


def new_figure(rows: int, columns: int, *, height: float = 4.0) -> tuple[Any, Any]:
    """A canvas with a grid of axes, and the axes as a list of lists."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("figures need matplotlib: pip install matplotlib") from None
    canvas = Figure(figsize=(9.0, height), layout="constrained")
    axes = canvas.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, linewidth=0.6)
    return canvas, axes.tolist()


def save_figure(canvas: Any, path: Path) -> None:
    """Write the PNG, whole or not at all."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    drawn = io.BytesIO()
    canvas.savefig(drawn, dpi=110, format="png")
    write_atomically(path, drawn.getvalue())
