"""The accuracy of a finished run."""

from __future__ import annotations

import warnings

import click

from ..errors import InputError
from .finished_run import data_options, load_run
from .output import Output, output_options
from .text import percent


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
    from ..data.checks import hard_labels
    from ..runs.scoring import accuracies

    classifier, data = load_run(run, dataset, data_root)
    if data.y is None:
        raise InputError("the data set has no labels 'y' to evaluate against; use 'pdadmm-g predict'")
    labels = hard_labels(data)
    unseen = sorted(set(labels[labels >= 0].tolist()) - set(classifier.classes_.tolist()))
    if unseen:
        warnings.warn(f"the model was trained without the labels {unseen[:5]}, and cannot predict them", stacklevel=1)
    results = accuracies(classifier, data)
    if not any(accuracy is not None for accuracy in results.values()):
        results["accuracy"] = classifier.score(data, labels >= 0)
    for name, accuracy in results.items():
        output.say(f"{name.replace('_', ' ')}: {percent(accuracy)}")
    output.result(results)
