"""An experiment of the paper, by its name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from ..experiments import EXPERIMENTS, Request
from .command_line import command_line
from .output import Output, output_options


def _with_names(command: click.Command) -> click.Command:
    """The names of all experiments in the help of the command."""
    assert command.help is not None
    command.help = command.help.replace("{experiments}", ", ".join([*EXPERIMENTS, "all"]))
    return command


@_with_names
@click.command(short_help="Run an experiment of the paper.")
@click.argument("experiment", type=click.Choice([*EXPERIMENTS, "all"]), metavar="EXPERIMENT")
@click.option(
    "--out", default="results", show_default=True, metavar="DIR", help="folder with one folder per experiment"
)
@click.option("--data-root", metavar="TEXT", help="folder of raw benchmark files [default: $PDADMM_G_DATA]")
@click.option("--datasets", metavar="NAME,...", help="only these data sets")
@click.option(
    "--seeds",
    metavar="N,...",
    help="these seeds [default: 0,100,200,300,400]; for random-splits these splits [default: 0,1,...,9]",
)
@click.option("--workers", default=1, show_default=True, metavar="N", help="processes; the most workers for speedup-*")
@click.option("--rows", metavar="N,...", help="training rows of speedup-mesh and network [default: 5000]")
@click.option("--hidden", type=int, metavar="N", help="neurons per layer, likewise [default: 1000]")
@click.option("--device", default="cpu", show_default=True, help="torch device of the tables: cpu, cuda, auto, ...")
@click.option("--quick", is_flag=True, help="one seed, three small data sets: minutes instead of hours")
@output_options
def reproduce(experiment: str, device: str, output: Output, **options: Any) -> None:
    """Run an experiment of the paper and show our figures beside the paper's.

    EXPERIMENT is one of {experiments}.

    Results go to OUT/EXPERIMENT: results.jsonl with one line per cell, and table.md and figure.png of all that is in
    it. What is there is not run again: call the command once more to go on after an interruption. stand-ins trains on
    the real graphs of Flickr and ogbn-arxiv with made-up features.

    \b
    pdadmm-g reproduce table-100 --quick --workers 2 --data-root raw
    pdadmm-g reproduce table-best --datasets cora,pubmed --data-root raw
    pdadmm-g reproduce speedup-workers --workers 16
    """
    from ..experiments import reproduce as run_experiment
    from ..hardware import checked_device

    device = str(checked_device(device))
    written = []
    for name in EXPERIMENTS if experiment == "all" else (experiment,):
        request = _request(name, device=device, **options)
        output.say(run_experiment(name, request, _progress(output)))
        output.say(f"written to {request.folder}")
        written.append(str(request.folder))
    output.result({"folders": written})


def _request(
    name: str, *, out: str, data_root: str | None, datasets: str | None, seeds: str | None, rows: str | None,
    quick: bool, **options: Any
) -> Request:  # fmt: skip
    """What the options of :func:`reproduce` ask of the experiment of that name."""
    from ..setting_values import coerce

    request = Request(
        folder=Path(out) / (f"{name}-quick" if quick else name),
        data_root=data_root or os.environ.get("PDADMM_G_DATA"),
        datasets=coerce("datasets", datasets, tuple[str, ...] | None),
        seeds=coerce("seeds", seeds, tuple[int, ...] | None),
        rows=coerce("rows", rows, tuple[int, ...] | None),
        command=command_line(experiment=name),
        quick=quick,
        **options,
    )
    _check_numbers(request)
    return request


def _check_numbers(request: Request) -> None:
    """Raise where nothing could be run with a number that was asked for."""
    sizes = {"workers": (request.workers,), "hidden": (request.hidden,), "rows": request.rows or ()}
    for name, values in sizes.items():
        for value in values:
            if value is not None and value < 1:
                raise InputError(f"--{name} must be at least 1, got {value}")
    for seed in request.seeds or ():
        if not 0 <= seed < 2**62:
            raise InputError(f"--seeds must be between 0 and 2^62, got {seed}")


def _progress(output: Output) -> Callable[[dict[str, Any], int, int], None]:
    """Shows each cell as it becomes known, how many there are and the time left."""
    from ..training.progress import TimeLeft

    time_left = TimeLeft()

    def show(row: dict[str, Any], done: int, total: int) -> None:
        output.progress(f"{done}/{total}  {_row_line(row)}{time_left.after(done, total)}")

    return show


#: What a line of progress says of a row, and in what.
UNITS = (("depth", "layers"), ("workers", "workers"), ("shards", "shards"), ("rows", "rows"))


def _row_line(row: dict[str, Any]) -> str:
    """A line of progress: what was run, and its main figure."""
    what = [str(row[key]) for key in ("dataset", "method", "link") if key in row]
    what += [f"{row[key]} {unit}" for key, unit in UNITS if key in row]
    figures = [f"{row[key]:.3f}" for key in ("mean", "test_accuracy", "seconds") if row.get(key) is not None]
    return "  ".join([*what, *figures])
