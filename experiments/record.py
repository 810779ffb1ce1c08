"""The record of a measurement: its figures, and where they come from."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

from pdadmm_g import __version__
from pdadmm_g.utils import write_atomically

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


def provenance(command: str) -> dict[str, Any]:
    """Where a result comes from."""
    import torch  # the names of the experiments are known without it

    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "command": command,
        "date": str(date.today()),
        "hardware": {
            "cpu": names[0] if names else platform.processor(),
            "cores": os.cpu_count(),
            **({"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}),
        },
        "versions": {"pdadmm_g": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }


def write(out: Path | None, figures: dict[str, Any]) -> None:
    """Write the figures of a script with the command, date, hardware and versions, if they are wanted in a file."""
    if out is not None:
        module = f"benchmarks.{Path(sys.argv[0]).stem}"
        out.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**provenance(command_line(module, sys.argv[1:])), **figures}, indent=1)
        write_atomically(out, text + "\n")
