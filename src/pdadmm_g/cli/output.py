"""What a command prints, and where: text for people, one JSON object for scripts, or nothing."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console


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
            click.echo(text, err=True)

    def error(self, text: str) -> None:
        """A line about what failed, printed in every mode."""
        click.echo(f"error: {text}", err=True)

    def result(self, value: dict[str, Any]) -> None:
        """The whole result, for scripts: call it once."""
        if self.json:
            click.echo(json.dumps(value))

    def content(self, text: str) -> None:
        """What would otherwise be a file, for a program that may stop to read when it has enough."""
        try:
            click.echo(text, nl=False)
        except BrokenPipeError:
            # What is still in the buffer goes nowhere, so that the interpreter does not fail on it when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def console(self) -> Console:
        """Where a progress bar goes."""
        from rich.console import Console

        return Console(stderr=True, quiet=self.quiet)


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--quiet`` and ``--json``, and pass it an :class:`Output` for them."""

    @click.option("-q", "--quiet", is_flag=True, help="print nothing but errors and warnings")
    @click.option("--json", "as_json", is_flag=True, help="print the result as one JSON object, and no text beside it")
    @functools.wraps(command)
    def with_output(*arguments: Any, quiet: bool, as_json: bool, **options: Any) -> Any:
        return command(*arguments, output=Output(quiet, as_json), **options)

    return with_output
