"""Commands that measure: reproduce, bench, and the data sets that they know."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..errors import InputError
from ..experiments import EXPERIMENTS, Request
from .completion import words
from .output import Output, output_options


@click.command(short_help="List the data sets known by name.")
@click.option(
    "--data-root",
    metavar="TEXT",
    help="folder of raw benchmark files [default: $PDADMM_G_DATA]",
    shell_complete=words((), then="dir"),
)
@output_options
def datasets(data_root: str | None, output: Output) -> None:
    """List the data sets known by name, and whether their raw files are under the data root."""
    from ..datasets import BENCHMARKS, missing_raw_files

    rows = [{"name": "digits", "nodes": 1797, "features": 64, "classes": 10, "files": "embedded"}]
    for name, benchmark in BENCHMARKS.items():
        missing = missing_raw_files(benchmark, data_root)
        files = "found" if not missing else f"not found: {benchmark.folder}/"
        if 0 < len(missing) < len(benchmark.raw_files):
            files = f"missing: {', '.join(missing)}"
        sizes = {"nodes": benchmark.nodes, "features": benchmark.features, "classes": benchmark.classes}
        rows.append({"name": name, **sizes, "files": files})
    output.say(f"{'name':<18}{'nodes':>8}{'features':>10}{'classes':>9}  raw files")
    for row in rows:
        output.say("{name:<18}{nodes:>8}{features:>10}{classes:>9}  {files}".format(**row))
    output.result({"datasets": rows})


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
@click.option("--seeds", metavar="N,...", help="these seeds [default: 0,100,200,300,400]")
@click.option("--workers", default=1, show_default=True, metavar="N", help="processes; the most workers for speedup-*")
@click.option("--device", default="cpu", show_default=True, help="torch device of the tables: cpu, cuda, ...")
@click.option("--quick", is_flag=True, help="one seed, three small data sets: minutes instead of hours")
@output_options
def reproduce(experiment: str, device: str, output: Output, **options: Any) -> None:
    """Run an experiment of the paper and show our figures beside the paper's.

    EXPERIMENT is one of {experiments}.

    Results go to OUT/EXPERIMENT: one JSON file per cell, table.md and PNG figures. A cell that is there is not run
    again: call the command once more to go on after an interruption. stand-ins trains on the real graphs of Flickr and
    ogbn-arxiv with made-up features.

    \b
    pdadmm-g reproduce table-100 --quick --workers 2 --data-root raw
    pdadmm-g reproduce table-best --datasets cora,pubmed --data-root raw
    pdadmm-g reproduce speedup-workers --workers 16
    """
    from ..estimator import checked_device
    from ..experiments import reproduce as run_experiment

    checked_device(device)
    written = []
    for name in EXPERIMENTS if experiment == "all" else (experiment,):
        request = _request(name, device=device, **options)
        output.say(run_experiment(name, request, _progress(output)))
        output.say(f"written to {request.folder}")
        written.append(str(request.folder))
    output.result({"folders": written})


def _request(
    name: str, *, out: str, data_root: str | None, datasets: str | None, seeds: str | None, quick: bool, **options: Any
) -> Request:
    """What the options of :func:`reproduce` ask of the experiment of that name."""
    from ..config import coerce

    return Request(
        folder=Path(out) / (f"{name}-quick" if quick else name),
        data_root=data_root or os.environ.get("PDADMM_G_DATA"),
        datasets=coerce("datasets", datasets, tuple[str, ...] | None),
        seeds=coerce("seeds", seeds, tuple[int, ...] | None),
        command=_command_line(experiment=name),
        quick=quick,
        **options,
    )


#: Where files are and what is printed: a matter of each machine, without a part in the figures.
_NOT_RECORDED = ("out", "data_root", "quiet", "as_json")


def _command_line(**instead: Any) -> str:
    """The command as the user gave it, with other values ``instead`` of some, to be recorded beside its figures."""
    context = click.get_current_context()
    line = ["pdadmm-g", str(context.info_name)]
    for parameter in context.command.params:
        name = str(parameter.name)
        value = instead.get(name, context.params[name])
        if name in _NOT_RECORDED or context.get_parameter_source(name) is ParameterSource.DEFAULT:
            continue
        if isinstance(parameter, click.Option):
            line.append((parameter.opts if value is not False else parameter.secondary_opts)[-1])
        if not isinstance(value, bool):
            line.append(str(value))
    return shlex.join(line)


def _progress(output: Output) -> Callable[[dict[str, Any], int, int], None]:
    """Shows each cell as it becomes known, how many there are and the time left."""
    from ..progress import TimeLeft

    time_left = TimeLeft()

    def show(row: dict[str, Any], done: int, total: int) -> None:
        output.progress(f"{done}/{total}  {_row_line(row)}{time_left.after(done, total)}")

    return show


def _row_line(row: dict[str, Any]) -> str:
    """A line of progress: what was run, and its main figure."""
    what = [str(row[key]) for key in ("dataset", "method", "algorithm", "quantized") if key in row]
    what += [f"{row[key]} {unit}" for key, unit in (("depth", "layers"), ("workers", "workers")) if key in row]
    figures = [f"{row[key]:.3f}" for key in ("mean", "test_accuracy", "seconds") if row.get(key) is not None]
    return "  ".join([*what, *figures])


@click.command(short_help="Measure how fast this machine trains.")
@click.option("--nodes", default=2000, show_default=True, metavar="N", help="training nodes")
@click.option("--features", default=2000, show_default=True, metavar="N", help="augmented features of a node")
@click.option("--hidden", default=1000, show_default=True, metavar="N", help="neurons per hidden layer")
@click.option("--layers", default=10, show_default=True, metavar="N", help="number of layers")
@click.option("--classes", default=10, show_default=True, metavar="N", help="number of classes")
@click.option("--device", default="cpu", show_default=True, help="torch device: cpu, cuda, ...")
@click.option(
    "--threads", type=int, default=lambda: os.cpu_count() or 1, metavar="N", help="compute threads [default: all]"
)
@click.option("--precision", type=click.Choice(["fp32", "tf32", "bf16"]), default="fp32", show_default=True,
              help="factors of the large products")  # fmt: skip
@click.option(
    "--compile/--no-compile", default=None, help="fuse the elementwise work [default: on a GPU, where it pays]"
)
@click.option("--methods", metavar="NAME,...", help="only these: floor,linearized,exact,quantized,adam")
@click.option(
    "--seconds", default=5.0, show_default=True, metavar="X", help="seconds for each method, after warming up"
)
@click.option("--out", metavar="FILE", help="write the figures to this JSON file")
@output_options
def bench(methods: str | None, seconds: float, out: str | None, output: Output, **size: Any) -> None:
    """Measure one epoch on this machine, as a multiple of the bare matrix products in it.

    \b
    pdadmm-g bench                                         10 layers of 1000 neurons, 2000 nodes
    pdadmm-g bench --nodes 140 --features 5732 --hidden 100          Cora's size
    pdadmm-g bench --device cuda --precision tf32 --nodes 44625 --hidden 4000 --layers 16
    """
    import json

    from ..bench import METHODS, Size
    from ..bench import bench as run
    from ..estimator import checked_device
    from ..experiments.cells import provenance
    from ..files import check_folder, write_atomically

    names = tuple(methods.split(",")) if methods else METHODS
    for name in names:
        if name not in METHODS:
            raise InputError(f"--methods must be among {', '.join(METHODS)}, got {name}")
    for name in ("nodes", "features", "hidden", "classes", "threads"):
        if size[name] < 1:
            raise InputError(f"--{name} must be at least 1, got {size[name]}")
    if size["layers"] < 2:
        raise InputError(f"--layers must be at least 2, got {size['layers']}")
    checked_device(size["device"])
    if out is not None:
        check_folder(Path(out))
    rows = []
    output.say(f"{'':<12}{'ms':>10}{'x floor':>9}{'peak GiB':>10}")
    for row in run(Size(**size), names, seconds):
        rows.append(row)
        ratio = "-" if row["x_floor"] is None else f"{row['x_floor']:.2f}"
        output.say(f"{row['method']:<12}{row['ms']:>10.2f}{ratio:>9}{row['peak_gib']:>10.2f}")
    figures = {**provenance(_command_line()), "rows": rows}
    if out is not None:
        write_atomically(Path(out), json.dumps(figures, indent=1) + "\n")
    output.result(figures)
