"""Labels from a finished run."""

from __future__ import annotations

from pathlib import Path

import click

from .finished_run import as_team, data_options, load_run, sharded_dataset
from .output import Output, output_options


@click.command(short_help="Write a label for every node.")
@data_options
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    help="CSV file to write, - for standard output; for a folder of shards also a folder",
)
@output_options
def predict(run: str, dataset: str | None, data_root: str | None, shards: int, out: str, output: Output) -> None:
    """Write node, predicted label and its probability for every node, with the model of the run folder RUN.

    The graph may be another than that of training, with new nodes and edges; its features must be the same ones. It
    needs neither labels nor masks (docs/guides/new-nodes.md).

    \b
    pdadmm-g predict runs/cora-0 --out preds.csv
    pdadmm-g predict runs/cora-0 --dataset grown.npz --out preds.csv
    pdadmm-g predict runs/cora-0 --out - | head -3                 to standard output
    pdadmm-g predict runs/large-0 --shards 8 --out preds           a folder with label.npy for each shard
    """
    from ..errors import InputError
    from ..files import write_atomically

    if out == "-" and output.json:
        raise InputError("--out - and --json both write to standard output: give one of the two")
    folder = sharded_dataset(run, dataset, shards)
    if folder is not None:
        if out == "-":
            raise InputError("--out - is not for a folder of shards: name a .csv file or a folder")
        _predict_shards(run, folder, shards, out, output)
        return

    classifier, data = load_run(run, dataset, data_root)
    probabilities = classifier.predict_proba(data)
    best = probabilities.argmax(1)
    labels, confidence = classifier.classes_[best], probabilities.max(1)
    rows = [f"{node},{label},{c:.6f}" for node, (label, c) in enumerate(zip(labels, confidence, strict=True))]
    text = "\n".join(["node,label,probability", *rows]) + "\n"
    if out == "-":
        output.content(text)
        output.progress(f"{len(rows)} predictions written to standard output")
        return
    write_atomically(Path(out), text)
    output.say(f"{len(rows)} predictions written to {out}")
    output.result({"predictions": len(rows), "file": out})


def _predict_shards(run: str, dataset: str, shards: int, out: str, output: Output) -> None:
    from ..runs.sharded_predictions import predict_shards

    model = str(Path(run) / "model.safetensors")
    found = as_team(
        shards, lambda team, size: predict_shards(model, dataset, out, size, team=team, say=output.progress)
    )
    if found is not None:
        output.say(f"{found['predictions']} predictions written to {out}")
        output.result(found)
