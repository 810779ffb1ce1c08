"""The experiments of the paper and ours beyond it, each one command: run, resume, table, figures.

Results go to one folder per experiment: a JSON file per cell, ``table.md`` and PNG figures. What is there already is
not run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..datasets import check_name
from ..files import write_atomically

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asked for; None where the experiment's own choice is wanted."""

    folder: Path
    data_root: str | None
    datasets: tuple[str, ...] | None
    seeds: tuple[int, ...] | None
    workers: int
    device: str
    command: str
    quick: bool


def reproduce(name: str, request: Request, on_row: Callable[[Row, int, int], None]) -> str:
    """Run one experiment; write and return its table.

    ``on_row`` is called with each result, how many there are so far and how many there will be.
    """
    for dataset in request.datasets or ():
        check_name(dataset)
    total, run, render, figure = _experiment(name, request)
    request.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for row in run:
        rows.append(row)
        on_row(row, len(rows), total)
    table = render(rows)
    write_atomically(request.folder / "table.md", table)
    if figure is not None:
        figure(rows, request.folder / "figure.png")
    return table


def _experiment(
    name: str, request: Request
) -> tuple[int, Iterator[Row], Callable[[Sequence[Row]], str], Callable[[Sequence[Row], Path], None] | None]:
    """The number of rows, what yields them, how they become a table, and a figure if there is one."""
    from . import communication, convergence, depth, homophily, speedup, standins, tables
    from .cells import run_cells

    datasets = request.datasets or (("cora", "citeseer", "pubmed") if request.quick else tables.COMPLETE)
    seeds = request.seeds or ((0,) if request.quick else tables.SEEDS)
    place: dict[str, Any] = {"folder": request.folder, "command": request.command}
    cells = place | {"data_root": request.data_root, "processes": request.workers, "device": request.device}
    if name in ("table-100", "table-500"):
        hidden = int(name.removeprefix("table-"))
        rows = tables.run_paper_table(hidden, datasets, seeds, **cells)
        total = len(datasets) * len(tables.PAPER_METHODS)
        return total, rows, lambda rows: tables.render_paper_table(hidden, rows), None
    if name == "table-best":
        table = tables.best_cells(datasets, seeds)
        return len(table), run_cells(table, **cells), tables.render_best_table, None
    if name == "convergence":
        small: dict[str, Any] = {"hidden": 100} if request.quick else {}
        chosen = request.datasets or (("cora", "pubmed") if request.quick else convergence.DATASETS)
        rows = convergence.run(**place, datasets=chosen, data_root=request.data_root, **small)
        return len(chosen) * len(convergence.ALGORITHMS), rows, convergence.render, convergence.figure
    if name == "depth":
        chosen = request.datasets or (("cora",) if request.quick else depth.DATASETS)
        layers = (2, 5, 10) if request.quick else depth.DEPTHS
        rows = depth.run(**place, datasets=chosen, depths=layers, seeds=seeds, data_root=request.data_root)
        return len(chosen) * len(layers) * len(depth.METHODS), rows, depth.render, depth.figure
    if name == "homophily":
        levels = (0.0, 1.0) if request.quick else homophily.HOMOPHILY
        rows = homophily.run(seeds=seeds, levels=levels, **cells)
        return len(levels) * len(homophily.METHODS), rows, homophily.render, None
    if name == "stand-ins":
        chosen = request.datasets or tuple(standins.STANDINS)
        return len(chosen) * len(standins.INPUTS), standins.run(chosen, **cells), standins.render, None
    if name == "communication":
        scale: dict[str, Any] = {"workers": 2, "epochs": 5, "hidden": 100} if request.quick else {}
        chosen = request.datasets or (("citeseer",) if request.quick else communication.DATASETS)
        rows = communication.run(**place, datasets=chosen, seeds=seeds, data_root=request.data_root, **scale)
        return len(chosen) * len(communication.CASES), rows, communication.render, None
    size = {"nodes": 5000, "features": 1000, "hidden": 1000, "epochs": 3}
    counts = [count for count in (1, 2, 4, 8, 16) if count <= max(2, request.workers)]
    depths: tuple[int, ...] = (16,)
    methods = tuple(speedup.METHODS)
    if name == "speedup-layers":
        size, depths, methods, counts = size | {"nodes": 600}, tuple(range(8, 18)), ("pdADMM-G",), [1, counts[-1]]
    if request.quick:
        size, depths = {"nodes": 300, "features": 100, "hidden": 100, "epochs": 2}, depths[:1]
    repeats = 1 if request.quick else 3
    rows = speedup.run(**place, workers=counts, depths=depths, methods=methods, size=size, repeats=repeats)
    return repeats * len(counts) * len(depths) * len(methods), rows, speedup.render, None
