"""A first look."""

from __future__ import annotations

from pathlib import Path

import click

from .exit_codes import EXIT_INTERRUPTED


@click.command(short_help="A few seconds on real data.")
@click.option("--out", default="runs/demo", show_default=True, metavar="DIR", help="folder for the three runs")
def demo(out: str) -> int:
    """A few seconds on real data: what the graph brings, and what 8-bit quantization costs."""
    from ..experiments.demo import run_demo

    return 0 if run_demo(Path(out)) else EXIT_INTERRUPTED
