"""One command-line option for every setting of a run."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, Literal

import click

from ..config import RunConfig
from .completion import DATASETS, words

#: The options of a command with all settings, as its help groups them; others come last.
SECTIONS = {
    "Data and run folder": (
        "config_file", "dataset", "data_root", "seed", "out", "overwrite", "resume", "checkpoint_every", "budget",
    ),
    "What the graph adds to the features": ("augment", "hops", "teleport", "row_normalize", "normalize"),
    "Network": ("layers", "hidden", "stages", "activation", "risk"),
    "Training": (
        "method", "epochs", "patience", "tolerance", "eval_every", "solver", "rho", "nu", "penalty", "weight_decay",
        "learning_rate",
    ),
    "Quantization (pdADMM-G-Q)": ("quantize", "bits", "levels"),
    "Workers and devices": ("workers", "threads", "plan", "wire", "timeout", "device", "precision", "compile"),
}  # fmt: skip


class SettingsCommand(click.Command):
    """A command whose help shows its options in :data:`SECTIONS`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = {param.name: record for param in self.get_params(ctx) if (record := param.get_help_record(ctx))}
        for title, names in SECTIONS.items():
            records = [options.pop(name) for name in names if name in options]
            if records:
                with formatter.section(title):
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
    help_text = item.metadata["help"]
    assert item.default is not MISSING
    if item.default is not None and "[default" not in help_text:
        default = str(item.default).lower() if isinstance(item.default, bool) else item.default
        help_text += f" [default: {default}]"
    if kind in (bool, bool | None):
        return click.option(f"{flag}/--no-{flag[2:]}", item.name, default=None, help=help_text)
    completer = _COMPLETERS.get(item.name) or words(_choices(kind))
    return click.option(flag, item.name, default=None, metavar=_metavar(kind), help=help_text, shell_complete=completer)


_COMPLETERS = {
    "dataset": words(DATASETS, then="file"),
    "data_root": words((), then="dir"),
    "out": words((), then="dir"),
    "device": words(("cpu", "cuda")),
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
        return "|".join(_metavar(option) for option in arguments if option is not type(None))
    return {int: "N", float: "X", str: "TEXT"}[kind]
