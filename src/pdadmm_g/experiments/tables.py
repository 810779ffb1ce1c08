"""The accuracy tables of the paper, its protocol and ours, with the paper's figures beside our own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .cells import Cell, Settings, run_cells
from .results import Row, arranged

#: The data sets that have everything; Flickr and ogbn-arxiv run with the same command where their features are.
COMPLETE = (
    "cora", "citeseer", "pubmed", "amazon-computers", "amazon-photo", "coauthor-cs", "coauthor-physics",
)  # fmt: skip
SEEDS = (0, 100, 200, 300, 400)

#: Four raw hop blocks, 10 layers grown 2-5-10, 200 epochs a stage, the best epoch on validation.
PAPER_PROTOCOL: Settings = {
    "augment": "hops", "hops": 4, "row_normalize": False, "normalize": "none", "layers": 10, "epochs": 200,
    "patience": 100, "eval_every": 5,
}  # fmt: skip
#: The free choices of pdADMM-G, made on validation with the first seed: nu, with rho = 5 nu, and the weight decay.
PENALTIES = tuple(
    {"nu": nu, "rho": 5 * nu, "weight_decay": weight_decay}
    for nu, weight_decay in ((0.01, 0.01), (0.01, 0.1), (0.1, 1.0), (1.0, 0.1), (10.0, 0.1))
)
OPTIMIZERS = {"GD": "gd", "Adadelta": "adadelta", "Adagrad": "adagrad", "Adam": "adam"}
#: The rows of the paper's tables.
PAPER_METHODS = (*OPTIMIZERS, "Adam, tuned", "pdADMM-G", "pdADMM-G-Q")
LEARNING_RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
#: What is tried for our own best, with two seeds.
OWN_CANDIDATES = tuple(
    {"augment": augment, "hops": hops, "normalize": normalize, "weight_decay": weight_decay}
    for augment, hops in (("average", 4), ("average", 8), ("average", 16), ("hops", 4))
    for normalize in ("unit", "centered")
    for weight_decay in (0.03, 0.1, 0.3, 1.0)
)


def paper() -> dict[str, Any]:
    """The paper's figures: mean and standard deviation by table, data set and method, and its hyperparameters."""
    figures: dict[str, Any] = json.loads((Path(__file__).parent / "paper.json").read_text())
    return figures


def gradient_cells(hidden: int, datasets: Sequence[str], seeds: tuple[int, ...]) -> list[Cell]:
    """The four comparison methods with the paper's learning rates, and Adam with one chosen on validation."""
    rates = paper()[f"hyper_{hidden}"]
    base = PAPER_PROTOCOL | {"hidden": hidden}
    cells = []
    for dataset in datasets:
        for name, method in OPTIMIZERS.items():
            rate = rates.get(dataset, {}).get(name)  # None: the library's default
            cells.append(Cell(name, dataset, (base | {"method": method, "learning_rate": rate},), seeds))
        tuned = tuple(base | {"method": "adam", "learning_rate": rate} for rate in LEARNING_RATES)
        cells.append(Cell("Adam, tuned", dataset, tuned, seeds))
    return cells


def admm_cells(hidden: int, datasets: Sequence[str], seeds: tuple[int, ...]) -> list[Cell]:
    """pdADMM-G in the paper's protocol."""
    candidates = tuple(PAPER_PROTOCOL | {"hidden": hidden} | penalties for penalties in PENALTIES)
    return [Cell("pdADMM-G", dataset, candidates, seeds) for dataset in datasets]


def quantized(results: Sequence[Row], seeds: tuple[int, ...]) -> list[Cell]:
    """pdADMM-G-Q with p and q at 8 bits and everything else as in these results of pdADMM-G."""
    return [
        Cell("pdADMM-G-Q", result["dataset"], (result["settings"] | {"quantize": "pq", "bits": 8},), seeds)
        for result in results
        if result["method"] == "pdADMM-G"
    ]


def run_paper_table(hidden: int, datasets: Sequence[str], seeds: tuple[int, ...], **options: Any) -> Iterator[Row]:
    """All cells of the table with so many neurons; pdADMM-G-Q takes over what was chosen for pdADMM-G."""
    own = []
    for result in run_cells(admm_cells(hidden, datasets, seeds), **options):
        own.append(result)
        yield result
    yield from run_cells(quantized(own, seeds), **options)
    yield from run_cells(gradient_cells(hidden, datasets, seeds), **options)


