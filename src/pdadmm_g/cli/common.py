"""What commands share: exit codes, output, an option for every setting, completion, finished runs, torchrun."""

from __future__ import annotations

import functools
import json
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import click
from click.shell_completion import CompletionItem

from ..config import GROUPS, KINDS, NODE_TABLES, RUN, RunConfig, alternatives, described, settings_where
from ..errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from ..engine.watchdog import WatchedTeam

#: Wrong input, numerical failure (the best model was kept), a worker lost, interrupted.
EXIT_INPUT, EXIT_FAILURE, EXIT_PEER_LOST, EXIT_INTERRUPTED = 2, 3, 4, 130
#: The data sets known by name, here so that completing them does not load torch.
DATASETS = (
    "digits", "cora", "pubmed", "citeseer", "amazon-computers", "amazon-photo", "coauthor-cs", "coauthor-physics",
    "flickr", "ogbn-arxiv",
)  # fmt: skip
#: Options of commands that are no settings and belong to the run folder.
RUN_OPTIONS = ("config_file", "overwrite", "resume")
#: The kinds of nodes, and what they are called.
PARTS = {"train": "train", "val": "validation", "test": "test"}
#: What is said where the figure of the test nodes is a dash.
NO_TEST = "no test nodes: mark some that neither train nor validate, in a column 'split' or test_mask"

#: What is said after training on all labels, where nothing validates any more.
BEFORE_REFIT = "validation score before training again on all labels: {:.3f}"

Command = Callable[..., Any]

# ------------------------------------------------------------------------------------------------------------- output


@dataclass(frozen=True)
class Output:
    """Results go to standard output, progress to standard error; errors and warnings are printed in every mode."""

    quiet: bool = False
    json: bool = False

    def say(self, text: str) -> None:
        """A line of the result, for people."""
        if not (self.quiet or self.json):
            click.echo(text)

    def progress(self, text: str) -> None:
        """A line about work under way."""
        if not self.quiet:
            try:
                click.echo(text, err=True)
            except BrokenPipeError:
                _nobody_reads()

    def result(self, value: dict[str, Any]) -> None:
        """The whole result, for scripts: call it once."""
        if self.json:
            click.echo(json.dumps(value))

    def console(self) -> Console:
        """Where a progress bar goes."""
        from rich.console import Console

        console = Console(stderr=True, quiet=self.quiet)
        console.on_broken_pipe = _nobody_reads  # type: ignore[method-assign]
        return console


def _nobody_reads() -> None:
    """Training goes on when nobody reads of it any more, and what is still buffered is no failure in the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def output_options(command: Command) -> Command:
    """Give a command ``--quiet`` and ``--json``, and pass it an :class:`Output` for them."""

    @click.option("-q", "--quiet", is_flag=True, help="print nothing but errors and warnings")
    @click.option("--json", "as_json", is_flag=True, help="print the result as one JSON object, and no text beside it")
    @functools.wraps(command)
    def with_output(*arguments: Any, quiet: bool, as_json: bool, **options: Any) -> Any:
        return command(*arguments, output=Output(quiet, as_json), **options)

    return with_output


def error(text: str) -> None:
    """A line about what is wrong, in every mode."""
    click.echo(f"error: {text}", err=True)


def figure(name: str, value: float | None) -> str:
    """A figure by its name, errors in the units of the data, all others shares; a dash where there is none."""
    if value is None:
        return "-"
    return f"{value:.4g}" if name in ("mean_absolute_error", "root_mean_squared_error") else f"{value:.3f}"


def expected(summary: dict[str, Any]) -> Iterator[str]:
    """How good the model of a run is expected to be on new nodes, a line for each figure."""
    if (found := summary.get("estimate")) is None:
        return
    on, nodes, figures = found["on"], found["nodes"], found["figures"]
    who = f"{nodes:,} validation nodes" if on == "validation" else f"{nodes:,} labelled nodes {on}"
    known = f"by {who}, of which the largest class has {found['largest_class']:.3f}"
    value, low, high = figures["accuracy"]
    chose = "corrected for having been used to choose the model"
    yield f"expected accuracy: {value:.3f}, 90% interval {low:.3f} to {high:.3f}, {known}; {chose}"
    if (summary.get("data") or {}).get("classes") == 2 and "roc_auc_ovr" in figures:
        value, low, high = figures["roc_auc_ovr"]
        yield f"expected AUROC: {value:.3f}, 90% interval {low:.3f} to {high:.3f}, by the same nodes"


# ----------------------------------------------------------------------------------------------------------- settings


class SettingsCommand(click.Command):
    """A command whose help shows the settings in their groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = {param.name: record for param in self.get_params(ctx) if (record := param.get_help_record(ctx))}
        for group in GROUPS:
            names = (*(RUN_OPTIONS if group == RUN else ()), *settings_where(RunConfig, group=group))
            with formatter.section(group):
                formatter.write_dl([options.pop(name) for name in names if name in options])
        with formatter.section("Other options"):
            formatter.write_dl(list(options.values()))


