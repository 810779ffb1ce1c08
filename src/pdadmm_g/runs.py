"""A run folder: config.yaml, metrics.jsonl, summary.json and model.safetensors."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

import torch
from torch_geometric.data import Data

from . import __version__
from .config import RunConfig
from .datasets import MASKS, check_training, load_dataset
from .errors import InputError
from .estimator import GAMLPClassifier
from .training import Record

FILES = ("summary.json", "model.safetensors", "metrics.jsonl", "config.yaml")


class RunFolder:
    """A folder that is created when the first epoch ends and is finished once it holds ``summary.json``.

    So a run that fails on its input leaves nothing behind, and an old one is replaced only by one that trains.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._metrics: IO[str] | None = None

    @property
    def finished(self) -> bool:
        """Does it hold a complete run?"""
        return (self.path / "summary.json").exists()

    def start(self, config: RunConfig) -> None:
        """Make the folder, remove an earlier run's files and write the configuration."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for name in FILES:
                (self.path / name).unlink(missing_ok=True)
            (self.path / "config.yaml").write_text(config.to_yaml(), encoding="utf-8")
            self._metrics = (self.path / "metrics.jsonl").open("w", encoding="utf-8")
        except OSError as error:
            raise InputError(f"{self.path}: cannot write the run folder: {error.strerror}") from None

    def append(self, record: Record) -> None:
        """One line of metrics, readable by others at once."""
        assert self._metrics is not None
        print(json.dumps(record), file=self._metrics, flush=True)

    def finish(self, classifier: GAMLPClassifier, summary: dict[str, Any]) -> None:
        """Write the model, then the summary that marks the run as finished."""
        assert self._metrics is not None
        self._metrics.close()
        classifier.save(self.path / "model.safetensors")
        write_atomically(self.path / "summary.json", json.dumps(summary, indent=2) + "\n")

    def config(self) -> RunConfig:
        """The configuration that the run was made with."""
        return RunConfig.load(self.path / "config.yaml")

    def classifier(self) -> GAMLPClassifier:
        """The trained estimator."""
        if not self.path.is_dir():
            raise InputError(f"{self.path}: no such run folder")
        return GAMLPClassifier.load(self.path / "model.safetensors")


def train_run(
    config: RunConfig, *, overwrite: bool = False, on_epoch: Callable[[Record], None] | None = None
) -> dict[str, Any]:
    """Load the data, train, write the run folder; return the summary."""
    config = config.resolved()
    assert config.out is not None
    folder = RunFolder(config.out)
    if folder.finished and not overwrite:
        raise InputError(f"{folder.path}: already holds a finished run; choose another --out or add --overwrite")
    data = load_dataset(config.dataset, config.data_root)
    check_training(data, culprit=config.dataset)

    started = False

    def record_epoch(record: Record) -> None:
        nonlocal started
        if not started:
            folder.start(config)
            started = True
        folder.append(record)
        if on_epoch is not None:
            on_epoch(record)

    classifier = GAMLPClassifier(**config.model_settings(), random_state=config.seed)
    classifier.fit(data, on_epoch=record_epoch)
    if not started:  # interrupted in the very first epoch
        folder.start(config)
    summary = summarize(classifier, data, config)
    folder.finish(classifier, summary)
    return summary


def summarize(classifier: GAMLPClassifier, data: Data, config: RunConfig) -> dict[str, Any]:
    """The content of summary.json."""
    return {
        "status": classifier.status_.name,
        "advice": classifier.status_.advice,
        **accuracies(classifier, data),
        "dataset": config.dataset,
        "seed": config.seed,
        "layers": len(classifier.model_.linears),
        "parameters": sum(parameter.numel() for parameter in classifier.model_.parameters()),
        "epochs": len(classifier.history_),
        "seconds": classifier.seconds_,
        "versions": {
            "pdadmm_g": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def accuracies(classifier: GAMLPClassifier, data: Data) -> dict[str, float | None]:
    """Accuracy on each of the three masks, None where the data set has none."""
    result: dict[str, float | None] = {}
    for mask in MASKS:
        name = mask.replace("_mask", "_accuracy")
        present = mask in data and bool(data[mask].any())
        result[name] = classifier.score(data, data[mask]) if present else None
    return result


def write_atomically(path: Path, text: str) -> None:
    """Write a whole file or nothing: under a temporary name, then renamed."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror}") from None
