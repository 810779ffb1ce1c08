"""Graphs that nothing was set on: from every edge between different classes to every edge within one.

A stochastic block model with Gaussian features. The share of edges within a class is the homophily; 1/5 tells nothing,
and below it a neighbour speaks against its own class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pdadmm_g.graph.datasets import cache_folder

from .cells import Cell, run_cells
from .results import Results, Row
from .tables import render_methods

NODES, CLASSES, FEATURES, DEGREE = 3000, 5, 100, 8
HOMOPHILY = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
#: Length of the class centres; the noise has standard deviation 1.
CENTRE = 2.0
METHODS: dict[str, dict[str, Any]] = {
    "pdADMM-G default": {"eval_every": 5},
    "Adam, same network": {"method": "adam", "eval_every": 5},
    "SGC": {"method": "sgc", "normalize": "unit", "learning_rate": 0.1, "weight_decay": 0.01, "eval_every": 5},
    "features alone": {"augment": "none", "eval_every": 5},
}


def make(homophily: float, *, seed: int = 0) -> dict[str, np.ndarray]:
    """The arrays of one graph: 20 training nodes a class, 500 validation nodes, 1000 test nodes."""
    draw = np.random.default_rng([seed, round(1000 * homophily)])
    y = np.arange(NODES) % CLASSES
    centres = draw.standard_normal((CLASSES, FEATURES))
    centres *= CENTRE / np.linalg.norm(centres, axis=1, keepdims=True)
    x = (centres[y] + draw.standard_normal((NODES, FEATURES))).astype(np.float32)
    source = draw.integers(NODES, size=NODES * DEGREE // 2)
    other = draw.integers(1, CLASSES, size=len(source))
    shift = np.where(draw.random(len(source)) < homophily, 0, other)
    # Nodes of class c are c, c + CLASSES, c + 2 CLASSES, ...
    target = (y[source] + shift) % CLASSES + CLASSES * draw.integers(NODES // CLASSES, size=len(source))
    order = draw.permutation(NODES)
    training = np.concatenate([order[y[order] == label][:20] for label in range(CLASSES)])
    rest = order[~np.isin(order, training)]
    edges = np.stack([np.concatenate([source, target]), np.concatenate([target, source])])
    masks = {"train_mask": training, "val_mask": rest[:500], "test_mask": rest[500:1500]}
    return {"x": x, "y": y, "edge_index": edges, **masks}


def run(
    results: Results, seeds: tuple[int, ...], *, degrees: Sequence[float] = HOMOPHILY, **options: Any
) -> Iterator[Row]:
    """The default beside Adam on the same network, a linear model on the second power, and the features alone."""
    graphs = cache_folder() / "homophily"
    graphs.mkdir(parents=True, exist_ok=True)
    cells = []
    for degree in degrees:
        path = graphs / _file(degree)
        np.savez(path, **make(degree))  # type: ignore[arg-type]
        cells += [Cell(method, path.name, (settings,), seeds) for method, settings in METHODS.items()]
    options["data_root"] = str(graphs)
    yield from run_cells(cells, results, **options)


def _file(degree: float) -> str:
    return f"homophily-{degree:g}.npz"


def render(rows: Sequence[Row]) -> str:
    """Markdown: methods in rows, graphs in columns."""
    return render_methods(rows, list(METHODS), [_file(degree) for degree in HOMOPHILY])
