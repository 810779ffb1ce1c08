"""The report of runs."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--out", metavar="FILE", help="page to write [default: RUN/report.html; report.html for several runs]")
def report(runs: tuple[str, ...], out: str | None) -> None:
    """Write one HTML page about run folders: curves, workers, classes, settings, several runs on top of each other.

    The page is one file and needs no network. Runs that still go on, or broke off, are shown as far as they got.

    \b
    pdadmm-g report runs/cora-0
    pdadmm-g report runs/cora-* --out cora.html
    """
    from ..report.collect import read_runs
    from ..report.page import render
    from ..runs.folder import REPORT
    from ..utils import write_atomically

    read = read_runs([Path(run) for run in runs])
    target = Path(out) if out else Path(runs[0]) / REPORT if len(runs) == 1 else Path(REPORT)
    write_atomically(target, render(read))
    click.echo(f"report of {len(read)} run{'s' if len(read) > 1 else ''} written to {target}")
