"""Our model beside others on the user's own nodes."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..config import RunConfig
from ..errors import InputError
from ..utils import check_folder, write_atomically
from .common import Output, SettingsCommand, output_options, settings_options, words

if TYPE_CHECKING:
    import pandas as pd

#: Settings of a run folder, which there is none of.
NOT_HERE = ("out", "init", "checkpoint_every")


@click.command(cls=SettingsCommand, short_help="Compare with scikit-learn and graph methods on your data.")
@click.option("--config", "config_file", metavar="FILE", help="YAML file of settings; options on the command line win")
@click.option(
    "--methods", metavar="NAME,...", help="largest, lr, hgb, lr-graph, hgb-graph, sgc, sign, gcn, ours [default: all]"
)
@click.option(
    "--folds",
    type=click.IntRange(2, 100),
    default=3,
    metavar="N",
    help="parts of the labelled nodes where no nodes are for testing [default: 3]",
)
@click.option(
    "--budget", type=click.FloatRange(0), metavar="SECONDS", help="begin no method but ours after so many seconds"
)
@click.option("--out", metavar="FILE", help="write the table as CSV", shell_complete=words())
@click.option(
    "--figure", metavar="FILE", help="draw the differences into a PNG file (needs matplotlib)", shell_complete=words()
)
@functools.partial(settings_options, without=NOT_HERE)
@output_options
def compare(
    config_file: str | None,
    methods: str | None,
    folds: int,
    budget: float | None,
    out: str | None,
    figure: str | None,
    output: Output,
    **options: Any,
) -> None:
    """Train simpler and better known methods beside ours on the same nodes, and print how good each is.

    The largest class, logistic regression and gradient boosting on the columns, both also with degree and means over
    neighbours (on the known labels of neighbours where there are no columns), SGC, SIGN, GCN, and ours with the
    settings given. Where the data set has test nodes, these are scored; else all labelled nodes in folds. The intervals
    are 90% intervals of the difference to ours, from a paired bootstrap.

    \b
    pdadmm-g compare --nodes nodes.csv --edges edges.csv
    pdadmm-g compare --nodes nodes.csv --edges edges.csv --budget 60 --figure compare.png
    pdadmm-g compare --dataset cora --methods lr-graph,sgc,ours --layers 2
    pdadmm-g compare --dataset graph.npz --json | jq '.methods[] | {method, accuracy}'
    """
    config = RunConfig.load(config_file, {name: value for name, value in options.items() if value is not None})
    for path in filter(None, (out, figure)):
        check_folder(Path(path))
    output.progress("starting")  # what follows loads torch, which takes seconds

    from ..comparison import compare as compared
    from ..comparison import draw
    from ..estimator import GAMLPClassifier, parameters
    from ..graph.datasets import load_dataset

    if config.target not in ("auto", "classification"):
        raise InputError("target must be classification: compare is for classes, one label a node")
    data = load_dataset(
        config.dataset, config.data_root, edges=config.edges, target="classification", columns=config.columns,
        **config.naming(),
    )  # fmt: skip
    table = compared(
        data,
        estimator=GAMLPClassifier(**parameters(config), random_state=config.seed),
        methods=None if methods is None else methods.split(","),
        folds=folds,
        budget=budget,
        random_state=config.seed % 2**32,
        say=output.progress,
    )
    if out is not None:
        write_atomically(Path(out), table.to_csv())
    rows = json.loads(table.reset_index().to_json(orient="records", double_precision=15))
    output.result({**table.attrs, "methods": rows})
    if not (output.quiet or output.json):
        _show(table)
    if figure is not None:
        draw(table, figure)


def _show(table: pd.DataFrame) -> None:
    """The table for people, its most important figure with intervals."""
    name, failed = table.attrs["figure"], table["note"] != ""
    heads = {"accuracy": "accuracy", "balanced_accuracy": "balanced", "roc_auc_ovr": "AUROC", "log_loss": "log loss"}
    heads |= {"calibration_error": "ECE", "seconds": "s"}
    shown = table[~failed].set_index("title").rename_axis(None)
    columns = shown[[*heads]].rename(columns=heads)
    if f"{name}_low" in shown:
        ends = zip(shown[f"{name}_low"], shown[f"{name}_high"], strict=True)
        columns["difference to ours, 90%"] = [f"{low:+.3f} to {high:+.3f}" for low, high in ends]
        columns.loc[columns.index == "pdadmm-g", "difference to ours, 90%"] = ""
    click.echo(f"Scored: {table.attrs['about']}\n{columns.to_string(float_format='{:.3f}'.format, na_rep='-')}")
    for row in table[failed].itertuples():
        click.echo(f"{row.title}: {row.note}")
    what = "AUROC" if name == "roc_auc_ovr" else name
    click.echo(f"difference: {what} minus that of pdadmm-g; below zero is behind it")
