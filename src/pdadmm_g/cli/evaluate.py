"""How good a finished run is."""

from __future__ import annotations

import warnings
from typing import Any

import click

from ..errors import InputError
from .common import (
    BEFORE_REFIT,
    NO_TEST,
    PARTS,
    Output,
    apply_run,
    data_options,
    expected,
    figure,
    load_run,
    output_options,
    sharded_dataset,
)


@click.command(short_help="Print accuracy and other figures of a run.")
@data_options
@output_options
def evaluate(
    run: str,
    dataset: str | None,
    edges: str | None,
    data_root: str | None,
    shards: int,
    output: Output,
    **names: Any,
) -> None:
    """Print how good the run folder RUN is on the training, validation and test nodes.

    Accuracy, balanced accuracy, F1, area under the ROC curve, average precision, log loss and calibration error; of
    several labels a node the same as far as they are defined, of numbers R2, mean absolute and root mean squared error.
    Where a table has no split, nodes whose labels came after training are test nodes, by their ids. Where no node is
    known to have trained, the figures are those of all labelled nodes; of a folder of shards, the accuracy alone is
    known.

    \b
    pdadmm-g evaluate runs/cora-0
    pdadmm-g evaluate runs/cora-0 --dataset other.npz
    pdadmm-g evaluate runs/cora-0 --json | jq .test_accuracy
    pdadmm-g evaluate runs/cora-0 --json | jq .metrics.test.f1_macro
    """
    sharded = sharded_dataset(run, dataset, shards)
    if sharded is not None:
        if (applied := apply_run(run, sharded, shards, output)) is not None:
            _warn_unseen(applied["unseen"])
            everywhere = applied["everywhere"]
            _show(applied["accuracies"] | ({} if everywhere is None else {"accuracy": everywhere}), {}, output)
        return

    from ..graph.graph import MASKS
    from ..graph.readers import labels_of
    from ..graph.targets import has_columns, labelled
    from ..runs.folder import RunFolder
    from ..runs.scoring import judge

    classifier, data = load_run(run, dataset, edges, data_root, output, **names)
    known = None if data.y is None else labelled(data)
    if known is None or not bool(known.any()):
        folder = RunFolder(run)
        learned = (folder.config().labels if (folder.path / "config.yaml").exists() else None) or ("label",)
        where = f"in a table {' and '.join(map(repr, learned))}"
        raise InputError(f"data: there are no labels ({where}) to evaluate against; use 'pdadmm-g predict'")
    unmarked = not any(mask in data and bool(data[mask].any()) for mask in MASKS)
    if unmarked:
        data.test_mask = known
    found = judge(classifier, data)
    if not has_columns(data):
        _warn_unseen(sorted(set(labels_of(data)[known.numpy()].tolist()) - set(classifier.outputs_.tolist())))
    if unmarked:
        everyone = f"these are figures of all {int(data.test_mask.sum())} nodes with a label"
        output.say(f"no node is marked as train, validation or test: {everyone}")
        _show(dict.fromkeys(found.accuracies) | found.metrics.get("test", {}), {}, output)
        return
    summary = {} if {"val", "test"} <= {*found.metrics} else RunFolder(run).summary()
    _show(found.accuracies, found.metrics, output, None if "test" in found.metrics else summary.get("estimate"))
    if "val" not in found.metrics and (earlier := summary.get("val_score_before_refit")) is not None:
        output.say(BEFORE_REFIT.format(earlier))
    if "test" not in found.metrics:
        for line in expected(summary):
            output.say(line)
        output.say(NO_TEST)


def _warn_unseen(labels: list[Any]) -> None:
    if labels:
        warnings.warn(f"the model was trained without the labels {labels[:5]}, and cannot predict them", stacklevel=2)


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
