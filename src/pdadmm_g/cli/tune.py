"""The search for good settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..config import RunConfig
from ..errors import InputError
from .options import SettingsCommand, settings_options
from .output import Output, output_options


@click.command(cls=SettingsCommand, short_help="Search good settings at random.")
@click.option("--config", "config_file", metavar="FILE", help="YAML file of settings to start from")
@click.option("--budget", default=20, show_default=True, metavar="N", help="number of trials")
@settings_options
@click.option("--out", metavar="FILE", help="YAML file for the best settings [default: best.yaml]")
@output_options
def tune(config_file: str | None, budget: int, output: Output, **options: Any) -> None:
    """Search hyperparameters at random, judged on the validation nodes only; the test nodes are never looked at.

    The first trial has the settings as given. Those on the command line stay as they are, the others of the search
    space are drawn, also where the file has them. The best ones so far are written to OUT, as a file for
    'pdadmm-g train --config'.

    \b
    pdadmm-g tune --dataset cora --data-root raw --budget 20 --out best.yaml
    pdadmm-g train --config best.yaml
    """
    overrides = {name: value for name, value in options.items() if value is not None}
    out = Path(str(overrides.pop("out", "best.yaml")))
    config = RunConfig.load(config_file, overrides)
    if config.init is not None:
        raise InputError("init is for train: the networks of a search have different shapes")
    if budget < 1:
        raise InputError(f"budget must be at least 1, got {budget}")

    from ..experiments.tune import search
    from ..files import check_folder, write_atomically
    from ..training.progress import TimeLeft

    check_folder(out)
    time_left = TimeLeft()
    found: dict[str, Any] = {}

    def show(trial: int, settings: dict[str, Any], score: float, best: RunConfig | None) -> None:
        if best is not None:
            key = "val_accuracy" if best.settled().scoring == "accuracy" else "val_score"
            found.update({"trial": trial, key: score})
            write_atomically(out, best.to_yaml())
        text = ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
                         for name, value in settings.items())  # fmt: skip
        figures = f"validation {score:.3f}{' (best so far)' if best else ''}: {text}"
        output.progress(f"trial {trial}/{budget}: {figures}{time_left.after(trial, budget)}")

    search(config, given=set(overrides), budget=budget, on_trial=show)
    output.say(f"best settings written to {out}; next: pdadmm-g train --config {out}")
    output.result({**found, "trials": budget, "file": str(out)})
