"""The ``pdadmm-g`` command. Heavy imports happen inside the commands, so that ``--help`` is instant."""

from __future__ import annotations

import os
import signal
import sys
import threading
import types
import warnings
from typing import Any

import click

from ..errors import InputError, is_lack_of_memory
from ..status import Status
from .common import EXIT_INPUT, EXIT_INTERRUPTED, EXIT_PEER_LOST, error
from .compare import compare
from .data import datasets, shard
from .demo import demo
from .doctor import doctor
from .finished import evaluate, explain, export, predict, report
from .train import train


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="pdadmm-g")
def cli() -> None:
    """Train deep graph-augmented MLPs without backpropagation, layer by layer (pdADMM-G, pdADMM-G-Q).

    \b
    pdadmm-g train --dataset cora --data-root raw     train, write runs/cora-0/
    pdadmm-g evaluate runs/cora-0                     accuracy on the three splits
    pdadmm-g predict runs/cora-0 --out preds.csv      a label for every node
    pdadmm-g explain runs/cora-0                      which columns and neighbours decide
    pdadmm-g compare --nodes n.csv --edges e.csv      beside scikit-learn and graph methods
    pdadmm-g export runs/cora-0 --format onnx         the model for other programs
    pdadmm-g shard graph/ --shards 8 --out graph-8    a large graph in parts
    pdadmm-g doctor                                   check this installation
    pdadmm-g COMMAND --help                           every option, its default and examples

    Exit codes: 0 success; 2 wrong input, one line says what; 3 numerical failure, the best model was kept, or a failed
    check of doctor; 4 a worker was lost; 130 interrupted.
    """


for command in (train, evaluate, predict, explain, compare, report, export, shard, datasets, doctor, demo):
    cli.add_command(command)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: every mistake of the user ends in one line and exit code 2."""
    shown, heard = set(), []

    def warn(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        """Each warning meant for users once, as one line."""
        if issubclass(category, UserWarning) and str(message) not in shown:
            shown.add(str(message))
            click.echo(f"warning: {message}", err=True)

    def hear(number: int, frame: types.FrameType | None) -> None:
        heard.append(number)
        signal.default_int_handler(number, frame)

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        # SIGTERM is heard like SIGINT; not under torchrun, whose agent ends all of its processes with it.
        if "TORCHELASTIC_RUN_ID" not in os.environ:
            before[signal.SIGTERM] = signal.signal(signal.SIGTERM, hear)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            before[signal.SIGINT] = signal.signal(signal.SIGINT, hear)
    warnings.showwarning = warn
    try:
        _run(sys.argv[1:] if arguments is None else arguments)
    except Exception:
        if not heard:
            raise
        # An interrupt amid an import leaves a library half loaded, which may then fail in any way.
        click.echo("interrupted", err=True)
        sys.exit(EXIT_INTERRUPTED)
    finally:
        for signal_number, handler in before.items():
            signal.signal(signal_number, handler)


def _run(arguments: list[str]) -> None:
    try:
        sys.exit(cli.main(arguments, prog_name="pdadmm-g", standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as reason:
        click.echo(reason.format_message())
        sys.exit(0)
    except (click.Abort, KeyboardInterrupt):  # the former is a RuntimeError
        click.echo("interrupted", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except click.ClickException as reason:
        error(" ".join(reason.format_message().split()))
    except InputError as reason:
        error(str(reason))
    except OSError as reason:
        error(f"{reason.filename}: {reason.strerror}" if reason.filename else str(reason.strerror or reason))
    except (MemoryError, RuntimeError) as reason:
        from ..engine.watchdog import WorkerLostError  # not before: it takes torch

        if isinstance(reason, WorkerLostError):  # train tells of its own, and how to go on
            error(f"{Status.PEER_LOST.name}: {reason}; start again with the same command")
            sys.exit(EXIT_PEER_LOST)
        if not is_lack_of_memory(reason):
            raise
        error("not enough memory" + ": lower --hidden, --hops or --layers" * ("train" in arguments))
    sys.exit(EXIT_INPUT)
