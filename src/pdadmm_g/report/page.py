"""The page: template, style, script and the runs as JSON in one file; what it is made from lies in assets/."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.resources import files
from pathlib import Path
from string import Template

from .. import __version__
from ..estimator import Estimator
from ..graph.graph import Graph
from ..runs.run import save_run
from ..utils import check_folder, temporary_folder, write_atomically
from .collect import Run, read_run

#: Colours of the runs. Any two differ by 29 CIELAB units or more, also as seen with protanopia or deuteranopia (23 with
#: tritanopia), and each has a contrast of at least 3 to the background it is for.
LIGHT = ("#1799ea", "#b58813", "#4d29a2", "#16765b", "#7b3a0a", "#470f3a")
DARK = ("#3a80f1", "#edc40c", "#cab7fc", "#c4fcef", "#cc7b3e", "#f23290")

#: The script's pieces in the order in which they are joined: each builds on those before it, and the last runs it all.
SCRIPT = (
    "elements", "numbers", "scales", "runs", "rounds",
    "drawing", "curves", "timeline", "plan", "estimate", "classes", "confusion", "reliability", "importance", "times",
    "standalone", "figure", "overview", "facts", "configuration", "controls", "main",
)  # fmt: skip


def render(runs: Sequence[Run]) -> str:
    """The whole page. It loads nothing and runs no script but its own, which its security policy enforces."""
    script = joined_script()
    written = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return Template(_source("template.html")).substitute(
        title=html.escape("pdadmm-g: " + ", ".join(run["name"] for run in runs)),
        style=Template(_source("style.css")).substitute(light=_variables(LIGHT), dark=_variables(DARK)),
        script=script,
        # What the security policy calls the one script that may run.
        script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=embedded({"runs": runs, "written": written, "version": __version__, "colours": len(LIGHT)}),
    )


def write_report(estimator: Estimator, path: str | Path, data: Graph | None = None) -> None:
    """Write the page of its training, under the name of the file; with the scores on ``data`` where they are given."""
    path = Path(path)
    check_folder(path)
    with temporary_folder() as folder:
        save_run(estimator, folder, data)
        run = read_run(folder, path.stem)
    for name in ("out", "dataset"):  # the folder is gone, and Python does not know the other
        run["config"].pop(name, None)
    write_atomically(path, render([run | {"path": ""}]))


def joined_script() -> str:
    """The pieces as one script, inside a function: the page has no global names but the browser's."""
    pieces = "\n".join(_source(f"{name}.js") for name in SCRIPT)
    return f'"use strict";\n(() => {{\n{pieces}}})();\n'


def embedded(data: object) -> str:
    """JSON that stays data inside a script element, whatever text is in it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _source(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _variables(colours: Sequence[str]) -> str:
    return " ".join(f"--run-{place}: {colour};" for place, colour in enumerate(colours))
