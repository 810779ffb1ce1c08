"""How long ``GAMLPClassifier().fit`` takes from the graph to the model, all choices included, and the memory it needs.

    python benchmarks/time_to_fit.py --data-root raw --out results/performance/time-to-fit.json

Each measurement is a process of its own: seconds of ``fit`` alone (the graph is loaded, everything is imported), and
the largest memory of the process less that before ``fit``, as a multiple of the features.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from pathlib import Path
from typing import Any

from record import write

from pdadmm_g import GAMLPClassifier
from pdadmm_g.data.datasets import load_dataset


def measure(dataset: str, data_root: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """One fit."""
    data = load_dataset(dataset, data_root)
    before, start = _memory(), time.perf_counter()
    classifier = GAMLPClassifier(**settings, random_state=seed).fit(data)
    seconds = time.perf_counter() - start
    return {
        "dataset": dataset,
        "seed": seed,
        "settings": settings,
        "seconds": round(seconds, 2),
        "training_seconds": round(classifier.seconds_, 2),
        "unlabelled": classifier.config_.unlabelled,
        "memory_over_features": round((_memory() - before) / (4 * data.x.numel()), 2),
    }


def _memory() -> int:
    """The most bytes that the process has had so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", required=True, help="folder of raw benchmark files")
    parser.add_argument("--datasets", default="cora,coauthor-physics")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = []
    for seed in range(args.repeats):
        for dataset in args.datasets.split(","):
            for settings in ({"device": args.device}, {"device": args.device, "unlabelled": 0}):
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    rows.append(pool.apply(measure, (dataset, args.data_root, settings, seed)))
                print(json.dumps(rows[-1]), flush=True)
    write(args.out, {"rows": rows})


if __name__ == "__main__":
    main()
