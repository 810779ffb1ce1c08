"""What commands share: exit codes, output, an option for every setting, completion, finished runs, torchrun."""

from __future__ import annotations

import functools
import json
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import click
from click.shell_completion import CompletionItem

from ..config import GROUPS, KINDS, RUN, RunConfig, alternatives, described, settings_where
from ..errors import InputError, naming

if TYPE_CHECKING:
    from rich.console import Console


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
    named = {"accuracy": f"{known}; corrected for having been used to choose the model"}
    if (summary.get("data") or {}).get("classes") == 2:
        named["roc_auc_ovr"] = "by the same nodes"
    for name in filter(figures.get, named):
        value, low, high = figures[name]
        title = "AUROC" if name == "roc_auc_ovr" else name
        yield f"expected {title}: {value:.3f}, 90% interval {low:.3f} to {high:.3f}, {named[name]}"


# ----------------------------------------------------------------------------------------------------------- settings


class SettingsCommand(click.Command):
    """A command whose help shows the settings in their groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = {param.name: record for param in self.get_params(ctx) if (record := param.get_help_record(ctx))}
        groups = {group: settings_where(RunConfig, group=group) for group in GROUPS}
        groups[RUN] = (*RUN_OPTIONS, *groups[RUN])
        grouped = {name for names in groups.values() for name in names}
        groups["Other options"] = tuple(name for name in options if name not in grouped)
        for group, names in groups.items():
            with formatter.section(group):
                formatter.write_dl([options[name] for name in names if name in options])


def settings_options(command: Command, without: Iterable[str] = ()) -> Command:
    """Give a command one option for every field of :class:`RunConfig` but these."""
    for item in (item for item in fields(RunConfig) if item.name not in without):
        name, kind = item.name, KINDS[item.name]
        flags = [f"--{name.replace('_', '-')}"]
        more: dict[str, Any] = {}
        if bool in alternatives(kind):
            flags = [f"{flags[0]}/--no-{flags[0][2:]}"]
        else:
            flags += ["--nodes"] if name == "dataset" else []
            known = DATASETS if name == "dataset" else _written(kind)
            more = {"metavar": _metavar(kind), "shell_complete": words(known)}
        command = click.option(*flags, name, default=None, help=described(item), **more)(command)
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


def _text_option(*names: str, help: str, choices: Iterable[str] = ()) -> Callable[[Command], Command]:
    return click.option(*names, metavar="TEXT", help=help, shell_complete=words(choices))


#: The folder of a run.
run_argument = click.argument("run", shell_complete=words())
#: Where raw benchmark files are.
data_root_option = _text_option(
    "--data-root", help="folder of raw benchmark files [default: $PDADMM_G_DATA, or what the run had]"
)


def data_options(apply: Command) -> Command:
    """Options of the commands that apply a finished run to a data set, whose errors name that where it is given."""

    @functools.wraps(apply)
    def applied(*arguments: Any, dataset: str | None, **options: Any) -> Any:
        with naming(dataset):
            return apply(*arguments, dataset=dataset, **options)

    about = {item.name: str(item.metadata["help"]).split(" [")[0] for item in fields(RunConfig)}
    dataset = "apply the model to this data set, by name, a file, a table of nodes, or a folder of shards"
    shards = "processes that share the shards of a folder [default: 1, one shard after the other]"
    options: tuple[Callable[[Command], Command], ...] = (
        click.option("--shards", type=click.IntRange(1, 10_000), default=1, metavar="N", help=shards),
        _text_option("--dataset", "--nodes", "dataset", help=f"{dataset} [default: the run's]", choices=DATASETS),
        _text_option("--edges", help="table of edges that goes with a table of nodes"),
        click.option("--skip-unknown", is_flag=True, help=about["skip_unknown"]),
        *(
            _text_option(f"--{name.replace('_', '-')}", help=f"{about[name]} [default: as in training]")
            for name in ("id_column", "source_column", "target_column")
        ),
        data_root_option,
        run_argument,
    )
    command: Command = applied
    for option in reversed(options):
        command = option(command)
    return command


def applied(
    work: str, output: Output, *, run: str, dataset: str | None, shards: int, **arguments: Any
) -> dict[str, Any] | None:
    """What a function of :mod:`~pdadmm_g.runs.apply` makes of a run and of data; None on all members but the first."""
    from ..engine.launch import member
    from ..runs import apply

    call = functools.partial(apply.apply, getattr(apply, work), run, dataset, say=output.progress)
    size = torchrun_processes()
    if size is None:
        return call(shards, **arguments)
    with member("cpu", 60.0, size, watch=True, remedy="; start again with the same command") as team:
        found = call(1, team=team, **arguments)
    return found if team.rank == 0 else None


# ----------------------------------------------------------------------------------------------------------- torchrun


def torchrun_processes() -> int | None:
    """How many processes torchrun has started, this one among them; None if it has not."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        value = os.environ.get(name, "")
        if not value or (name != "MASTER_ADDR" and not re.fullmatch(r"\d{1,6}", value)):
            problem = f"TORCHELASTIC_RUN_ID is set, but {name} is {value[:60]!r}"
            raise InputError(f"{problem}: start with torchrun, or unset TORCHELASTIC_RUN_ID")
    return int(os.environ["WORLD_SIZE"])


def end(code: int) -> NoReturn:
    """End a member of a team: not through exit handlers, which wait for others, or abort where groups are gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
