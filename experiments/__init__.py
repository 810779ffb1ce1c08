"""The experiments of the paper and ours beyond it, each one command: run, resume, table, figures.

Results go to one folder per experiment: ``results.jsonl`` with a line for each row, and ``table.md`` and ``figure.png``
made of it. What is there already is not run again. Heavy imports happen when an experiment is run: the command line
needs the names without them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pdadmm_g.utils import write_atomically

if TYPE_CHECKING:
    from .results import Results, Row


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
    #: Training rows, and neurons per layer, of the experiments on speed.
    rows: tuple[int, ...] | None = None
    hidden: int | None = None

    def choose_datasets(self, quick: Sequence[str], full: Sequence[str]) -> Sequence[str]:
        """The data sets that were asked for, else those of the quick or of the full experiment."""
        return self.datasets or (quick if self.quick else full)

    def choose_seeds(self) -> tuple[int, ...]:
        """The seeds that were asked for, else one or the paper's."""
        from .tables import SEEDS

        return self.seeds or ((0,) if self.quick else SEEDS)

    @property
    def results(self) -> Results:
        """What is known already, and where the rest goes."""
        from .results import Results

        return Results(self.folder, self.command)

    @property
    def cells(self) -> dict[str, Any]:
        """How the cells of a table are run."""
        return {
            "results": self.results,
            "data_root": self.data_root,
            "processes": self.workers,
            "device": self.device,
        }


class Experiment(NamedTuple):
    """The number of rows, what finds or makes them, how they become a table, and a figure if there is one."""

    total: int
    rows: Iterable[Row]
    render: Callable[[Sequence[Row]], str]
    figure: Callable[[Sequence[Row], Path], None] | None = None


def run_experiment(name: str, request: Request, on_row: Callable[[Row, int, int], None]) -> str:
    """Run one experiment; write and return the table of all rows in its folder.

    ``on_row`` is called with each row, how many there are so far and how many there will be.
    """
    from pdadmm_g.graph.datasets import check_name

    for dataset in request.datasets or ():
        check_name(dataset)
    experiment = EXPERIMENTS[name](request)
    request.folder.mkdir(parents=True, exist_ok=True)
    for done, row in enumerate(experiment.rows, start=1):
        on_row(row, done, experiment.total)
    rows = request.results.rows()
    table = experiment.render(rows)
    write_atomically(request.folder / "table.md", table)
    if experiment.figure is not None:
        experiment.figure(rows, request.folder / "figure.png")
    return table


def _paper_table(request: Request, *, hidden: int) -> Experiment:
    from . import tables

    datasets = request.choose_datasets(SMALL, tables.COMPLETE)
    rows = tables.run_paper_table(hidden, datasets, request.choose_seeds(), **request.cells)
    render = functools.partial(tables.render_paper_table, hidden)
    return Experiment(len(datasets) * len(tables.PAPER_METHODS), rows, render)


def _best_table(request: Request) -> Experiment:
    from . import tables
    from .cells import run_cells

    cells = tables.best_cells(request.choose_datasets(SMALL, tables.COMPLETE), request.choose_seeds())
    return Experiment(len(cells), run_cells(cells, **request.cells), tables.render_best_table)


def _random_splits(request: Request) -> Experiment:
    from . import splits
    from .cells import run_cells
    from .tables import COMPLETE

    numbers = request.seeds or splits.SPLITS[: 2 if request.quick else None]
    cells = splits.cells(request.choose_datasets(("cora",), COMPLETE), numbers)
    return Experiment(len(cells), run_cells(cells, **request.cells), splits.render, splits.figure)


def _ablation(request: Request) -> Experiment:
    from . import ablation
    from .cells import run_cells
    from .tables import COMPLETE

    cells = ablation.cells(request.choose_datasets(SMALL, COMPLETE), request.choose_seeds())
    return Experiment(len(cells), run_cells(cells, **request.cells), ablation.render, ablation.figure)


def _convergence(request: Request) -> Experiment:
    from . import convergence

    datasets = request.choose_datasets(("cora", "pubmed"), convergence.DATASETS)
    small: dict[str, Any] = {"hidden": 100} if request.quick else {}
    rows = convergence.run(request.results, datasets=datasets, data_root=request.data_root, **small)
    return Experiment(len(datasets) * len(convergence.METHODS), rows, convergence.render, convergence.figure)


def _depth(request: Request) -> Experiment:
    from . import depth

    datasets = request.choose_datasets(("cora",), depth.DATASETS)
    depths = (2, 5, 10) if request.quick else depth.DEPTHS
    asked: dict[str, Any] = {"datasets": datasets, "depths": depths, "seeds": request.choose_seeds()}
    rows = depth.run(request.results, **asked, data_root=request.data_root)
    return Experiment(len(datasets) * len(depths) * len(depth.METHODS), rows, depth.render, depth.figure)