def best_cells(datasets: Sequence[str], seeds: tuple[int, ...]) -> list[Cell]:
    """The default of the library, our best by search, and the reference rows SGC and SIGN, on the same splits."""
    own = {"eval_every": 5}
    unit = {"normalize": "unit", "epochs": 300, "patience": 100}
    # The weight decay of the gradient methods is per training node; there are between 60 and 300 of them.
    sgc = tuple(
        unit | {"method": "sgc", "augment": "power", "hops": 2, "learning_rate": 0.1, "weight_decay": decay}
        for decay in (0.001, 0.01, 0.1, 1.0)
    )
    s2gc = tuple(unit | {"method": "sgc", "augment": "average", "learning_rate": 0.1, "weight_decay": decay}
                 for decay in (0.001, 0.01, 0.1, 1.0))  # fmt: skip
    sign = tuple(
        unit | {"method": "sign", "augment": "hops", "weight_decay": decay, "eval_every": 2}
        for decay in (0.01, 0.1, 1.0)
    )
    cells = []
    for dataset in datasets:
        cells.append(Cell("pdADMM-G default", dataset, (own,), seeds))
        tried = tuple(own | candidate for candidate in OWN_CANDIDATES)
        cells.append(Cell("pdADMM-G best", dataset, tried, seeds, search_seeds=2))
        for name, candidates in (("SGC", sgc), ("S2GC", s2gc), ("SIGN", sign)):
            cells.append(Cell(name, dataset, candidates, seeds))
    return cells


def render_paper_table(hidden: int, rows: Sequence[Row]) -> str:
    """Markdown: our mean and spread, the paper's mean below."""
    figures = paper()[f"test_{hidden}"]
    return render_methods(
        rows, PAPER_METHODS, published=lambda dataset, method: figures.get(dataset, {}).get(method, [None])[0]
    )


def best_of_paper(dataset: str) -> float | None:
    """The best figure of any method and width in the paper's tables, None for a data set that it does not have."""
    tables = [paper()[name].get(dataset, {}) for name in ("test_100", "test_500")]
    return max((mean for table in tables for mean, _ in table.values()), default=None)


def render_best_table(rows: Sequence[Row]) -> str:
    """Markdown: methods in rows, data sets in columns, the best of the paper as a row of its own."""
    methods = ["pdADMM-G default", "pdADMM-G best", "SGC", "S2GC", "SIGN"]
    text = render_methods(rows, methods)
    best = [best_of_paper(dataset) for dataset in columns(rows)]
    entries = " | ".join("-" if figure is None else f"{figure:.3f}" for figure in best)
    return text + f"| paper, best of its methods and widths | {entries} |\n"


def columns(rows: Sequence[Row], datasets: Sequence[str] = COMPLETE) -> list[str]:
    """The data sets of these rows, in the order of ``datasets``."""
    return list(dict.fromkeys(row["dataset"] for row in arranged(rows, dataset=datasets)))


def render_methods(
    rows: Sequence[Row],
    methods: Sequence[str],
    datasets: Sequence[str] = COMPLETE,
    published: Callable[[str, str], float | None] = lambda dataset, method: None,
) -> str:
    """Markdown: methods in rows, data sets in columns; mean, spread, failures, and what was ``published``."""
    by_cell = {(row["method"], row["dataset"]): row for row in rows}
    datasets = columns(rows, datasets)
    titles = [dataset.removesuffix(".npz") for dataset in datasets]
    lines = ["| | " + " | ".join(titles) + " |", "|---" * (len(datasets) + 1) + "|"]
    for method in methods:
        entries = []
        for dataset in datasets:
            result = by_cell.get((method, dataset))
            entry = "-" if result is None or "mean" not in result else f"{result['mean']:.3f}"
            if result is not None and result.get("std") is not None:
                entry += f" ± {result['std']:.3f}"
            failed = [run for run in (result or {}).get("runs", []) if run["status"] in ("NON_FINITE", "DIVERGED")]
            if failed:
                entry += f" ({len(failed)} failed)"
            theirs = published(dataset, method)
            if theirs is not None:
                entry += f" [{theirs:.3f}]"
            entries.append(entry)
        if any(entry != "-" for entry in entries):
            lines.append(f"| {method} | " + " | ".join(entries) + " |")
    return "\n".join(lines) + "\n"
