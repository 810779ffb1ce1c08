"""What nodes without labels add, and by which part of it: random copies of the features, or targets for these nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .cells import Cell, Settings
from .paired import draw_differences, render_differences
from .results import Row

LABELLED, ALL = "labelled nodes only", "all"
#: What is not set is chosen as always. All but the default's own choice are told to ask the other nodes or not to.
VARIANTS: dict[str, Settings] = {
    LABELLED: {"unlabelled": 0},
    "copies, no targets": {"unlabelled": 2000, "trust": 0.0},
    "targets, no copies": {"unlabelled": 2000, "copies": 1, "drop": 0.0, "drop_entries": 0.0},
    ALL: {},
}
#: Each as what it gains over labelled nodes only.
GAINS = tuple(variant for variant in VARIANTS if variant != LABELLED)


def cells(datasets: Sequence[str], seeds: tuple[int, ...]) -> list[Cell]:
    """Every variant on every data set."""
    return [
        Cell(variant, dataset, (settings,), seeds) for dataset in datasets for variant, settings in VARIANTS.items()
    ]


def render(rows: Sequence[Row]) -> str:
    """Markdown: mean and spread over the seeds, then gains with the same seeds."""
    return render_differences(rows, list(VARIANTS), [(variant, LABELLED) for variant in GAINS])


def figure(rows: Sequence[Row], path: Path) -> None:
    """Gains in points on each graph."""
    pairs = {variant: (variant, LABELLED) for variant in GAINS}
    draw_differences(rows, pairs, path, "points over labelled nodes only")
