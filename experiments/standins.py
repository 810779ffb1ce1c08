"""Flickr and ogbn-arxiv with made-up features: their real graphs, labels and splits, for scale and not for accuracy.

The features are Gaussian around a centre for each class, in as many dimensions as the real ones have, so noisy that a
network without the graph is right about half the time. They are written in the raw format of each data set, and
loaded by the code that loads the real ones.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pdadmm_g.errors import InputError
from pdadmm_g.graph.datasets import cache_folder

from .cells import Cell, finished, run_cells
from .results import Results, Row, arranged, markdown

#: Folder, features, and the length of the class centres (the noise has standard deviation 1).
STANDINS = {"flickr": ("flickr", 500, 0.9), "ogbn-arxiv": ("ogbn_arxiv", 128, 1.9)}
#: The raw file with the features.
FEATURES = {"flickr": "feats.npy", "ogbn-arxiv": "node-feat.csv.gz"}
SETTINGS: dict[str, Any] = {
    "layers": 10, "growth": "all", "hidden": 100, "solver": "linearized", "epochs": 40, "patience": 40,
    "eval_every": 20, "weight_decay": 1.0, "row_normalize": False, "normalize": "unit", "threads": 2,
}  # fmt: skip
INPUTS: dict[str, dict[str, Any]] = {
    "features alone": {"augment": "none"},
    "with the graph": {"augment": "hops", "hops": 4},
}


def make(name: str, data_root: Path, out: Path) -> Path:
    """A data root with links to the files of the benchmark and stand-in features; the folder to pass as ``data_root``.

    The real features are not linked, even where they are there: what is written to a link ends in its source.
    """
    folder, width, centre = STANDINS[name]
    source, target = data_root / folder, out / folder
    if not source.is_dir():
        raise InputError(f"{source}: the graph of {name} is not there; stand-in features need its real graph")
    others = shutil.ignore_patterns(FEATURES[name])
    # Folders that are links are followed: the copy has folders of its own.
    shutil.copytree(source, target, symlinks=False, ignore=others, copy_function=_link, dirs_exist_ok=True)
    labels = _labels(name, target)
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((labels.max() + 1, width))
    centres *= centre / np.linalg.norm(centres, axis=1, keepdims=True)
    features = (centres[labels] + generator.standard_normal((len(labels), width))).astype(np.float32)
    file = target / "raw" / FEATURES[name]
    if name == "flickr":
        np.save(file, features)
    else:
        with gzip.open(file, "wt", compresslevel=1) as stream:
            np.savetxt(stream, features, fmt="%.4f", delimiter=",")
    return out


def _link(source: str, target: str) -> None:
    real, link = Path(source).resolve(), Path(target)
    if link.is_symlink():
        link.unlink()
    link.symlink_to(real)


def _labels(name: str, folder: Path) -> np.ndarray:
    if name == "flickr":
        by_node = json.loads((folder / "raw" / "class_map.json").read_text())
        return np.array([by_node[str(node)] for node in range(len(by_node))])
    with gzip.open(folder / "raw" / "node-label.csv.gz", "rt") as file:
        return np.loadtxt(file, dtype=np.int64)


def run(names: Sequence[str], results: Results, *, data_root: str | None, **options: Any) -> Iterator[Row]:
    """pdADMM-G with and without the graph, on stand-in features that are made in the cache folder."""
    for name in names:
        cells = [Cell(method, name, (SETTINGS | settings,), (0,)) for method, settings in INPUTS.items()]
        root = data_root
        if any(finished(results, cell) is None for cell in cells):
            if data_root is None:
                raise InputError("stand-ins need the real graphs: pass --data-root or set PDADMM_G_DATA")
            root = str(make(name, Path(data_root), cache_folder() / "stand-in-features"))
        yield from run_cells(cells, results, data_root=root, **options)


def render(rows: Sequence[Row]) -> str:
    """Markdown, with the warning that belongs to it."""
    warning = "Stand-in features, not the real ones: these figures say nothing about the accuracy on the benchmark.\n\n"
    lines = []
    for row in arranged(rows, dataset=list(STANDINS), method=list(INPUTS)):
        run = row["runs"][0]
        figures = [f"{run['test_accuracy']:.3f}", str(run["epochs"]), f"{run['seconds']:.0f}"]
        lines.append([f"{row['dataset']}, stand-in", row["method"], *figures])
    return warning + markdown(["data set", "input", "test accuracy", "epochs", "seconds"], lines)
