"""The ``pdadmm-g`` command. Heavy imports happen inside the commands, so that ``--help`` is instant."""

from __future__ import annotations

import os
import sys
import types
import typing
import warnings
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal

import click

from .config import RunConfig
from .errors import InputError

#: Exit codes beside 0: wrong input, numerical failure (the best model was kept), a worker lost, interrupted.
EXIT_INPUT, EXIT_FAILURE, EXIT_PEER_LOST, EXIT_INTERRUPTED = 2, 3, 4, 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="pdadmm-g")
def cli() -> None:
    """Train deep graph-augmented MLPs without backpropagation, layer by layer (pdADMM-G, pdADMM-G-Q).

    \b
    pdadmm-g train --dataset cora --data-root raw     train, write runs/cora-0/
    pdadmm-g evaluate runs/cora-0                     accuracy on the three splits
    pdadmm-g predict runs/cora-0 --out preds.csv      a label for every node
    pdadmm-g reproduce table-100 --quick              the paper's experiments
    """


def main(arguments: list[str] | None = None) -> None:
    """Entry point: every mistake of the user ends in one line and exit code 2."""
    warnings.showwarning = _warning_printer()
    try:
        sys.exit(cli.main(arguments, prog_name="pdadmm-g", standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "pdadmm-g --help")
        sys.exit(0)
    except (InputError, click.UsageError) as error:
        message = error.format_message() if isinstance(error, click.UsageError) else str(error)
        click.echo(f"error: {' '.join(message.split())}", err=True)
        sys.exit(EXIT_INPUT)
    except click.ClickException as error:
        click.echo(f"error: {error.format_message()}", err=True)
        sys.exit(EXIT_INPUT)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"error: {where}{error.strerror or error}", err=True)
        sys.exit(EXIT_INPUT)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate" not in str(error) and "out of memory" not in str(error):
            raise
        click.echo("error: not enough memory: lower --hidden, --hops or --layers", err=True)
        sys.exit(EXIT_INPUT)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(EXIT_INTERRUPTED)