def settings_options(command: Command, without: Iterable[str] = ()) -> Command:
    """Give a command one option for every field of :class:`RunConfig` but these."""
    for item in (item for item in fields(RunConfig) if item.name not in without):
        flag, kind, text = "--" + item.name.replace("_", "-"), KINDS[item.name], described(item)
        if bool in alternatives(kind):
            option = click.option(f"{flag}/--no-{flag[2:]}", item.name, default=None, help=text)
        else:
            flags = (flag, "--nodes") if item.name == "dataset" else (flag,)
            known = DATASETS if item.name == "dataset" else _written(kind)
            option = click.option(
                *flags, item.name, default=None, metavar=_metavar(kind), help=text, shell_complete=words(known)
            )
        command = option(command)
    return command


def words(choices: Iterable[str] = ()) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Completes these words and the names of files."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        items = [CompletionItem(word) for word in choices if word.startswith(incomplete)]
        return [*items, CompletionItem(incomplete, type="file")]

    return complete


def _written(kind: Any) -> list[str]:
    """The words that a setting of this type may be."""
    return [word for each in alternatives(kind) if typing.get_origin(each) is Literal for word in typing.get_args(each)]


def _metavar(kind: Any) -> str:
    names = _written(kind)
    for each in alternatives(kind):
        origin, arguments = typing.get_origin(each), typing.get_args(each)
        if origin is tuple:
            names.insert(0, f"{_metavar(arguments[0])},...")
        elif origin is Mapping and arguments[0] is str:
            names.insert(0, "NAME=ROLE,...")
        # A mapping of labels is for files and Python, a function for Python alone: there is no way to write them here.
        elif origin not in (Literal, Mapping, Callable) and each is not types.NoneType:
            names.insert(0, {int: "N", float: "X", str: "TEXT"}[arguments[0] if origin is Annotated else each])
    return "|".join(names)


# ------------------------------------------------------------------------------------------------------ finished runs


def run_argument(command: Command) -> Command:
    """The folder of a run."""
    return click.argument("run", shell_complete=words())(command)


def data_root_option(command: Command) -> Command:
    """Where raw benchmark files are."""
    text = "folder of raw benchmark files [default: $PDADMM_G_DATA, or what the run had]"
    return click.option("--data-root", metavar="TEXT", help=text, shell_complete=words())(command)


def data_options(apply: Command) -> Command:
    """Options of the commands that apply a finished run to a data set, whose errors name that where it is given."""

    @functools.wraps(apply)
    def naming(*arguments: Any, dataset: str | None, **options: Any) -> Any:
        try:
            return apply(*arguments, dataset=dataset, **options)
        except InputError as error:
            if dataset is None or not str(error).startswith("data: "):
                raise
            raise InputError(f"{dataset}{str(error).removeprefix('data')}") from None

    edges = "table of edges that goes with a table of nodes"
    dataset = "apply the model to this data set, by name, a file, a table of nodes, or a folder of shards"
    shards = "processes that share the shards of a folder [default: 1, one shard after the other]"
    command = data_root_option(run_argument(naming))
    for name in ("target_column", "source_column", "id_column"):
        text = f"{RunConfig.__dataclass_fields__[name].metadata['help'].split(' [')[0]} [default: as in training]"
        command = click.option(f"--{name.replace('_', '-')}", metavar="TEXT", help=text)(command)
    text = RunConfig.__dataclass_fields__["skip_unknown"].metadata["help"]
    command = click.option("--skip-unknown", is_flag=True, help=text)(command)
    command = click.option("--edges", metavar="TEXT", help=edges, shell_complete=words())(command)
    command = click.option(
        "--dataset", "--nodes", "dataset", metavar="TEXT", help=f"{dataset} [default: the run's]",
        shell_complete=words(DATASETS),
    )(command)  # fmt: skip
    return click.option("--shards", type=click.IntRange(1, 10_000), default=1, metavar="N", help=shards)(command)


