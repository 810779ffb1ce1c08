"""Why a finished run says what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from .common import Output, data_options, figure, output_options, words

if TYPE_CHECKING:
    import pandas as pd

#: What is lost by less than this is nothing to speak of.
LEAST = 0.001


@click.command(short_help="Print which columns and neighbours decide.")
@data_options
@click.option("--node", metavar="ID", help="explain this one node [default: what columns are worth to all]")
@click.option("--out", metavar="FILE", help="write the table as CSV", shell_complete=words())
@output_options
def explain(
    run: str,
    dataset: str | None,
    edges: str | None,
    data_root: str | None,
    shards: int,
    node: str | None,
    out: str | None,
    output: Output,
    **names: Any,
) -> None:
    """Print what columns and neighbours are worth to the model of the run folder RUN, or to its label of one node.

    Without --node: the score that is lost when the values of a column are exchanged at random between nodes, of the
    nodes themselves (own) or of their neighbours, and what a model is behind that is trained again without the graph.
    It is kept in the run folder, and 'pdadmm-g report RUN' shows it.

    With --node: how the label of that node changes when one of its columns, or one of its neighbours', has its mean,
    and when the edges to one neighbour are not there.

    \b
    pdadmm-g explain runs/cora-0
    pdadmm-g explain runs/nodes-0 --node n17
    pdadmm-g explain runs/nodes-0 --nodes nodes.csv --edges edges.csv --out importance.csv
    """
    from ..runs.apply import load
    from ..runs.folder import Importance, RunFolder
    from ..utils import check_folder, write_atomically

    if out is not None:
        check_folder(Path(out))
    estimator, data = load(run, dataset, data_root, edges=edges, say=output.progress, **names)
    if shards > 1 or data.get("part") is not None:
        raise InputError("explain is not for a folder of shards: give one graph with --dataset")
    folder = RunFolder(run)
    estimator = type(estimator).load(run)  # which knows what was expected of it
    if node is not None:
        table = estimator.explain(data, node)
        lines = _of_node(table)
    else:
        output.progress("exchanging columns")
        table = estimator.importance(data)
        lines = _of_all(table)
    if out is not None:
        write_atomically(Path(out), table.to_csv(index=False, float_format="%.6f", lineterminator="\n"))
    for line in lines:
        output.say(line)
    if node is None and (dataset is None or not folder.config().dataset):
        Importance.of(table).save(folder.path)
    output.result({**table.attrs, "rows": json.loads(table.to_json(orient="records", double_precision=6))})


def _of_all(table: pd.DataFrame) -> list[str]:
    """What the columns are worth, for people."""
    about, graph = table.attrs, table["column"] == "the graph"
    name, words = about["figure"], about["figure"].replace("_", " ")
    lines = [f"{words} {figure(name, about['score'])} on {about['nodes']:,} {about['on']} nodes"]
    for behind in table["lost"][graph]:
        own = about.get("out_of_fold", about["score"])
        if "out_of_fold" in about:
            lines.insert(0, f"{words} expected out of fold {figure(name, own)}")
        lines[0] += f"; of a model that is trained again without the graph {figure(name, own - behind)}"
    lines.append("what is lost when the values of a column are exchanged between nodes:")
    small = table["lost"].abs() < LEAST
    for row in table[~small & ~graph].itertuples():
        lines.append(
            f"{row.lost:+8.3f} +/- {row.spread:.3f}  {row.column}{'' if row.whose == 'own' else ' of neighbours'}"
        )
    return [*lines, f"others: less than {LEAST}"] if small.any() else lines


def _of_node(table: pd.DataFrame) -> list[str]:
    """What moved the prediction of a node, for people."""
    about, probability, number = table.attrs, "probability ", "{:.3f}"
    if about["target"] == "regression":
        probability, number = "", "{:.4g}"
    said = f"{probability}{number.format(about['said'])}; without each of these alone:"
    lines = [f"node {about['node']}: {about['label']}{',' if probability else ''} {said}"]
    texts = {"own": "{} = {}", "neighbours": "{} of neighbours", "neighbour": "edge to {} ({})"}
    for row in table.itertuples():
        text = texts[row.kind].format(row.name, row.value).replace(" = None", "").replace(" (None)", "")
        lines.append(f"{number.format(row.without):>8}  {text}")
    return lines
