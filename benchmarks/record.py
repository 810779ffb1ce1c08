"""The result file of a script: its figures, and where they come from."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from pdadmm_g.files import write_atomically
from pdadmm_g.hardware import provenance

#: Where files are is a matter of each machine: recorded as a word in their place, or not at all.
PLACES = {"--out": None, "--data-root": None, "--map": None, "--disk": "FOLDER", "--folder": "FOLDER"}


def command() -> str:
    """The command as it was given."""
    words = ["python", f"benchmarks/{Path(sys.argv[0]).name}"]
    arguments = iter(sys.argv[1:])
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name not in PLACES:
            words.append(argument)
            continue
        if not value:
            next(arguments)
        if PLACES[name]:
            words += [name, PLACES[name]]
    return shlex.join(words)


def write(out: Path | None, figures: dict[str, Any]) -> None:
    """Write the figures with the command, date, hardware and versions, if they are wanted in a file."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, json.dumps({**provenance(command()), **figures}, indent=1) + "\n")
