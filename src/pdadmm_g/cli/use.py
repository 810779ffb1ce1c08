"""Commands that use a finished run: evaluate, predict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from .text import percent


def data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of the commands that apply a finished run to a data set."""
    for decorate in (
        click.argument("run"),
        click.option("--data-root", metavar="TEXT", help="folder of raw benchmark files [default: the run's]"),
        click.option("--dataset", metavar="TEXT", help="apply the model to this data set [default: the run's]"),
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


@click.command()
@data_options
def evaluate(run: str, dataset: str | None, data_root: str | None) -> None:
    """Print the accuracy of the run folder RUN on the training, validation and test nodes."""
    from ..runs import accuracies

    classifier, data = _load_run(run, dataset, data_root)
    if data.y is None:
        raise InputError("the data set has no labels 'y' to evaluate against; use 'pdadmm-g predict'")
    results = accuracies(classifier, data)
    if not any(accuracy is not None for accuracy in results.values()):
        results["accuracy"] = classifier.score(data, data.y >= 0)
    for name, accuracy in results.items():
        click.echo(f"{name.replace('_', ' ')}: {percent(accuracy)}")


@click.command()
@data_options
@click.option("--out", required=True, metavar="FILE", help="CSV file to write")
def predict(run: str, dataset: str | None, data_root: str | None, out: str) -> None:
    """Write node, predicted label and its probability for every node, with the model of the run folder RUN."""
    from ..runs import write_atomically

    classifier, data = _load_run(run, dataset, data_root)
    probabilities = classifier.predict_proba(data)
    best = probabilities.argmax(1)
    labels, confidence = classifier.classes_[best], probabilities.max(1)
    rows = [f"{node},{label},{c:.6f}" for node, (label, c) in enumerate(zip(labels, confidence, strict=True))]
    write_atomically(Path(out), "\n".join(["node,label,probability", *rows]) + "\n")
    click.echo(f"{len(rows)} predictions written to {out}")
