"""The page of an estimator that was fitted in Python."""

from __future__ import annotations

from pathlib import Path

from ..data.graph import Graph
from ..estimator import Estimator
from ..runs.fitted import save_run
from ..utils import check_folder, temporary_folder, write_atomically
from .collect import read_run
from .page import render


def write_report(classifier: Estimator, path: str | Path, data: Graph | None = None) -> None:
    """Write the page of its training, under the name of the file; with the scores on ``data`` where they are given."""
    path = Path(path)
    check_folder(path)
    with temporary_folder() as folder:
        save_run(classifier, folder, data)
        run = read_run(folder, path.stem)
    write_atomically(path, render([run | {"path": ""}]))