def _homophily(request: Request) -> Experiment:
    from . import homophily

    degrees = (0.0, 1.0) if request.quick else homophily.HOMOPHILY
    rows = homophily.run(seeds=request.choose_seeds(), degrees=degrees, **request.cells)
    return Experiment(len(degrees) * len(homophily.METHODS), rows, homophily.render)


def _stand_ins(request: Request) -> Experiment:
    from . import standins

    names = request.datasets or tuple(standins.STANDINS)
    return Experiment(len(names) * len(standins.INPUTS), standins.run(names, **request.cells), standins.render)


def _communication(request: Request) -> Experiment:
    from . import communication

    datasets = request.choose_datasets(("citeseer",), communication.DATASETS)
    small: dict[str, Any] = {"workers": 2, "epochs": 5, "hidden": 100} if request.quick else {}
    asked: dict[str, Any] = {"datasets": datasets, "seeds": request.choose_seeds(), **small}
    rows = communication.run(request.results, **asked, data_root=request.data_root)
    return Experiment(len(datasets) * len(communication.CASES), rows, communication.render)


def _speedup(request: Request, *, of_layers: bool) -> Experiment:
    from . import speedup

    counts = [count for count in (1, 2, 4, 8, 16) if count <= max(2, request.workers)]
    methods: tuple[str, ...] = tuple(speedup.METHODS)
    if of_layers:
        size = {"nodes": 600, "features": 1000, "hidden": 1000, "epochs": 4, "warm_up": 2}
        depths, methods, counts, repeats = tuple(range(8, 18)), ("pdADMM-G",), [1, counts[-1]], 3
    else:
        size = {"nodes": 5000, "features": 1000, "hidden": 1000, "epochs": 2, "warm_up": 1}
        depths, repeats = (16,), 2
    if request.quick:
        size, depths, repeats = size | {"nodes": 300, "features": 100, "hidden": 100, "epochs": 2}, depths[:1], 1
    cases = speedup.cases(counts, depths, methods)
    rows = speedup.run(request.results, cases=cases, size=size, repeats=repeats)
    return Experiment(repeats * len(cases), rows, speedup.render)


def _mesh(request: Request) -> Experiment:
    from . import mesh, speedup

    hidden = request.hidden or (50 if request.quick else 1000)
    size = {"features": hidden, "hidden": hidden, "epochs": 2, "warm_up": 1}
    counts = [count for count in (8, 16) if count <= request.workers] or [max(2, request.workers)]
    depth, repeats = (4, 1) if request.quick else (16, 3)
    cases = mesh.cases(counts, request.rows or ((100,) if request.quick else (5000,)), depth)
    rows = speedup.run(request.results, cases=cases, size=size, repeats=repeats)
    return Experiment(repeats * len(cases), rows, mesh.render)


def _network(request: Request) -> Experiment:
    from . import learning, network
    from .namespaces import SPEEDS

    hidden = request.hidden or (50 if request.quick else 1000)
    nodes = request.rows[0] if request.rows else (200 if request.quick else 5000)
    size = {"nodes": nodes, "features": hidden, "hidden": hidden, "epochs": 1, "warm_up": 1}
    workers, depth, repeats = (2, 4, 1) if request.quick else (max(2, request.workers), 16, 3)
    rows = network.run(request.results, workers=workers, depth=depth, size=size, repeats=repeats)
    seeds = request.seeds or ((0,) if request.quick else (0, 1, 2))
    lesson = {key: size[key] for key in ("nodes", "features", "hidden")}
    asked: dict[str, Any] = {"depth": depth, "size": lesson, "epochs": 3 if request.quick else 40, "seeds": seeds}
    curves = network.learn(request.results, device=request.device, **asked)
    total = repeats * len(network.cases(workers, depth)) * len(SPEEDS) + len(seeds) * len(learning.METHODS)
    return Experiment(total, itertools.chain(rows, curves), network.render, network.figure)


#: The data sets of a quick table.
SMALL = ("cora", "citeseer", "pubmed")
#: Every experiment by its name, in the order in which "all" runs them.
EXPERIMENTS: dict[str, Callable[[Request], Experiment]] = {
    "table-100": functools.partial(_paper_table, hidden=100),
    "table-500": functools.partial(_paper_table, hidden=500),
    "table-best": _best_table,
    "random-splits": _random_splits,
    "ablation": _ablation,
    "convergence": _convergence,
    "depth": _depth,
    "speedup-layers": functools.partial(_speedup, of_layers=True),
    "speedup-workers": functools.partial(_speedup, of_layers=False),
    "speedup-mesh": _mesh,
    "communication": _communication,
    "homophily": _homophily,
    "stand-ins": _stand_ins,
    "network": _network,
}
