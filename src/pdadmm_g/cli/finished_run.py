"""What evaluate and predict share: the options that name a finished run and a data set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from .completion import DATASETS, words


def data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of the commands that apply a finished run to a data set."""
    for decorate in (
        click.argument("run", shell_complete=words((), then="dir")),
        click.option("--data-root", metavar="TEXT", help="folder of raw benchmark files [default: the run's]"),
        click.option(
            "--dataset",
            metavar="TEXT",
            help="apply the model to this data set, by name or an .npz or .pt file [default: the run's]",
            shell_complete=words(DATASETS, then="file"),
        ),
    ):
        command = decorate(command)
    return command


def load_run(run: str, dataset: str | None, data_root: str | None) -> tuple[Any, Any]:
    """The classifier of a run folder and the data set to use it on."""
    from ..data.datasets import load_dataset
    from ..runs.folder import RunFolder

    folder = RunFolder(run)
    classifier = folder.classifier()
    if dataset is None:
        config = folder.config()
        dataset, data_root = config.dataset, data_root or config.data_root
    return classifier, load_dataset(dataset, data_root)