def _warning_printer() -> Callable[..., None]:
    """Shows each warning meant for users once, as one line."""
    shown = set()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, UserWarning) and str(message) not in shown:
            shown.add(str(message))
            click.echo(f"warning: {message}", err=True)

    return show


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command one option for every field of :class:`RunConfig`."""
    kinds = typing.get_type_hints(RunConfig)
    # Decorators apply from the last to the first.
    for item in sorted(fields(RunConfig), key=lambda item: item.name not in _FIRST)[::-1]:
        command = _settings_option(item, kinds[item.name])(command)
    return command


_FIRST = ("dataset", "data_root", "out", "seed")


def _settings_option(item: Field[Any], kind: Any) -> Callable[..., Any]:
    flag = "--" + item.name.replace("_", "-")
    help_text = item.metadata["help"]
    assert item.default is not MISSING
    if item.default is not None and "[default" not in help_text:
        default = str(item.default).lower() if isinstance(item.default, bool) else item.default
        help_text += f" [default: {default}]"
    if kind in (bool, bool | None):
        return click.option(f"{flag}/--no-{flag[2:]}", item.name, default=None, help=help_text)
    return click.option(flag, item.name, default=None, metavar=_metavar(kind), help=help_text)


def _metavar(kind: Any) -> str:
    arguments = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin is Literal:
        return "|".join(arguments)
    if origin is tuple:
        return f"{_metavar(arguments[0])},..."
    if origin in (types.UnionType, typing.Union):
        return "|".join(_metavar(option) for option in arguments if option is not type(None))
    return {int: "N", float: "X", str: "TEXT"}[kind]


@cli.command()
@click.option("--nodes", default=2000, show_default=True, help="training nodes")
@click.option("--features", default=2000, show_default=True, help="augmented features of a node")
@click.option("--hidden", default=1000, show_default=True, help="neurons per hidden layer")
@click.option("--layers", default=10, show_default=True, help="number of layers")
@click.option("--classes", default=10, show_default=True, help="number of classes")
@click.option("--device", default="cpu", show_default=True, help="torch device: cpu, cuda, ...")
@click.option(
    "--threads", type=int, default=lambda: os.cpu_count() or 1, metavar="N", help="compute threads [default: all]"
)
@click.option("--precision", type=click.Choice(["fp32", "tf32", "bf16"]), default="fp32", show_default=True)
@click.option(
    "--compile/--no-compile", default=None, help="fuse the elementwise work [default: on a GPU, where it pays]"
)
@click.option("--methods", metavar="NAME,...", help="only these: floor,linearized,exact,quantized,adam")
@click.option("--seconds", default=5.0, show_default=True, help="time for each method, after warming up")
@click.option("--out", metavar="FILE", help="write the figures to this JSON file")
def bench(methods: str | None, seconds: float, out: str | None, **size: Any) -> None:
    """Measure one epoch on this machine, as a multiple of the bare matrix products in it.

    \b
    pdadmm-g bench                                         10 layers of 1000 neurons, 2000 nodes
    pdadmm-g bench --nodes 140 --features 5732 --hidden 100          Cora's size
    pdadmm-g bench --device cuda --precision tf32 --nodes 44625 --hidden 4000 --layers 16
    """
    import json

    from .bench import METHODS, Size
    from .bench import bench as run
    from .estimator import checked_device
    from .experiments.cells import provenance
    from .runs import write_atomically

    names = tuple(methods.split(",")) if methods else METHODS
    for name in names:
        if name not in METHODS:
            raise InputError(f"--methods must be among {', '.join(METHODS)}, got {name}")
    for name in ("nodes", "features", "hidden", "classes", "threads"):
        if size[name] < 1:
            raise InputError(f"--{name} must be at least 1, got {size[name]}")
    if size["layers"] < 2:
        raise InputError(f"--layers must be at least 2, got {size['layers']}")
    checked_device(size["device"])
    rows = []
    click.echo(f"{'':<12}{'ms':>10}{'x floor':>9}{'peak GiB':>10}")
    for row in run(Size(**size), names, seconds):
        rows.append(row)
        ratio = "-" if row["x_floor"] is None else f"{row['x_floor']:.2f}"
        click.echo(f"{row['method']:<12}{row['ms']:>10.2f}{ratio:>9}{row['peak_gib']:>10.2f}")
    if out is not None:
        command = "pdadmm-g bench " + " ".join(f"--{name} {value}" for name, value in size.items() if value is not None)
        write_atomically(Path(out), json.dumps({**provenance(command), "rows": rows}, indent=1) + "\n")


@cli.command()
@click.option("--config", "config_file", metavar="FILE", help="YAML file of settings; options on the command line win")
@click.option("--overwrite", is_flag=True, help="replace a finished run in the run folder")
@click.option("--resume", is_flag=True, help="go on from the run folder's last checkpoint")
@settings_options
def train(config_file: str | None, overwrite: bool, resume: bool, **options: Any) -> int:
    """Train a model and write a run folder.

    The folder holds config.yaml, metrics.jsonl (one line per epoch), summary.json and model.safetensors.

    \b
    pdadmm-g train                                              the embedded digits
    pdadmm-g train --dataset cora --data-root raw --layers 2
    pdadmm-g train --dataset mygraph.npz --quantize pq --bits 4
    pdadmm-g train --config run.yaml --seed 1 --out runs/second
    pdadmm-g train --dataset cora --workers 4 --checkpoint-every 10
    torchrun --nnodes 2 --nproc-per-node 4 -m pdadmm_g train --dataset cora
    """
    overrides = {name: value for name, value in options.items() if value is not None}
    under_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    if under_torchrun:
        overrides["workers"] = os.environ["WORLD_SIZE"]
    config = RunConfig.load(config_file, overrides).resolved()

    from .engine.launch import WorkerLostError, join
    from .engine.team import PeerLostError
    from .progress import Progress
    from .runs import join_run, train_run
    from .status import Status

    team = join(config.device, config.timeout, watch=True) if under_torchrun else None
    try:
        if team is not None and team.rank > 0:
            went_well = join_run(config, team)
            team.leave()
            return 0 if went_well else EXIT_INPUT
        with Progress(config) as progress:
            # After a restart by torchrun, going on is what is wanted.
            resume = resume or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
            summary = train_run(config, overwrite=overwrite, resume=resume, on_epoch=progress.update, team=team)
        if team is not None:
            team.leave()
    except (WorkerLostError, PeerLostError) as error:
        message = team.peer_lost(error) if team is not None and isinstance(error, PeerLostError) else str(error)
        click.echo(f"error: {Status.PEER_LOST.name}: {message}. {Status.PEER_LOST.advice}", err=True)
        if team is not None:
            sys.stderr.flush()
            os._exit(EXIT_PEER_LOST)  # not through exit handlers, which would wait for the lost worker
        return EXIT_PEER_LOST
    _print_summary(summary, config.out)
    status = Status[summary["status"]]
    if status is Status.INTERRUPTED:
        return EXIT_INTERRUPTED
    return EXIT_FAILURE if status.is_failure else 0


def _print_summary(summary: dict[str, Any], out: str | None) -> None:
    click.echo(f"{summary['status']}: {summary['advice']}")
    click.echo(
        f"accuracy: train {_percent(summary['train_accuracy'])}, validation {_percent(summary['val_accuracy'])}, "
        f"test {_percent(summary['test_accuracy'])}"
    )
    click.echo(
        f"{summary['layers']} layers, {summary['parameters']:,} parameters, {summary['epochs']} epochs in "
        f"{summary['seconds']:.1f} s; written to {out}"
    )
    if len(summary["workers"]) > 1:
        layers = "+".join(str(worker["layers"]) for worker in summary["workers"])
        click.echo(f"{len(summary['workers'])} workers with {layers} layers sent {summary['bytes_sent']:,} bytes")


def _percent(accuracy: float | None) -> str:
    return "-" if accuracy is None else f"{accuracy:.3f}"


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
    from .datasets import load_dataset
    from .runs import RunFolder

    folder = RunFolder(run)
    classifier = folder.classifier()
    if dataset is None:
        config = folder.config()
        dataset, data_root = config.dataset, data_root or config.data_root
    return classifier, load_dataset(dataset, data_root)


@cli.command()
@data_options
def evaluate(run: str, dataset: str | None, data_root: str | None) -> None:
    """Print the accuracy of the run folder RUN on the training, validation and test nodes."""
    from .runs import accuracies

    classifier, data = _load_run(run, dataset, data_root)
    if data.y is None:
        raise InputError("the data set has no labels 'y' to evaluate against; use 'pdadmm-g predict'")
    results = accuracies(classifier, data)
    if not any(accuracy is not None for accuracy in results.values()):
        results["accuracy"] = classifier.score(data, data.y >= 0)
    for name, accuracy in results.items():
        click.echo(f"{name.replace('_', ' ')}: {_percent(accuracy)}")


@cli.command()
@data_options
@click.option("--out", required=True, metavar="FILE", help="CSV file to write")
def predict(run: str, dataset: str | None, data_root: str | None, out: str) -> None:
    """Write node, predicted label and its probability for every node, with the model of the run folder RUN."""
    from .runs import write_atomically

    classifier, data = _load_run(run, dataset, data_root)
    probabilities = classifier.predict_proba(data)
    best = probabilities.argmax(1)
    labels, confidence = classifier.classes_[best], probabilities.max(1)
    rows = [f"{node},{label},{c:.6f}" for node, (label, c) in enumerate(zip(labels, confidence, strict=True))]
    write_atomically(Path(out), "\n".join(["node,label,probability", *rows]) + "\n")
    click.echo(f"{len(rows)} predictions written to {out}")


@cli.command()
@click.option("--data-root", metavar="TEXT", help="folder of raw benchmark files [default: $PDADMM_G_DATA]")
def datasets(data_root: str | None) -> None:
    """List the data sets known by name, and whether their raw files are under the data root."""
    from .datasets import BENCHMARKS, raw_files_present

    click.echo(f"{'name':<18}{'nodes':>8}{'features':>10}{'classes':>9}  raw files")
    click.echo(f"{'digits':<18}{1797:>8}{64:>10}{10:>9}  embedded")
    for name, benchmark in BENCHMARKS.items():
        state = "found" if raw_files_present(benchmark, data_root) else f"not found: {benchmark.folder}/"
        click.echo(f"{name:<18}{benchmark.nodes:>8}{benchmark.features:>10}{benchmark.classes:>9}  {state}")


EXPERIMENTS = (
    "table-100", "table-500", "table-best", "convergence", "depth", "speedup-layers", "speedup-workers",
    "communication", "homophily", "stand-ins",
)  # fmt: skip


@cli.command()
@click.argument("experiment", type=click.Choice([*EXPERIMENTS, "all"]))
@click.option(
    "--out", default="results", show_default=True, metavar="DIR", help="folder with one folder per experiment"
)
@click.option("--data-root", metavar="TEXT", help="folder of raw benchmark files [default: $PDADMM_G_DATA]")
@click.option("--datasets", metavar="NAME,...", help="only these data sets")
@click.option("--seeds", metavar="N,...", help="these seeds [default: 0,100,200,300,400]")
@click.option("--workers", default=1, show_default=True, metavar="N", help="processes; the most workers for speedup-*")
@click.option("--device", default="cpu", show_default=True, help="torch device of the tables: cpu, cuda, ...")
@click.option("--quick", is_flag=True, help="one seed, three small data sets: minutes instead of hours")
def reproduce(
    experiment: str,
    out: str,
    data_root: str | None,
    datasets: str | None,
    seeds: str | None,
    workers: int,
    device: str,
    quick: bool,
) -> None:
    """Run an experiment of the paper and show our figures beside the paper's.

    Results go to OUT/EXPERIMENT: one JSON file per cell, table.md and PNG figures. A cell that is there is not run
    again: call the command once more to go on after an interruption. stand-ins trains on the real graphs of Flickr and
    ogbn-arxiv with made-up features.

    \b
    pdadmm-g reproduce table-100 --quick --workers 2 --data-root raw
    pdadmm-g reproduce table-best --datasets cora,pubmed --data-root raw
    pdadmm-g reproduce speedup-workers --workers 16
    """
    from .config import coerce
    from .estimator import checked_device
    from .experiments import Request
    from .experiments import reproduce as run_experiment

    checked_device(device)
    names = coerce("datasets", datasets, tuple[str, ...] | None)
    root = data_root or os.environ.get("PDADMM_G_DATA")
    for name in EXPERIMENTS if experiment == "all" else (experiment,):
        options = [f"--datasets {datasets}"] * bool(datasets) + [f"--seeds {seeds}"] * bool(seeds)
        command = " ".join(["pdadmm-g reproduce", name, *options, *(["--quick"] if quick else [])])
        request = Request(
            folder=Path(out) / (f"{name}-quick" if quick else name),
            data_root=root,
            datasets=names,
            seeds=coerce("seeds", seeds, tuple[int, ...] | None),
            workers=workers,
            device=device,
            command=command,
            quick=quick,
        )
        click.echo(run_experiment(name, request, lambda row: click.echo(_row_line(row), err=True)))
        click.echo(f"written to {request.folder}")


def _row_line(row: dict[str, Any]) -> str:
    """A line of progress: what was run, and its main figure."""
    what = [str(row[key]) for key in ("dataset", "method", "algorithm", "quantized") if key in row]
    what += [f"{row[key]} {unit}" for key, unit in (("depth", "layers"), ("workers", "workers")) if key in row]
    figures = [f"{row[key]:.3f}" for key in ("mean", "test_accuracy", "seconds") if row.get(key) is not None]
    return "  ".join([*what, *figures])


@cli.command()
@click.option("--config", "config_file", metavar="FILE", help="YAML file of settings to start from")
@click.option("--budget", default=20, show_default=True, metavar="N", help="number of trials")
@settings_options
def tune(config_file: str | None, budget: int, **options: Any) -> None:
    """Search hyperparameters at random, judged on the validation nodes only; the test nodes are never looked at.

    Settings given on the command line or in the file stay as they are, the others of the search space are drawn. The
    best ones are written to OUT, as a file for 'pdadmm-g train --config'.

    \b
    pdadmm-g tune --dataset cora --data-root raw --budget 20 --out best.yaml
    pdadmm-g train --config best.yaml
    """
    overrides = {name: value for name, value in options.items() if value is not None}
    out = Path(str(overrides.pop("out", "best.yaml")))
    config = RunConfig.load(config_file, overrides)
    if budget < 1:
        raise InputError(f"budget must be at least 1, got {budget}")

    from .runs import write_atomically
    from .tune import search

    def show(trial: int, settings: dict[str, Any], accuracy: float, best: bool) -> None:
        text = ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
                         for name, value in settings.items())  # fmt: skip
        click.echo(f"trial {trial}/{budget}: validation {accuracy:.3f}{' (best so far)' if best else ''}: {text}")

    best = search(config, given=set(overrides), budget=budget, on_trial=show)
    write_atomically(out, best.to_yaml())
    click.echo(f"best settings written to {out}; next: pdadmm-g train --config {out}")


@cli.command()
@click.option("--out", default="runs/demo", show_default=True, metavar="DIR", help="folder for the three runs")
def demo(out: str) -> int:
    """A few seconds on real data: what the graph brings, and what 8-bit quantization costs."""
    from .demo import run_demo

    return 0 if run_demo(Path(out)) else EXIT_INTERRUPTED
