"""Run an experiment of the paper, or ours beyond it, and show our figures beside the paper's.

Results go to OUT/NAME: results.jsonl with one line per cell, and table.md and figure.png of all that is in it. What is
there is not run again: call the command once more to go on after an interruption.

    python -m experiments table-100 --quick --workers 2 --data-root raw
    python -m experiments table-best --datasets cora,pubmed --data-root raw
    python -m experiments speedup-workers --workers 16
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pdadmm_g.config import convert
from pdadmm_g.errors import InputError

from . import EXPERIMENTS, Request, run_experiment

#: What a line of progress says of a row, and in what.
UNITS = (("depth", "layers"), ("workers", "workers"), ("shards", "shards"), ("rows", "rows"))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        "python -m experiments", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=[*EXPERIMENTS, "all"], metavar="NAME", help=", ".join([*EXPERIMENTS, "all"]))
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder with one folder per experiment")
    parser.add_argument("--data-root", default=os.environ.get("PDADMM_G_DATA"), help="folder of raw benchmark files")
    parser.add_argument("--datasets", metavar="NAME,...", help="only these data sets")
    parser.add_argument("--seeds", metavar="N,...", help="these seeds; for random-splits these splits")
    parser.add_argument("--workers", type=int, default=1, help="processes; the most workers for speedup-*")
    parser.add_argument("--rows", metavar="N,...", help="training rows of speedup-mesh and network")
    parser.add_argument("--hidden", type=int, help="neurons per layer, likewise")
    parser.add_argument("--device", default="cpu", help="torch device of the tables: cpu, cuda, auto, ...")
    parser.add_argument("--quick", action="store_true", help="one seed, three small data sets: minutes, not hours")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line names; a mistake of the user ends in one line and exit code 2."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(words)
    try:
        for name in EXPERIMENTS if options.name == "all" else [options.name]:
            print(run_experiment(name, _request(name, words, options), _progress()), end="")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def _request(name: str, words: Sequence[str], options: argparse.Namespace) -> Request:
    """What the options ask of the experiment of that name."""
    from pdadmm_g.utils import checked_device

    from .results import command_line

    request = Request(
        folder=options.out / (f"{name}-quick" if options.quick else name),
        data_root=options.data_root,
        datasets=convert("datasets", options.datasets, tuple[str, ...] | None),
        seeds=convert("seeds", options.seeds, tuple[int, ...] | None),
        rows=convert("rows", options.rows, tuple[int, ...] | None),
        command=command_line("experiments", [name if word == "all" else word for word in words]),
        workers=options.workers,
        hidden=options.hidden,
        device=str(checked_device(options.device)),
        quick=options.quick,
    )
    for option, values in (("workers", (request.workers,)), ("hidden", (request.hidden,)), ("rows", request.rows)):
        for value in values or ():
            if value is not None and value < 1:
                raise InputError(f"--{option} must be at least 1, got {value}")
    for seed in request.seeds or ():
        if not 0 <= seed < 2**62:
            raise InputError(f"--seeds must be between 0 and 2^62, got {seed}")
    return request


def _progress() -> Any:
    """Shows each cell as it becomes known, how many there are and the time left."""
    from pdadmm_g.training.progress import TimeLeft

    time_left = TimeLeft()

    def show(row: dict[str, Any], done: int, total: int) -> None:
        what = [str(row[key]) for key in ("dataset", "method", "link") if key in row]
        what += [f"{row[key]} {unit}" for key, unit in UNITS if key in row]
        figures = [f"{row[key]:.3f}" for key in ("mean", "test_accuracy", "seconds") if row.get(key) is not None]
        print(f"{done}/{total}  {'  '.join([*what, *figures])}{time_left.after(done, total)}", file=sys.stderr)

    return show


if __name__ == "__main__":
    main()
