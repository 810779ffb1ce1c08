"""How good a finished run is."""

from __future__ import annotations

import warnings
from typing import Any

import click

from .common import BEFORE_REFIT, NO_TEST, PARTS, Output, applied, data_options, expected, figure, output_options


@click.command(short_help="Print accuracy and other figures of a run.")
@data_options
@output_options
def evaluate(output: Output, **options: Any) -> None:
    """Print how good the run folder RUN is on the training, validation and test nodes.

    Accuracy, balanced accuracy, F1, area under the ROC curve, average precision, log loss and calibration error; of
    several labels a node the same as far as they are defined, of numbers R2, mean absolute and root mean squared error.
    Where a table has no split, nodes whose labels came after training are test nodes, by their ids. Where no node is
    known to have trained, the figures are those of all labelled nodes.

    \b
    pdadmm-g evaluate runs/cora-0
    pdadmm-g evaluate runs/cora-0 --dataset other.npz
    pdadmm-g evaluate runs/large-0 --shards 8                      of a folder of shards, by 8 processes
    pdadmm-g evaluate runs/cora-0 --json | jq .test_accuracy
    pdadmm-g evaluate runs/cora-0 --json | jq .metrics.test.f1_macro
    """
    from ..runs.folder import RunFolder

    found = applied("evaluated", output, **options)
    if found is None:
        return
    accuracies, metrics, unseen = found["accuracies"], found["metrics"], found["unseen"]
    if unseen:
        warnings.warn(f"the model was trained without the labels {unseen[:5]}, and cannot predict them", stacklevel=2)
    if found["unmarked"]:
        everyone = f"these are figures of all {found['unmarked']} nodes with a label"
        output.say(f"no node is marked as train, validation or test: {everyone}")
        _show(dict.fromkeys(accuracies) | metrics.get("test", {}), {}, output)
        return
    summary = {} if {"val", "test"} <= {*metrics} else RunFolder(options["run"]).summary()
    _show(accuracies, metrics, output, None if "test" in metrics else summary.get("estimate"))
    if "val" not in metrics and (earlier := summary.get("val_score_before_refit")) is not None:
        output.say(BEFORE_REFIT.format(earlier))
    if "test" not in metrics:
        for line in expected(summary):
            output.say(line)
        output.say(NO_TEST)


def _show(
    results: dict[str, float | None],
    metrics: dict[str, dict[str, float | None]],
    output: Output,
    estimate: dict[str, Any] | None = None,
) -> None:
    """Figures of all nodes, or accuracies; then the other figures, those of the three kinds of nodes on a line."""
    numbers = "r2" in {**results, **next(iter(metrics.values()), {})}  # which are not right or wrong
    for name, value in results.items():
        if not (numbers and name.endswith("_accuracy")):
            output.say(f"{name.replace('_', ' ')}: {figure(name, value)}")
    for name in (name for name in next(iter(metrics.values()), {}) if name != "accuracy"):
        values = ", ".join(f"{PARTS[part]} {figure(name, own[name])}" for part, own in metrics.items())
        output.say(f"{name.replace('_', ' ')}: {values}")
    output.result(
        results | ({"metrics": metrics} if metrics else {}) | ({"estimate": estimate} if estimate is not None else {})
    )
