"""A first look: one real data set, three runs, one table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from ..config import RunConfig
from ..status import Status
from .common import EXIT_INTERRUPTED


@click.command(short_help="A few seconds on real data.")
@click.option("--out", default="runs/demo", show_default=True, metavar="DIR", help="folder for the three runs")
def demo(out: str) -> int:
    """A few seconds on real data: what the graph brings, and what 8-bit quantization costs."""
    return 0 if run_demo(Path(out)) else EXIT_INTERRUPTED


def run_demo(out: Path) -> bool:
    """Train on the embedded digits with the graph, with the graph quantized, and without. False if interrupted."""
    from rich.console import Console
    from rich.table import Table

    from ..runs.run import train_run
    from ..training.progress import Progress

    console = Console()
    console.print(
        "1797 handwritten digits, 5 labelled ones per class, linked to their 10 nearest neighbours.\n"
        "Three networks of 10 layers, each grown 2-5-10 and trained layer by layer, without backpropagation.\n",
        highlight=False,
    )
    table = Table(title="Handwritten digits, 50 labels")
    for heading in ("network", "test accuracy", "bits per value", "epochs", "seconds"):
        table.add_column(heading, justify="left" if heading == "network" else "right")
    # Labelled nodes alone: ten layers are grown and kept, and what differs between the runs is what the table names.
    graph = RunConfig(out=str(out / "graph"), unlabelled=0, stages=(2, 5, 10))
    runs = {
        "pdADMM-G, graph": graph,
        "pdADMM-G-Q, graph": replace(graph, quantize="pq", bits=8, out=str(out / "graph-quantized")),
        "pdADMM-G, raw pixels": replace(graph, augment="none", out=str(out / "raw")),
    }
    for name, config in runs.items():
        with Progress(config, label=f"{name}: ") as progress:
            summary = train_run(config, overwrite=True, on_epoch=progress.update)
        if summary["status"] == Status.INTERRUPTED.name:
            console.print("interrupted")
            return False
        table.add_row(
            name,
            f"{summary['test_accuracy']:.3f}",
            str(config.resolved().bits if config.quantize == "pq" else 32),
            str(summary["epochs"]),
            f"{summary['seconds']:.1f}",
        )
    console.print(table)
    console.print(
        f"The graph's neighbours make up for missing labels; 8 bits on the wire cost next to nothing.\n"
        f"Each run is in {out}/. Next (after 'source .venv/bin/activate'): pdadmm-g evaluate {out}/graph",
        highlight=False,
    )
    return True
