"""The accuracy tables of the paper, its protocol and ours, with the paper's figures beside our own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .cells import Cell, Settings, run_cells
from .results import Row, arranged, markdown

#: The data sets that have everything; Flickr and ogbn-arxiv run with the same command where their features are.
COMPLETE = (
    "cora", "citeseer", "pubmed", "amazon-computers", "amazon-photo", "coauthor-cs", "coauthor-physics",
)  # fmt: skip
SEEDS = (0, 100, 200, 300, 400)

#: Four raw hop blocks, 10 layers grown 2-5-10, 200 epochs a stage, the best epoch on validation.
PAPER_PROTOCOL: Settings = {
    "augment": "hops", "hops": 4, "row_normalize": False, "normalize": "none", "layers": 10,
    "stages": (2, 5, 10), "epochs": 200, "patience": 100, "eval_every": 5,
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
#: The library without any settings, and as it was before nodes without labels taught.
DEFAULT, LABELLED_ONLY = "pdADMM-G default", "pdADMM-G, labelled nodes only"
_UNIT: Settings = {"normalize": "unit", "epochs": 300, "patience": 100}
#: What one would use instead, each with the settings that validation chooses among. The weight decay is spread over the
#: training nodes; there are between 60 and 300 of them.
PEERS: dict[str, tuple[Settings, ...]] = {
    "SGC": tuple(
        _UNIT | {"method": "sgc", "augment": "power", "hops": 2, "learning_rate": 0.1, "weight_decay": decay}
        for decay in (0.001, 0.01, 0.1, 1.0)
    ),
    "S2GC": tuple(
        _UNIT | {"method": "sgc", "augment": "average", "learning_rate": 0.1, "weight_decay": decay}
        for decay in (0.001, 0.01, 0.1, 1.0)
    ),
    "SIGN": tuple(
        _UNIT | {"method": "sign", "augment": "hops", "weight_decay": decay, "eval_every": 2}
        for decay in (0.01, 0.1, 1.0)
    ),
    "GCN": tuple(
        {"method": "gcn", "hidden": 64, "epochs": 600, "weight_decay": decay} for decay in (0.007, 0.07, 0.7, 2.0)
    ),
    "GRAND": tuple({"method": "grand", "hidden": 64, "hops": hops, "weight_decay": 0.07} for hops in (2, 4, 8)),
}


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
    """The default of the library, with and without the nodes that have no labels, and its peers, on the same splits."""
    own: dict[str, tuple[Settings, ...]] = {DEFAULT: ({},), LABELLED_ONLY: ({"unlabelled": 0, "eval_every": 5},)}
    return [
        Cell(method, dataset, candidates, seeds) for dataset in datasets for method, candidates in (own | PEERS).items()
    ]


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
    text = render_methods(rows, [DEFAULT, LABELLED_ONLY, *PEERS])
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
    lines = []
    for method in methods:
        entries = []
        for dataset in datasets:
            entry = accuracy_entry(by_cell.get((method, dataset)))
            theirs = published(dataset, method)
            entries.append(entry if theirs is None else f"{entry} [{theirs:.3f}]")
        if any(entry != "-" for entry in entries):
            lines.append([method, *entries])
    return markdown(["", *titles], lines)


def accuracy_entry(row: Row | None) -> str:
    """Mean, spread and failures of the runs of a cell; a dash where there are none."""
    entry = "-" if row is None or "mean" not in row else f"{row['mean']:.3f}"
    if row is not None and row.get("std") is not None:
        entry += f" ± {row['std']:.3f}"
    failed = [run for run in (row or {}).get("runs", []) if run["status"] in ("NON_FINITE", "DIVERGED")]
    return entry + (f" ({len(failed)} failed)" if failed else "")
