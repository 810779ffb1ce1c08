"""One command-line option for every setting of a run."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, Literal

import click

from ..config import RunConfig


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
