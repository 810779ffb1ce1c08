"""Random splits: one split of a graph may suit a method by luck, ten tell whether it is ahead."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pdadmm_g.graph.graph import MASKS, Graph, as_mask
from pdadmm_g.graph.targets import hard_labels

from .cells import Cell, Settings
from .paired import draw_differences, render_differences
from .results import Row
from .tables import DEFAULT, PEERS

SPLITS = tuple(range(10))
#: Training nodes of a class, half of a class that has fewer than twice as many, and validation nodes of all.
TRAINING, VALIDATION = 20, 500
#: Each method with the settings that the validation nodes of a split choose among.
METHODS: dict[str, tuple[Settings, ...]] = {DEFAULT: ({},)} | PEERS


def random_split(data: Graph, number: int) -> Graph:
    """The graph with the masks of the split of that number: 20 nodes a class train, 500 validate, the rest test.

    Nodes without label are in no mask.
    """
    draw = np.random.default_rng(1000 + number)
    y = hard_labels(data).numpy()
    training = np.concatenate([_training_nodes(y, label, draw) for label in np.unique(y[y >= 0])])
    rest = draw.permutation(np.setdiff1d(np.flatnonzero(y >= 0), training))
    data = copy.copy(data)
    for mask, nodes in zip(MASKS, (training, rest[:VALIDATION], rest[VALIDATION:]), strict=True):
        data[mask] = as_mask(nodes, data.num_nodes, mask)
    return data


def _training_nodes(y: np.ndarray, label: int, draw: np.random.Generator) -> np.ndarray:
    nodes = draw.permutation(np.flatnonzero(y == label))
    return nodes[: TRAINING if len(nodes) >= 2 * TRAINING else len(nodes) // 2]


def cells(datasets: Sequence[str], splits: tuple[int, ...]) -> list[Cell]:
    """Every method once on every split, the number of which is its seed too."""
    return [
        Cell(method, dataset, candidates, splits, split=random_split)
        for dataset in datasets
        for method, candidates in METHODS.items()
    ]


def render(rows: Sequence[Row]) -> str:
    """Markdown: mean and spread over the splits, then how far the default is ahead of each peer on the same splits."""
    return render_differences(rows, list(METHODS), [(DEFAULT, peer) for peer in PEERS])


def figure(rows: Sequence[Row], path: Path) -> None:
    """How far the default is ahead of each peer on each graph, in points."""
    pairs = {f"ahead of {peer}": (DEFAULT, peer) for peer in PEERS}
    draw_differences(rows, pairs, path, "points that the default is ahead")
