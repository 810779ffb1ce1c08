"""Targets: settings as values and as YAML."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from pathlib import Path

import yaml

from pdadmm_g.config import RunConfig

from .limits import Violation
from .mutations import any_value, mutate_bytes, odd_file


def settings(rng: random.Random, folder: Path) -> None:
    """Settings as values."""
    chosen = {rng.choice(setting_names()): any_value(rng) for _ in range(rng.randrange(1, 4))}
    round_trip(RunConfig(**chosen), folder)


def yaml_file(rng: random.Random, folder: Path) -> None:
    """Configuration files."""
    path = folder / "run.yaml"
    if not odd_file(rng, path):
        path.write_bytes(any_yaml(rng).encode("utf-8", "surrogateescape"))
    round_trip(RunConfig.load(path), folder)


@functools.cache
def setting_names() -> list[str]:
    """All settings of a run."""
    return [item.name for item in dataclasses.fields(RunConfig)]


def any_yaml(rng: random.Random) -> str:
    """Settings as text: mostly readable lines, sometimes what a parser may choke on."""
    kind = rng.randrange(12)
    if kind == 0:
        letters = "abcdefghijklmnopqrstu"[: rng.randrange(2, 20)]
        laughs = [f"&{b} [{', '.join(['*' + a] * 9)}]" for a, b in itertools.pairwise(letters)]
        return f"{rng.choice(setting_names())}: [{', '.join(['&a [x, x]', *laughs])}]\n"
    if kind == 1:
        return rng.choice(("[", "{", "- ", "? ", "!!python/object/apply:os.system ")) * rng.choice((1, 50, 2000))
    if kind == 2:
        name = rng.choice(setting_names())
        return f"{name}: 3\n{name}: 4\n"
    if kind == 3:
        merges = [f"x{b}: &{b} {{<<: [{', '.join(['*' + a] * 9)}]}}\n" for a, b in itertools.pairwise("abcdefghij")]
        bomb = "xa: &a {layers: 3}\n" + "".join(merges)
        return rng.choice(("layers: &a\n  - *a\n", "<<: {layers: 3}\n<<: 4\n", bomb))
    names = [rng.choice(setting_names()) for _ in range(rng.randrange(1, 5))]
    text = yaml.safe_dump({name: any_value(rng) for name in names}, allow_unicode=rng.random() < 0.5)
    if kind == 4:
        return mutate_bytes(rng, text.encode(errors="replace")).decode("utf-8", "surrogateescape")
    return text


def round_trip(config: RunConfig, folder: Path) -> None:
    """A configuration that was accepted comes back from its own YAML."""
    again = folder / "again.yaml"
    again.write_text(config.to_yaml(), encoding="utf-8")
    if RunConfig.load(again) != config:
        raise Violation(f"does not survive YAML: {config}")
    again.unlink()
    config.resolved()
