"""The command as the user gave it."""

from __future__ import annotations

import shlex
from typing import Any

import click
from click.core import ParameterSource

#: Where files are and what is printed: a matter of each machine, without a part in the figures.
_NOT_RECORDED = ("out", "data_root", "quiet", "as_json")


def command_line(**instead: Any) -> str:
    """The command as the user gave it, with other values ``instead`` of some, to be recorded beside its figures."""
    context = click.get_current_context()
    line = ["pdadmm-g", str(context.info_name)]
    for parameter in context.command.params:
        name = str(parameter.name)
        value = instead.get(name, context.params[name])
        if name in _NOT_RECORDED or context.get_parameter_source(name) is ParameterSource.DEFAULT:
            continue
        if isinstance(parameter, click.Option):
            line.append((parameter.opts if value is not False else parameter.secondary_opts)[-1])
        if not isinstance(value, bool):
            line.append(str(value))
    return shlex.join(line)
