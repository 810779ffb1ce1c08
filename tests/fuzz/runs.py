"""Targets: model files, and the folders of runs that are resumed, evaluated or predicted with."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np

from pdadmm_g.config import RunConfig
from pdadmm_g.estimator import GAMLPClassifier
from pdadmm_g.runs.run import train_run

from .commands import command
from .limits import Violation
from .mutations import mutate_bytes, mutate_json, mutate_safetensors, odd_file
from .settings import any_yaml
from .valid import trained, unpack, valid_graph


def model(rng: random.Random, folder: Path) -> None:
    """Model files."""
    path = folder / "model.safetensors"
    if not odd_file(rng, path):
        path.write_bytes(mutate_safetensors(rng, trained()["run/model.safetensors"]))
    use_model(path)


def checkpoint(rng: random.Random, folder: Path) -> None:
    """Resuming from a run folder with one broken file."""
    unpack(folder, finished=False)
    config = RunConfig.load(folder / "run/config.yaml", {"out": str(folder / "run")})
    mutate_run(rng, rng.choice([path for path in (folder / "run").rglob("*") if path.is_file()]))
    summary = train_run(config, resume=True)
    if summary["epochs"] != 4 and summary["status"] not in ("NON_FINITE", "DIVERGED", "CONVERGED"):
        raise Violation(f"resumed to {summary['epochs']} epochs, {summary['status']}")


def run_folder(rng: random.Random, folder: Path) -> None:
    """evaluate and predict on a finished run with one broken file."""
    unpack(folder, finished=True)
    mutate_run(rng, rng.choice([path for path in (folder / "run").rglob("*") if path.is_file()]))
    if rng.random() < 0.5:
        command(["evaluate", "run"])
    else:
        command(["predict", "run", "--out", "predictions.csv"])


def use_model(path: Path) -> None:
    """Load a model file; if it loads, it predicts."""
    clf = GAMLPClassifier.load(path)
    probabilities = clf.predict_proba(valid_graph())
    if probabilities.shape != (12, len(clf.classes_)) or not np.isfinite(probabilities).all():
        raise Violation("a loaded model predicts nonsense")


def mutate_run(rng: random.Random, file: Path) -> None:
    """Break one file of a run folder."""
    content = file.read_bytes()
    file.unlink()
    if rng.random() < 0.1 or odd_file(rng, file):
        return
    if file.suffix == ".safetensors":
        content = mutate_safetensors(rng, content)
    elif file.suffix == ".yaml":
        content = any_yaml(rng).encode(errors="replace") if rng.random() < 0.5 else mutate_bytes(rng, content)
    elif file.suffix in (".json", ".jsonl") and rng.random() < 0.7:
        lines = content.decode().splitlines() if file.suffix == ".jsonl" else [content.decode()]
        place = rng.randrange(len(lines))
        lines[place] = json.dumps(mutate_json(rng, json.loads(lines[place])))
        content = "\n".join(lines).encode(errors="replace")
    else:
        content = mutate_bytes(rng, content)
    file.write_bytes(content)
