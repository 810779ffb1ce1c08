"""Commands that use a finished run: evaluate, predict."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from .completion import DATASETS, words
from .output import Output, output_options
from .text import percent


def data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of the commands that apply a finished run to a data set."""
    for decorate in (
        click.argument("run", shell_complete=words((), then="dir")),
        click.option("--data-root", metavar="TEXT", help="folder of raw benchmark files [default: the run's]"),
        click.option(
            "--dataset",
            metavar="TEXT",
            help="apply the model to this data set, by name or an .npz or .pt file [default: the run's]",
            shell_complete=words(DATASETS, then="file"),
        ),
    ):
        command = decorate(command)
    return command


def _load_run(run: str, dataset: str | None, data_root: str | None) -> tuple[Any, Any]:
    """The classifier of a run folder and the data set to use it on."""
    from ..datasets import load_dataset
    from ..runs import RunFolder

    folder = RunFolder(run)
    classifier = folder.classifier()
    if dataset is None:
        config = folder.config()
        dataset, data_root = config.dataset, data_root or config.data_root
    return classifier, load_dataset(dataset, data_root)


@click.command(short_help="Print the accuracy of a run.")
@data_options
@output_options
def evaluate(run: str, dataset: str | None, data_root: str | None, output: Output) -> None:
    """Print the accuracy (0 to 1) of the run folder RUN on the training, validation and test nodes.

    Where the data set has no masks, the accuracy is that on all labelled nodes.

    \b
    pdadmm-g evaluate runs/cora-0
    pdadmm-g evaluate runs/cora-0 --dataset other.npz
    pdadmm-g evaluate runs/cora-0 --json | jq .test_accuracy
    """
    from ..runs import accuracies

    classifier, data = _load_run(run, dataset, data_root)
    if data.y is None:
        raise InputError("the data set has no labels 'y' to evaluate against; use 'pdadmm-g predict'")
    unseen = sorted(set(data.y[data.y >= 0].tolist()) - set(classifier.classes_.tolist()))
    if unseen:
        warnings.warn(f"the model was trained without the labels {unseen[:5]}, and cannot predict them", stacklevel=1)
    results = accuracies(classifier, data)
    if not any(accuracy is not None for accuracy in results.values()):
        results["accuracy"] = classifier.score(data, data.y >= 0)
    for name, accuracy in results.items():
        output.say(f"{name.replace('_', ' ')}: {percent(accuracy)}")
    output.result(results)


@click.command(short_help="Write a label for every node.")
@data_options
@click.option("--out", required=True, metavar="FILE", help="CSV file to write")
@output_options
def predict(run: str, dataset: str | None, data_root: str | None, out: str, output: Output) -> None:
    """Write node, predicted label and its probability for every node, with the model of the run folder RUN.

    The graph may be another than that of training, with new nodes and edges; its features must be the same ones. It
    needs neither labels nor masks (docs/guides/new-nodes.md).

    \b
    pdadmm-g predict runs/cora-0 --out preds.csv
    pdadmm-g predict runs/cora-0 --dataset grown.npz --out preds.csv
    """
    from ..files import write_atomically

    classifier, data = _load_run(run, dataset, data_root)
    probabilities = classifier.predict_proba(data)
    best = probabilities.argmax(1)
    labels, confidence = classifier.classes_[best], probabilities.max(1)
    rows = [f"{node},{label},{c:.6f}" for node, (label, c) in enumerate(zip(labels, confidence, strict=True))]
    write_atomically(Path(out), "\n".join(["node,label,probability", *rows]) + "\n")
    output.say(f"{len(rows)} predictions written to {out}")
    output.result({"predictions": len(rows), "file": out})
