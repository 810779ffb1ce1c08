"""All targets by name. A target makes the case of a generator in an empty folder, which is also the current one."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from .commands import cli
from .graphs import fit, graph, npz, pt
from .objects import objects, weights
from .runs import checkpoint, model, run_folder
from .settings import settings, yaml_file
from .tables import graphml, shards, tables

Target = Callable[[random.Random, Path], None]

TARGETS: dict[str, Target] = {
    "settings": settings, "npz": npz, "yaml": yaml_file, "model": model, "graph": graph, "pt": pt, "cli": cli,
    "checkpoint": checkpoint, "run": run_folder, "fit": fit, "tables": tables, "graphml": graphml, "objects": objects,
    "shards": shards, "weights": weights,
}  # fmt: skip
#: Targets that only read: a refusal must leave the folder as it was.
READERS = ("npz", "pt", "model", "yaml", "settings", "run", "tables", "graphml", "shards")
