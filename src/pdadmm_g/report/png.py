"""The figures of the page as PNG, drawn with matplotlib."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .collect import Run
from .figures import new_figure
from .page import LIGHT

#: Curves by figure: title, what is drawn solid and dashed, and whether the scale is logarithmic.
CURVES: dict[str, tuple[str, tuple[tuple[str, str], ...], bool]] = {
    "accuracy": ("Accuracy", (("val_accuracy", "validation"), ("train_accuracy", "training")), False),
    "score": ("Validation score", (("val_score", "validation"),), False),
    "objective": ("Objective", (("objective", "objective"), ("risk", "risk")), True),
    "residuals": ("Residuals", (("primal_residual", "primal"), ("dual_residual", "dual")), True),
    "rho": ("Penalty rho", (("rho", "rho"),), False),
    "loss": ("Loss per node", (("val_loss", "validation"), ("train_loss", "training")), False),
}
#: What is drawn over the rounds, and how.
ROUNDS = (
    ("val_accuracy", "best validation accuracy", ".-"),
    ("agreement", "nodes whose copies agree", ".--"),
    ("changed", "nodes whose class changed", ".:"),
)
#: What a worker's time goes to, with the colours of the page.
PARTS = (
    ("compute_seconds", "computing", LIGHT[0]),
    ("pack_seconds", "packing", LIGHT[1]),
    ("wait_seconds", "waiting", LIGHT[4]),
)


def draw_figures(runs: Sequence[Run]) -> dict[str, Any]:
    """Each figure under the name of its file; those about a single run are drawn for each run that has them."""
    figures = {name: _curves(runs, *parts) for name, parts in CURVES.items() if _has(runs, parts[1])}
    if any(run["rounds"] for run in runs):
        figures["rounds"] = _rounds(runs)
    if any(run["confusion"] for run in runs):
        figures["classes"] = _classes(runs)
    if any(run["reliability"] for run in runs):
        figures["reliability"] = _reliability(runs)
    if any(run["times"] for run in runs):
        figures["times"] = _times(runs)
    for place, run in enumerate(runs):
        suffix = "" if len(runs) == 1 else f"-{place + 1}-" + re.sub(r"[^\w.-]+", "-", run["name"])
        for name, key, draw in (
            ("workers", "timeline", _workers),
            ("plan", "stages", _plan),
            ("confusion", "confusion", _confusion),
        ):
            if run[key]:
                figures[name + suffix] = draw(run)
    return figures


def _has(runs: Sequence[Run], keys: Sequence[tuple[str, str]]) -> bool:
    return any(run["series"][key] for run in runs for key, _ in keys)


def _plain(text: str) -> str:
    """Text that matplotlib does not take for mathematics."""
    return text.replace("$", r"\$")


def _curves(runs: Sequence[Run], title: str, keys: Sequence[tuple[str, str]], log: bool) -> Any:
    canvas, ((axis,),) = new_figure(1, 1)
    for place, run in enumerate(runs):
        for (key, label), style in zip(keys, ("-", "--"), strict=False):
            if series := run["series"][key]:
                name = _plain(f"{run['name']}, {label}" if len(runs) > 1 else label)
                marker = "." if len(series["epoch"]) == 1 else None
                axis.plot(
                    series["epoch"],
                    series["value"],
                    style,
                    marker=marker,
                    color=_colour(place),
                    linewidth=1.4,
                    label=name,
                )
    for epoch in sorted({stage["epoch"] - 0.5 for run in runs for stage in run["stages"][1:]}):
        axis.axvline(epoch, color="grey", linewidth=0.7, linestyle=":")
    if begins := sorted({epoch - 0.5 for run in runs if run["rounds"] for epoch in run["rounds"]["first"][1:]}):
        axis.set_xticks(begins, minor=True)
        axis.tick_params(axis="x", which="minor", direction="in", color="grey")
    if log and any(value > 0 for line in axis.lines for value in line.get_ydata()):
        axis.set_yscale("log", nonpositive="mask")
    axis.set(title=title, xlabel="epoch")
    canvas.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return canvas


def _rounds(runs: Sequence[Run]) -> Any:
    """Figures of the rounds in which nodes without labels teach."""
    canvas, ((axis,),) = new_figure(1, 1)
    for place, run in enumerate(runs):
        for key, label, style in ROUNDS if run["rounds"] else ():
            points = [
                point for point in zip(run["rounds"]["round"], run["rounds"][key], strict=True) if None not in point
            ]
            if points:
                name = _plain(f"{run['name']}, {label}" if len(runs) > 1 else label)
                axis.plot(*zip(*points, strict=True), style, color=_colour(place), linewidth=1.4, label=name)
    axis.set(title="Rounds", xlabel="round")
    canvas.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return canvas


def _colour(place: int) -> tuple[str, float]:
    """Colour and opacity: runs beyond the number of colours get the same ones, paler."""
    return LIGHT[place % len(LIGHT)], 0.9 if place < len(LIGHT) else 0.45


def _workers(run: Run) -> Any:
    """Seconds per epoch of each worker on the left, its bytes on the right."""
    edges, workers = run["timeline"]["edges"], run["timeline"]["workers"]
    canvas, rows = new_figure(len(workers), 2, height=1.2 + 0.9 * len(workers))
    for rank, ((time, sent), worker) in enumerate(zip(rows, workers, strict=True)):
        parts = [worker[key] for key, _, _ in PARTS]
        time.stackplot(
            edges[1:],
            *parts,
            step="pre",
            colors=[colour for *_, colour in PARTS],
            labels=[part for _, part, _ in PARTS],
        )
        total = [p + q for p, q in zip(worker["bytes_p"], worker["bytes_q"], strict=True)]
        sent.fill_between(edges[1:], total, step="pre", color=LIGHT[3], alpha=0.7)
        time.set_ylabel(f"worker {rank}", fontsize=8)
        for axis in (time, sent):
            axis.tick_params(labelsize=7, labelbottom=rank + 1 == len(workers))
            axis.set_ylim(bottom=0)
    rows[0][0].set_title("seconds per epoch", fontsize=9)
    rows[0][1].set_title("bytes sent per epoch", fontsize=9)
    canvas.suptitle(_plain(f"Workers of {run['name']}"), fontsize=11)
    handles, labels = rows[0][0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return canvas


def _plan(run: Run) -> Any:
    stages = run["stages"]
    canvas, ((axis,),) = new_figure(1, 1, height=1.0 + 0.45 * len(stages))
    for row, stage in enumerate(stages):
        first = 0
        for rank, count in enumerate(stage["workers"] or [stage["depth"]]):
            tint = ("#d4e6f7", "#eef2f6")[rank % 2]
            axis.barh(row, count, left=first, color=tint, edgecolor="white")
            if count / max(1, stage["depth"]) > 0.06:
                label = f"worker {rank}: {count}" if stage["workers"] else f"{count}"
                axis.text(first + count / 2, row, label, ha="center", va="center", fontsize=8)
            first += count
    axis.set_yticks(range(len(stages)), [f"{stage['depth']} layers" for stage in stages])
    axis.invert_yaxis()
    axis.set(title=_plain(f"Layer plan of {run['name']}"), xlabel="layers")
    return canvas


def _recalls(run: Run) -> dict[str, float]:
    """The share of the nodes of each class that were put into it."""
    table = run["confusion"]
    rows = zip(table["classes"], table["counts"], strict=True)
    return {name: row[place] / sum(row) for place, (name, row) in enumerate(rows) if sum(row)}


def _classes(runs: Sequence[Run]) -> Any:
    judged = [(run, _colour(place)) for place, run in enumerate(runs) if run["confusion"]]
    names = list(dict.fromkeys(name for run, _ in judged for name in run["confusion"]["classes"]))
    canvas, ((axis,),) = new_figure(1, 1, height=1.6 + 0.25 * len(names))
    for run, colour in judged:
        recalls = _recalls(run)
        rows = [row for row, name in enumerate(names) if name in recalls]
        values = [recalls[names[row]] for row in rows]
        axis.plot(values, rows, "o", color=colour, label=_plain(run["name"]))
    axis.set_yticks(range(len(names)), [_plain(name) for name in names], fontsize=8)
    axis.invert_yaxis()
    axis.set(title="Accuracy per class", xlabel="accuracy on the nodes of the class")
    canvas.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return canvas


def _reliability(runs: Sequence[Run]) -> Any:
    """Accuracy by confidence; where they are equal, the model says how good it is."""
    canvas, ((axis,),) = new_figure(1, 1)
    axis.plot([0, 1], [0, 1], "--", color="grey", linewidth=0.9)
    for place, run in enumerate(runs):
        if run["reliability"]:
            bins = run["reliability"]["bins"]
            x, y = ([each[name] for each in bins] for name in ("confidence", "accuracy"))
            axis.plot(x, y, "o-", color=_colour(place), linewidth=1.4, label=_plain(run["name"]))
    axis.set(title="Calibration", xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1.02))
    canvas.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return canvas


def _times(runs: Sequence[Run]) -> Any:
    """What the runs spent their time on."""
    timed = [run for run in runs if run["times"]]
    tasks = list(dict.fromkeys(task for run in timed for task in run["times"]))
    canvas, ((axis,),) = new_figure(1, 1, height=1.4 + 0.35 * len(timed))
    left = [0.0] * len(timed)
    for place, task in enumerate(tasks):
        took = [run["times"].get(task, 0.0) for run in timed]
        axis.barh(range(len(timed)), took, left=left, color=_colour(place), label=_plain(task))
        left = [before + own for before, own in zip(left, took, strict=True)]
    axis.set_yticks(range(len(timed)), [_plain(run["name"]) for run in timed], fontsize=8)
    axis.invert_yaxis()
    axis.set(title="Wall time", xlabel="seconds")
    canvas.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return canvas


def _confusion(run: Run) -> Any:
    table = run["confusion"]
    classes, counts = table["classes"], table["counts"]
    canvas, ((axis,),) = new_figure(1, 1, height=max(4.0, min(9.0, 1.5 + 0.4 * len(classes))))
    axis.grid(visible=False)
    shares = [[count / max(1, sum(row)) for count in row] for row in counts]
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if len(classes) <= 20:
        for i, row in enumerate(counts):
            for j, count in enumerate(row):
                colour = "white" if shares[i][j] > 0.5 else "black"
                axis.text(j, i, count or "", ha="center", va="center", fontsize=8, color=colour)
    if len(classes) <= 50:
        axis.set_xticks(range(len(classes)), [_plain(name) for name in classes], fontsize=8, rotation=90)
        axis.set_yticks(range(len(classes)), [_plain(name) for name in classes], fontsize=8)
    axis.set(
        title=_plain(f"Confusion matrix of {run['name']}, {table['nodes']} nodes"),
        xlabel="predicted class",
        ylabel="true class",
    )
    return canvas
