"""Commands that measure: reproduce, bench, and the data sets that they know."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from ..errors import InputError


@click.command()
@click.option("--data-root", metavar="TEXT", help="folder of raw benchmark files [default: $PDADMM_G_DATA]")
def datasets(data_root: str | None) -> None:
    """List the data sets known by name, and whether their raw files are under the data root."""
    from ..datasets import BENCHMARKS, missing_raw_files

    click.echo(f"{'name':<18}{'nodes':>8}{'features':>10}{'classes':>9}  raw files")
    click.echo(f"{'digits':<18}{1797:>8}{64:>10}{10:>9}  embedded")
    for name, benchmark in BENCHMARKS.items():
        missing = missing_raw_files(benchmark, data_root)
        state = "found" if not missing else f"not found: {benchmark.folder}/"
        if 0 < len(missing) < len(benchmark.raw_files):
            state = f"missing: {', '.join(missing)}"
        click.echo(f"{name:<18}{benchmark.nodes:>8}{benchmark.features:>10}{benchmark.classes:>9}  {state}")


EXPERIMENTS = (
    "table-100", "table-500", "table-best", "convergence", "depth", "speedup-layers", "speedup-workers",
    "communication", "homophily", "stand-ins",
)  # fmt: skip


@click.command()
@click.argument("experiment", type=click.Choice([*EXPERIMENTS, "all"]))
@click.option(
    "--out", default="results", show_default=True, metavar="DIR", help="folder with one folder per experiment"
)
@click.option("--data-root", metavar="TEXT", help="folder of raw benchmark files [default: $PDADMM_G_DATA]")
@click.option("--datasets", metavar="NAME,...", help="only these data sets")
@click.option("--seeds", metavar="N,...", help="these seeds [default: 0,100,200,300,400]")
@click.option("--workers", default=1, show_default=True, metavar="N", help="processes; the most workers for speedup-*")
@click.option("--device", default="cpu", show_default=True, help="torch device of the tables: cpu, cuda, ...")
@click.option("--quick", is_flag=True, help="one seed, three small data sets: minutes instead of hours")
def reproduce(
    experiment: str,
    out: str,
    data_root: str | None,
    datasets: str | None,
    seeds: str | None,
    workers: int,
    device: str,
    quick: bool,
) -> None:
    """Run an experiment of the paper and show our figures beside the paper's.

    Results go to OUT/EXPERIMENT: one JSON file per cell, table.md and PNG figures. A cell that is there is not run
    again: call the command once more to go on after an interruption. stand-ins trains on the real graphs of Flickr and
    ogbn-arxiv with made-up features.

    \b
    pdadmm-g reproduce table-100 --quick --workers 2 --data-root raw
    pdadmm-g reproduce table-best --datasets cora,pubmed --data-root raw
    pdadmm-g reproduce speedup-workers --workers 16
    """
    from ..config import coerce
    from ..estimator import checked_device
    from ..experiments import Request
    from ..experiments import reproduce as run_experiment

    checked_device(device)
    names = coerce("datasets", datasets, tuple[str, ...] | None)
    root = data_root or os.environ.get("PDADMM_G_DATA")
    for name in EXPERIMENTS if experiment == "all" else (experiment,):
        options = [f"--datasets {datasets}"] * bool(datasets) + [f"--seeds {seeds}"] * bool(seeds)
        command = " ".join(["pdadmm-g reproduce", name, *options, *(["--quick"] if quick else [])])
        request = Request(
            folder=Path(out) / (f"{name}-quick" if quick else name),
            data_root=root,
            datasets=names,
            seeds=coerce("seeds", seeds, tuple[int, ...] | None),
            workers=workers,
            device=device,
            command=command,
            quick=quick,
        )
        click.echo(run_experiment(name, request, lambda row: click.echo(_row_line(row), err=True)))
        click.echo(f"written to {request.folder}")


def _row_line(row: dict[str, Any]) -> str:
    """A line of progress: what was run, and its main figure."""
    what = [str(row[key]) for key in ("dataset", "method", "algorithm", "quantized") if key in row]
    what += [f"{row[key]} {unit}" for key, unit in (("depth", "layers"), ("workers", "workers")) if key in row]
    figures = [f"{row[key]:.3f}" for key in ("mean", "test_accuracy", "seconds") if row.get(key) is not None]
    return "  ".join([*what, *figures])


@click.command()
@click.option("--nodes", default=2000, show_default=True, help="training nodes")
@click.option("--features", default=2000, show_default=True, help="augmented features of a node")
@click.option("--hidden", default=1000, show_default=True, help="neurons per hidden layer")
@click.option("--layers", default=10, show_default=True, help="number of layers")
@click.option("--classes", default=10, show_default=True, help="number of classes")
@click.option("--device", default="cpu", show_default=True, help="torch device: cpu, cuda, ...")
@click.option(
    "--threads", type=int, default=lambda: os.cpu_count() or 1, metavar="N", help="compute threads [default: all]"
)
@click.option("--precision", type=click.Choice(["fp32", "tf32", "bf16"]), default="fp32", show_default=True)
@click.option(
    "--compile/--no-compile", default=None, help="fuse the elementwise work [default: on a GPU, where it pays]"
)
@click.option("--methods", metavar="NAME,...", help="only these: floor,linearized,exact,quantized,adam")
@click.option("--seconds", default=5.0, show_default=True, help="time for each method, after warming up")
@click.option("--out", metavar="FILE", help="write the figures to this JSON file")
def bench(methods: str | None, seconds: float, out: str | None, **size: Any) -> None:
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
    from ..runs import write_atomically

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
    rows = []
    click.echo(f"{'':<12}{'ms':>10}{'x floor':>9}{'peak GiB':>10}")
    for row in run(Size(**size), names, seconds):
        rows.append(row)
        ratio = "-" if row["x_floor"] is None else f"{row['x_floor']:.2f}"
        click.echo(f"{row['method']:<12}{row['ms']:>10.2f}{ratio:>9}{row['peak_gib']:>10.2f}")
    if out is not None:
        command = "pdadmm-g bench " + " ".join(f"--{name} {value}" for name, value in size.items() if value is not None)
        write_atomically(Path(out), json.dumps({**provenance(command), "rows": rows}, indent=1) + "\n")
