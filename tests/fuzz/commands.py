"""Target: command lines."""

from __future__ import annotations

import contextlib
import io
import random
import runpy
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from .limits import Violation
from .mutations import TEXTS, any_value
from .settings import setting_names
from .valid import valid_graph


def cli(rng: random.Random, folder: Path) -> None:
    """Command lines. Those that would train do so on a tiny graph for a few epochs, or on nothing."""
    torch.save(valid_graph(), folder / "graph.pt")
    name = rng.choice(("train", "train", "train", "evaluate", "predict", "datasets", "report", "export", "x"))
    arguments = [name]
    for _ in range(rng.randrange(5)):
        option = rng.choice([*setting_names(), "config", "resume", "overwrite", "help", "nonsense"])
        if option in ("workers", "device", "epochs", "layers", "hidden", "hops", "threads", "precision"):
            continue  # may be valid, and too much for a case
        arguments.append("--" + option.replace("_", "-"))
        if rng.random() < 0.9:
            value = any_value(rng)
            arguments.append(str(value) if rng.random() < 0.8 else rng.choice(TEXTS))
    if name == "train":
        arguments += ["--layers", "2", "--hidden", "2", "--epochs", "2", "--augment", "none", "--weight-decay", "0.1"]
        arguments += ["--dataset", rng.choice(("graph.pt", "graph.pt", "nothing.npz", ".", "cora.npz", "\x00.npz"))]
    if rng.random() < 0.3:
        rng.shuffle(arguments)
    if rng.random() < 0.1:
        arguments.append(rng.choice(TEXTS))
    code = command(arguments)
    if code == 2 and sorted(path.name for path in folder.iterdir()) != ["graph.pt"]:
        raise Violation(f"refused, but wrote {sorted(path.name for path in folder.iterdir())}: {arguments}")


def command(arguments: list[str]) -> int:
    """Run the command as ``python -m pdadmm_g`` does; its exit code, if its manners are as they should be.

    In this process, since another one would need seconds to import torch.
    """
    err = io.StringIO()
    shown, given = warnings.showwarning, sys.argv
    try:
        sys.argv = ["pdadmm-g", *arguments]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
            runpy.run_module("pdadmm_g", run_name="__main__")
        code: Any = "none"
    except SystemExit as end:
        code = end.code or 0
    finally:
        warnings.showwarning, sys.argv = shown, given
    errors = [line for line in err.getvalue().splitlines() if line.startswith("error:")]
    if code not in (0, 2, 3) or (code == 2) != (len(errors) == 1):
        raise Violation(f"exit code {code} with {len(errors)} error lines: {arguments}")
    if "Traceback" in err.getvalue():
        raise Violation(f"a traceback was printed: {arguments}")
    return int(code)
