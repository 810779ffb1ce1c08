"""The ``pdadmm-g`` command. Heavy imports happen inside the commands, so that ``--help`` is instant."""

from __future__ import annotations

import signal
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from ..errors import InputError, is_lack_of_memory
from ..status import Status
from .completion import completion
from .datasets import datasets
from .demo import demo
from .doctor import doctor
from .evaluate import evaluate
from .exit_codes import EXIT_INPUT, EXIT_INTERRUPTED, EXIT_PEER_LOST
from .export import export
from .output import lasting_streams
from .predict import predict
from .report import report
from .shard import shard
from .torchrun import is_member
from .train import train


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="pdadmm-g")
def cli() -> None:
    """Train deep graph-augmented MLPs without backpropagation, layer by layer (pdADMM-G, pdADMM-G-Q).

    \b
    pdadmm-g train --dataset cora --data-root raw     train, write runs/cora-0/
    pdadmm-g evaluate runs/cora-0                     accuracy on the three splits
    pdadmm-g predict runs/cora-0 --out preds.csv      a label for every node
    pdadmm-g export runs/cora-0 --format onnx         the model for other programs
    pdadmm-g shard graph/ --shards 8 --out graph-8    a large graph in parts
    pdadmm-g doctor                                   check this installation
    pdadmm-g COMMAND --help                           every option, its default and examples

    Exit codes: 0 success; 2 wrong input, one line says what; 3 numerical failure, the best model was kept, or a failed
    check of doctor; 4 a worker was lost; 130 interrupted.
    """


def main(arguments: list[str] | None = None) -> None:
    """Entry point: every mistake of the user ends in one line and exit code 2."""
    warnings.showwarning = _warning_printer()
    with lasting_streams(), _interrupts() as heard:
        try:
            _run(arguments)
        except Exception:
            if not heard:
                raise
            # An interrupt amid an import leaves a library half loaded, which may then fail in any way.
            click.echo("interrupted", err=True)
            sys.exit(EXIT_INTERRUPTED)


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """SIGTERM is heard like SIGINT; gives the list of what was heard.

    Not under torchrun, whose agent ends all of its processes with it, and not where somebody else listens.
    """
    heard: list[int] = []

    def hear(number: int, frame: types.FrameType | None) -> None:
        heard.append(number)
        signal.default_int_handler(number, frame)

    numbers = [] if is_member() else [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        numbers.append(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    before = {number: signal.signal(number, hear) for number in numbers}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(arguments: list[str] | None) -> None:
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
    except (click.Abort, KeyboardInterrupt):  # the former is a RuntimeError
        click.echo("interrupted", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"error: {where}{error.strerror or error}", err=True)
        sys.exit(EXIT_INPUT)
    except (MemoryError, RuntimeError) as error:
        from ..engine.watchdog import WorkerLostError  # not before: it takes torch

        if isinstance(error, WorkerLostError):  # train tells of its own, and how to go on
            click.echo(f"error: {Status.PEER_LOST.name}: {error}; start again with the same command", err=True)
            sys.exit(EXIT_PEER_LOST)
        if not is_lack_of_memory(error):
            raise
        click.echo(f"error: not enough memory{_remedy(sys.argv[1:] if arguments is None else arguments)}", err=True)
        sys.exit(EXIT_INPUT)


def _remedy(arguments: list[str]) -> str:
    """The options by which the command may need less memory, if it has any."""
    own = {option for parameter in cli.commands[arguments[0]].params for option in parameter.opts}
    options = [option for option in ("--hidden", "--hops", "--layers") if option in own]
    return f": lower {' or '.join(options)}" if options else ""


def _warning_printer() -> Callable[..., None]:
    """Shows each warning meant for users once, as one line."""
    shown = set()

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, UserWarning) and str(message) not in shown:
            shown.add(str(message))
            click.echo(f"warning: {message}", err=True)

    return show


for command in (train, evaluate, predict, shard, demo, datasets, report, export, doctor, completion):
    cli.add_command(command)
