"""What a command prints, and where: text for people, one JSON object for scripts, or nothing."""

from __future__ import annotations

import errno
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

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
        """What would otherwise be a file."""
        click.echo(text, nl=False)

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


class Lasting:
    """A stream that outlives its reader: from then on what is written goes nowhere, and the work goes on."""

    #: What a pipe says whose reader has gone, and a terminal that was closed.
    gone = (errno.EPIPE, errno.EIO)

    def __init__(self, stream: TextIO, *, whatever: bool) -> None:
        self._stream = stream
        self._whatever = whatever

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, if anybody listens."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._let_go(error)
            return len(text)

    def flush(self) -> None:
        """Flush, if anybody listens."""
        try:
            self._stream.flush()
        except OSError as error:
            self._let_go(error)

    def _let_go(self, error: OSError) -> None:
        if not self._whatever and error.errno not in self.gone:
            raise error
        # Also what is still in the buffer, so that the interpreter does not fail on it when it ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


@contextmanager
def lasting_streams() -> Iterator[None]:
    """Within it nothing fails because nobody reads what it prints.

    Results that find no room on a disk are an error nevertheless; progress is not worth one, whatever happens to it.
    """
    before = sys.stdout, sys.stderr
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None:
            setattr(sys, name, Lasting(stream, whatever=name == "stderr"))
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        sys.stdout, sys.stderr = before
