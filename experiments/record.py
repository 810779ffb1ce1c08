"""The record of a measurement: its figures, and where they come from."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pdadmm_g.files import write_atomically
from pdadmm_g.hardware import provenance

#: Where files are is a matter of each machine: recorded as a word in their place, or not at all.
PLACES = {"--out": None, "--data-root": None, "--map": None, "--disk": "FOLDER", "--folder": "FOLDER"}


def command_line(module: str, arguments: Iterable[str]) -> str:
    """The command that makes the same figures again."""
    words = ["python", "-m", module]
    rest = iter(arguments)
    for argument in rest:
        name, _, value = argument.partition("=")
        if name not in PLACES:
            words.append(argument)
            continue
        if not value:
            next(rest)
        if PLACES[name]:
            words += [name, str(PLACES[name])]
    return shlex.join(words)


def write(out: Path | None, figures: dict[str, Any]) -> None:
    """Write the figures of a script with the command, date, hardware and versions, if they are wanted in a file."""
    if out is not None:
        module = f"benchmarks.{Path(sys.argv[0]).stem}"
        out.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**provenance(command_line(module, sys.argv[1:])), **figures}, indent=1)
        write_atomically(out, text + "\n")
