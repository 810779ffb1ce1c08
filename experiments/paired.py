"""Differences between methods that ran with the same seeds, or on the same splits: what both share cancels."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .results import Row, markdown
from .tables import COMPLETE, accuracy_entry, columns

AVERAGE = "average"


class Difference(NamedTuple):
    """In points of test accuracy; the error is None where it cannot be told."""

    mean: float
    error: float | None

    def __str__(self) -> str:
        mean = round(self.mean, 2) + 0.0  # no negative zero
        return f"{mean:+.2f}" + ("" if self.error is None else f" ± {self.error:.2f}")


def difference(row: Row | None, other: Row | None) -> Difference | None:
    """Mean and standard error of ``row`` minus ``other``, run by run; None if they have no seed in common."""
    ours, theirs = (
        {run["seed"]: run["test_accuracy"] for run in (cell or {}).get("runs", ())} for cell in (row, other)
    )
    points = [100 * (ours[seed] - theirs[seed]) for seed in ours if seed in theirs]
    if not points:
        return None
    error = statistics.stdev(points) / math.sqrt(len(points)) if len(points) > 1 else None
    return Difference(statistics.mean(points), error)


def average(differences: Sequence[Difference | None]) -> Difference | None:
    """The mean over graphs, whose errors are independent; None unless every graph has a difference."""
    known = [each for each in differences if each is not None]
    if not known or len(known) < len(differences):
        return None
    errors = [each.error for each in known if each.error is not None]
    error = math.hypot(*errors) / len(known) if len(errors) == len(known) else None
    return Difference(statistics.mean(each.mean for each in known), error)


def differences(rows: Sequence[Row], method: str, other: str, datasets: Sequence[str]) -> list[Difference | None]:
    """``method`` minus ``other`` on each data set."""
    cells = {(row["method"], row["dataset"]): row for row in rows}
    return [difference(cells.get((method, dataset)), cells.get((other, dataset))) for dataset in datasets]


def render_differences(rows: Sequence[Row], methods: Sequence[str], pairs: Sequence[tuple[str, str]]) -> str:
    """Markdown: accuracies of the methods, then the differences of these pairs; the last column is over all graphs."""
    cells = {(row["method"], row["dataset"]): row for row in rows}
    datasets = columns(rows, COMPLETE)
    lines = []
    for method in methods:
        own = [cells.get((method, dataset)) for dataset in datasets]
        means = [row["mean"] for row in own if row is not None and "mean" in row]
        mean = f"{statistics.mean(means):.3f}" if means and len(means) == len(datasets) else "-"
        if means:
            lines.append([method, *map(accuracy_entry, own), mean])
    for method, other in pairs:
        each = differences(rows, method, other, datasets)
        if any(each):
            entries = ["-" if item is None else str(item) for item in (*each, average(each))]
            lines.append([f"{method} minus {other}, points", *entries])
    return markdown(["", *(dataset.removesuffix(".npz") for dataset in datasets), AVERAGE], lines)


def draw_differences(rows: Sequence[Row], pairs: Mapping[str, tuple[str, str]], path: Path, title: str) -> None:
    """A group of bars for each graph, one for each pair under its name, with standard errors; in points."""
    from .figures import new_figure, save_figure

    datasets = columns(rows)
    canvas, [[axis]] = new_figure(1, 1, height=3.4)
    width = 0.8 / len(pairs)
    for index, (name, (method, other)) in enumerate(pairs.items()):
        known = [
            (place + (index - (len(pairs) - 1) / 2) * width, gain.mean, gain.error or 0.0)
            for place, gain in enumerate(differences(rows, method, other, datasets))
            if gain is not None
        ]
        if known:
            places, means, errors = zip(*known, strict=True)
            axis.bar(places, means, width, yerr=errors, capsize=2, label=name, color=f"C{index}")
            axis.legend(frameon=False, fontsize=8)
    axis.axhline(0, color="black", linewidth=0.8)
    axis.set_xticks(range(len(datasets)), [dataset.removesuffix(".npz") for dataset in datasets], fontsize=8)
    axis.set_ylabel(title)
    save_figure(canvas, path)
