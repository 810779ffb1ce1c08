"""Predictions where augmented features fill several chunks of memory: seconds, and whether they are the same.

    python -m benchmarks.prediction --nodes 200000 --edges 2000000 --width 256 --chunks 1 6

The graph is gone over once however many chunks there are, so that six should take little longer than one: what writing
and reading the propagated features takes.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

import pdadmm_g.estimator
from experiments.record import write
from pdadmm_g import GAMLPClassifier
from pdadmm_g.data.graph import Graph

CLASSES, HOPS = 8, 4


def random_graph(nodes: int, edges: int, width: int) -> Graph:
    """Nodes of classes by turns, of which a hundred each train."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(nodes) % CLASSES
    x = torch.randn(nodes, width, generator=generator) + torch.randn(CLASSES, width, generator=generator)[y]
    mask = torch.arange(nodes) < 100 * CLASSES
    return Graph(x=x, edge_index=torch.randint(nodes, (2, edges), generator=generator), y=y, train_mask=mask)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("nodes", 200_000), ("edges", 2_000_000), ("width", 256)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--chunks", type=int, nargs="+", default=[1, 6])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    data = random_graph(options.nodes, options.edges, options.width)
    clf = GAMLPClassifier(
        layers=2, epochs=2, augment="hops", hops=HOPS, normalize="unit", weight_decay=0.1, unlabelled=0, validation=0
    ).fit(data)
    size = 4 * HOPS * options.nodes * options.width
    figures = {"nodes": options.nodes, "edges": options.edges, "augmented_gib": size / 2**30, "seconds": {}}
    first = None
    for chunks in options.chunks:
        pdadmm_g.estimator.PREDICT_BYTES = -(-size // chunks)
        begin = time.perf_counter()
        found = clf.predict_proba(data)
        figures["seconds"][chunks] = round(time.perf_counter() - begin, 2)
        first = found if first is None else first
        figures["largest_difference"] = max(figures.get("largest_difference", 0.0), float(np.abs(found - first).max()))
    print(json.dumps(figures, indent=1))
    write(options.out, figures)


if __name__ == "__main__":
    main()
