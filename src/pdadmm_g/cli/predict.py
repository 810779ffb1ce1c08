"""Labels from a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..config import RunConfig
from ..errors import InputError
from .common import Output, applied, data_options, output_options


@click.command(short_help="Write a label for every node.")
@data_options
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    help="CSV file to write, - for standard output",
)
@click.option("--probabilities", is_flag=True, help="also write the probability of each class")
@output_options
def predict(out: str, probabilities: bool, output: Output, **options: Any) -> None:
    """Write node, predicted label and its probability for every node, with the model of the run folder RUN.

    The graph may be another than that of training, with new nodes and edges; its features must be the same ones. It
    needs neither labels nor masks (docs/guides/new-nodes.md).

    \b
    pdadmm-g predict runs/cora-0 --out preds.csv
    pdadmm-g predict runs/cora-0 --dataset grown.npz --out preds.csv
    pdadmm-g predict runs/cora-0 --out - | head -3                 to standard output
    pdadmm-g predict runs/nodes-0 --nodes nodes.csv --edges edges.csv --out preds.csv --probabilities
    pdadmm-g predict runs/large-0 --shards 8 --out preds.csv       of a folder of shards, by 8 processes
    """
    from ..utils import temporary_folder

    if out != "-":
        _check_out(Path(out), options["run"], options["dataset"], options["edges"], options["data_root"])
        found = applied("predicted", output, **options, out=str(Path(out).resolve()), probabilities=probabilities)
        if found is not None:
            output.say(f"{found['predictions']} predictions written to {out}")
            output.result(found | {"file": out})
        return
    if output.json:
        raise InputError("--out - and --json both write to standard output: give one of the two")
    with temporary_folder() as folder:
        file = folder / "predictions.csv"
        found = applied("predicted", output, **options, out=str(file), probabilities=probabilities)
        if found is not None:
            click.echo(file.read_text(encoding="utf-8"), nl=False)
            output.progress(f"{found['predictions']} predictions written to standard output")


def _check_out(out: Path, run: str, dataset: str | None, edges: str | None, data_root: str | None) -> None:
    """Raise if the predictions would replace the model or the data that they are made of."""
    from ..runs.folder import RunFolder
    from ..utils import find_graph

    folder = RunFolder(run)
    config = folder.config() if (folder.path / "config.yaml").exists() else RunConfig()
    read = [str(folder.model), dataset or config.dataset, edges, config.edges if dataset is None else None]
    for path in (find_graph(Path(name), data_root or config.data_root) for name in read if name):
        if out.is_file() and path.exists() and path.samefile(out.parent if path.is_dir() else out):
            raise InputError(f"{out}: is what the predictions are made of: name another file with --out")
