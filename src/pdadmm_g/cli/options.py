"""One command-line option for every setting of a run."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from typing import Any, Literal

import click

from ..config import GROUPS, RUN, RunConfig, described, settings_where
from .completion import DATASETS, words

#: Options of commands that are no settings and belong to the run folder.
RUN_OPTIONS = ("config_file", "overwrite", "resume", "budget")


class SettingsCommand(click.Command):
    """A command whose help shows the settings in their groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = {param.name: record for param in self.get_params(ctx) if (record := param.get_help_record(ctx))}
        for group in GROUPS:
            names = (*(RUN_OPTIONS if group == RUN else ()), *settings_where(RunConfig, group=group))
            records = [options.pop(name) for name in names if name in options]
            if records:
                with formatter.section(group):
                    formatter.write_dl(records)
        with formatter.section("Other options"):
            formatter.write_dl(list(options.values()))


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command one option for every field of :class:`RunConfig` that it does not have yet."""
    kinds = typing.get_type_hints(RunConfig)
    own = {option.name for option in getattr(command, "__click_params__", [])}
    for item in fields(RunConfig):
        if item.name not in own:
            command = _settings_option(item, kinds[item.name])(command)
    return command


def _settings_option(item: Field[Any], kind: Any) -> Callable[..., Any]:
    flag = "--" + item.name.replace("_", "-")
    help_text = described(item)
    if kind in (bool, bool | None):
        return click.option(f"{flag}/--no-{flag[2:]}", item.name, default=None, help=help_text)
    completer = _COMPLETERS.get(item.name) or words(_choices(kind))
    flags = (flag, "--nodes") if item.name == "dataset" else (flag,)
    return click.option(
        *flags, item.name, default=None, metavar=_metavar(kind), help=help_text, shell_complete=completer
    )


_COMPLETERS = {
    "dataset": words(DATASETS, then="file"),
    "data_root": words((), then="dir"),
    "edges": words((), then="file"),
    "out": words((), then="dir"),
    "init": words((), then="file"),
    "device": words(("auto", "cpu", "cuda")),
}


def _choices(kind: Any) -> tuple[str, ...]:
    """The words that a setting of this type takes, beside numbers."""
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        return arguments
    return tuple(word for argument in arguments for word in _choices(argument))


def _metavar(kind: Any) -> str:
    arguments = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin is Literal:
        return "|".join(arguments)
    if origin is tuple:
        return f"{_metavar(arguments[0])},..."
    if origin in (types.UnionType, typing.Union):
        # A mapping is for files and Python, a function for Python alone: there is no way to write them here.
        unwritten = (Mapping, Callable)
        written = [
            option for option in arguments if option is not type(None) and typing.get_origin(option) not in unwritten
        ]
        return "|".join(map(_metavar, written))
    return {int: "N", float: "X", str: "TEXT"}[kind]
