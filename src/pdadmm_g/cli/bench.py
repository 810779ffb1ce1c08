"""How fast this machine trains."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from .command_line import command_line
from .output import Output, output_options

#: Of anything that is counted; torch cannot say of much larger numbers that they are too large.
LARGEST = 10**9


@click.command(short_help="Measure how fast this machine trains.")
@click.option("--nodes", default=2000, show_default=True, metavar="N", help="training nodes")
@click.option("--features", default=2000, show_default=True, metavar="N", help="augmented features of a node")
@click.option("--hidden", default=1000, show_default=True, metavar="N", help="neurons per hidden layer")
@click.option("--layers", default=10, show_default=True, metavar="N", help="number of layers")
@click.option("--classes", default=10, show_default=True, metavar="N", help="number of classes")
@click.option("--device", default="cpu", show_default=True, help="torch device: cpu, cuda, auto, ...")
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

    from ..experiments.bench import METHODS, Size
    from ..experiments.bench import bench as run
    from ..files import check_folder, write_atomically
    from ..hardware import checked_device, provenance

    names = tuple(methods.split(",")) if methods else METHODS
    for name in names:
        if name not in METHODS:
            raise InputError(f"--methods must be among {', '.join(METHODS)}, got {name}")
    for name in ("nodes", "features", "hidden", "classes", "threads"):
        if not 1 <= size[name] <= LARGEST:
            raise InputError(f"--{name} must be between 1 and {LARGEST}, got {size[name]}")
    if size["layers"] < 2:
        raise InputError(f"--layers must be at least 2, got {size['layers']}")
    size["device"] = str(checked_device(size["device"]))
    if out is not None:
        check_folder(Path(out))
    rows = []
    output.say(f"{'':<12}{'ms':>10}{'x floor':>9}{'peak GiB':>10}")
    for row in run(Size(**size), names, seconds):
        rows.append(row)
        ratio = "-" if row["x_floor"] is None else f"{row['x_floor']:.2f}"
        output.say(f"{row['method']:<12}{row['ms']:>10.2f}{ratio:>9}{row['peak_gib']:>10.2f}")
    figures = {**provenance(command_line()), "rows": rows}
    if out is not None:
        write_atomically(Path(out), json.dumps(figures, indent=1) + "\n")
    output.result(figures)