def sharded_dataset(run: str, dataset: str | None, shards: int) -> str | None:
    """The data set to use a run on, if that is a folder of shards."""
    from ..graph.shards import is_sharded
    from ..runs.folder import RunFolder

    if dataset is None and (RunFolder(run).path / "config.yaml").exists():
        dataset = RunFolder(run).known().dataset
    if dataset is not None and is_sharded(dataset):
        return dataset
    if shards > 1:
        raise InputError(f"shards = {shards} needs a folder of shards, which 'pdadmm-g shard' makes")
    return None


def apply_run(run: str, folder: str, shards: int, output: Output, out: str = "") -> dict[str, Any] | None:
    """What the model of a run says of a folder of shards; None in all processes but the first."""
    from ..runs.sharded import apply_shards

    model, say = str(Path(run) / "model.safetensors"), output.progress
    found: dict[str, Any] | None = as_team(
        shards, lambda team, size: apply_shards(model, folder, size, out=out, team=team, say=say)
    )
    return found


def load_run(
    run: str, dataset: str | None, edges: str | None, data_root: str | None, output: Output, **names: Any
) -> tuple[Any, Any]:
    """The estimator of a run folder and the data set to use it on, its own with the masks that it trained by.

    What was found in tables, such as edges that are left out, is said.
    """
    from ..graph.datasets import load_dataset, require_edge_table
    from ..graph.examples import with_parts
    from ..runs.folder import RunFolder

    folder = RunFolder(run)
    estimator = folder.classifier()
    config, tables = RunConfig(), dataset is not None and dataset.endswith(NODE_TABLES)
    if dataset is None:
        config = folder.known()
    # A graph that is here needs nothing of the settings, but for the columns of a table.
    elif (tables or not Path(dataset).exists()) and (folder.path / "config.yaml").exists():
        config = folder.config()
    data = load_dataset(
        dataset or config.dataset,
        data_root or config.data_root,
        edges=edges or (config.edges if dataset is None else None),
        target=estimator.config_.target,
        columns=estimator.columns_ or (),
        **(config.naming() if dataset is None or tables else {}) | {name: own for name, own in names.items() if own},
    )
    for note in data.get("notes", ()):
        output.progress(note)
    if dataset is None or data.get("ids") is not None:  # numbers of another graph are of other nodes
        data = with_parts(data, estimator.config_, estimator.nodes_)
    if dataset is None:
        return estimator, data
    if estimator.augmentation_ is not None and estimator.augmentation_.asks_neighbours:
        require_edge_table(data, dataset)
    return estimator, data


# ----------------------------------------------------------------------------------------------------------- torchrun


def torchrun_processes() -> int | None:
    """How many processes torchrun has started, this one among them; None if it has not."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None

    def number(name: str, limit: int) -> int:
        value = os.environ.get(name, "")
        if not value.isdecimal() or len(value) > 6 or int(value) >= limit:
            problem = f"TORCHELASTIC_RUN_ID is set, but {name} is {value[:60]!r}"
            raise InputError(f"{problem}: start with torchrun, or unset TORCHELASTIC_RUN_ID")
        return int(value)

    size = number("WORLD_SIZE", 10**6)
    for name, limit in (("RANK", size), ("LOCAL_RANK", size), ("MASTER_PORT", 1 << 16)):
        number(name, limit)
    if not os.environ.get("MASTER_ADDR"):
        problem = "TORCHELASTIC_RUN_ID is set, but MASTER_ADDR is not"
        raise InputError(f"{problem}: start with torchrun, or unset TORCHELASTIC_RUN_ID")
    return size


def end(code: int) -> NoReturn:
    """End a member of a team: not through exit handlers, which wait for others, or abort where groups are gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def as_team(shards: int, work: Callable[[WatchedTeam | None, int], Any]) -> Any:
    """Do work on shards as one of the processes of torchrun, if it started us, else by ourselves."""
    size = torchrun_processes()
    if size is None:
        return work(None, shards)

    from ..engine.launch import member

    with member("cpu", 60.0, size, watch=True, remedy="; start again with the same command") as team:
        result = work(team, size)
    return result
