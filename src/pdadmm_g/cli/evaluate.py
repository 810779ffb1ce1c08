"""The accuracy of a finished run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from .finished_run import as_team, data_options, load_run, sharded_dataset
from .output import Output, output_options
from .text import percent


@click.command(short_help="Print the accuracy of a run.")
@data_options
@output_options
def evaluate(
    run: str, dataset: str | None, edges: str | None, data_root: str | None, shards: int, output: Output
) -> None:
    """Print the accuracy (0 to 1) of the run folder RUN on the training, validation and test nodes.

    Where the data set has no masks, the accuracy is that on all labelled nodes.

    \b
    pdadmm-g evaluate runs/cora-0
    pdadmm-g evaluate runs/cora-0 --dataset other.npz
    pdadmm-g evaluate runs/cora-0 --json | jq .test_accuracy
    """
    folder = sharded_dataset(run, dataset, shards)
    if folder is not None:
        _evaluate_shards(run, folder, shards, output)
        return

    from ..data.adapters import labels_of
    from ..data.checks import hard_labels
    from ..runs.scoring import accuracies

    classifier, data = load_run(run, dataset, edges, data_root)
    if data.y is None:
        raise InputError("the data set has no labels 'y' to evaluate against; use 'pdadmm-g predict'")
    labels = hard_labels(data)
    _warn_unseen(sorted(set(labels_of(data)[labels >= 0].tolist()) - set(classifier.classes_.tolist())))
    results = accuracies(classifier, data)
    if not any(accuracy is not None for accuracy in results.values()):
        results["accuracy"] = classifier.score(data, labels >= 0)
    _show(results, output)


def _warn_unseen(labels: list[Any]) -> None:
    if labels:
        warnings.warn(f"the model was trained without the labels {labels[:5]}, and cannot predict them", stacklevel=2)


def _show(results: dict[str, float | None], output: Output) -> None:
    for name, accuracy in results.items():
        output.say(f"{name.replace('_', ' ')}: {percent(accuracy)}")
    output.result(results)


def _evaluate_shards(run: str, dataset: str, shards: int, output: Output) -> None:
    from ..runs.sharded_predictions import score_shards

    model = str(Path(run) / "model.safetensors")
    found = as_team(shards, lambda team, size: score_shards(model, dataset, size, team=team, say=output.progress))
    if found is None:
        return
    _warn_unseen(found["unseen"])
    results = found["accuracies"]
    if found["everywhere"] is not None:
        results["accuracy"] = found["everywhere"]
    _show(results, output)
