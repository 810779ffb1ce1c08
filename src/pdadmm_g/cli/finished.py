"""What is done with a finished run: judge it, predict, explain, export, report."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..config import RunConfig
from ..errors import InputError
from .common import (
    BEFORE_REFIT,
    NO_TEST,
    PARTS,
    Output,
    applied,
    data_options,
    expected,
    figure,
    output_options,
    run_argument,
    words,
)

if TYPE_CHECKING:
    import pandas as pd


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


FORMATS = ("safetensors", "torch-export", "onnx")


@click.command(name="export", short_help="Write the model as safetensors, torch.export or ONNX.")
@run_argument
@click.option("--format", "kind", type=click.Choice(FORMATS), default="onnx", show_default=True, help="kind of file")
@click.option(
    "--out", metavar="FILE", help="file to write [default: RUN's name with the format's ending, in this folder]"
)
@click.option("--int8", is_flag=True, help="weights as 8-bit integers, a quarter of the size (onnx only)")
@output_options
def export(run: str, kind: str, out: str | None, int8: bool, output: Output) -> None:
    """Write the model of the run folder RUN to one file for programs that do not have this package.

    torch-export and onnx: a program from rows of propagated features to logits, the normalisation inside, any number
    of rows at a time. safetensors: the weights as arrays. The file is compared with our model before it takes its
    place; docs/guides/export.md says how to use it.

    \b
    pdadmm-g export runs/cora-0 --format onnx                    writes cora-0.onnx (needs onnx, onnxruntime)
    pdadmm-g export runs/cora-0 --format onnx --int8 --out small.onnx
    pdadmm-g export runs/cora-0 --format torch-export            writes cora-0.pt2
    pdadmm-g export runs/cora-0 --format safetensors             writes cora-0.safetensors
    """
    from ..runs.export import FORMATS, export
    from ..runs.folder import RunFolder

    path = Path(out or Path(run).resolve().name + FORMATS[kind])
    difference = export(RunFolder(run).classifier(), path, kind, int8=int8)
    size = path.stat().st_size
    output.say(f"{path}: {size:,} bytes; logits within {difference:.1e} of the largest of ours on random rows")
    output.result({"file": str(path), "format": kind, "int8": int8, "bytes": size, "difference": difference})


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--out", metavar="FILE", help="page to write [default: RUN/report.html; report.html for several runs]")
def report(runs: tuple[str, ...], out: str | None) -> None:
    """Write one HTML page about run folders: curves, workers, classes, settings, several runs on top of each other.

    The page is one file and needs no network. Runs that still go on, or broke off, are shown as far as they got.

    \b
    pdadmm-g report runs/cora-0
    pdadmm-g report runs/cora-* --out cora.html
    """
    from ..report.collect import read_runs
    from ..report.page import render
    from ..runs.folder import REPORT
    from ..utils import write_atomically

    read = read_runs([Path(run) for run in runs])
    target = Path(out) if out else Path(runs[0]) / REPORT if len(runs) == 1 else Path(REPORT)
    write_atomically(target, render(read))
    click.echo(f"report of {len(read)} run{'s' if len(read) > 1 else ''} written to {target}")
