"""Memory of one of M shards against that of all rows in one process.

    python -m benchmarks.shard_memory --folder /tmp/memory --out results/performance/shard-memory

Makes a random graph, shards it, and trains it for a few epochs on 1, 2 and 4 shards of one worker each. What a process
takes besides, its interpreter and libraries, is the peak of the same run on a graph of a few nodes.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from experiments.results import write

from .large_graph import make_graph, timed


def peak(folder: Path, options: argparse.Namespace, shards: int) -> float:
    """Bytes of the largest process."""
    rows: dict[str, Any] = {}
    train = ["train", "--dataset", str(folder / "shards"), "--shards", str(shards), "--workers", "1"]
    # Nothing is left to the data: short runs of what is tried take a few hundred megabytes, however large the graph.
    train += [
        "--augment",
        "average",
        "--hops",
        "2",
        "--normalize",
        "centered",
        "--label-hops",
        "0",
        "--unlabelled",
        "0",
    ]
    train += ["--weight-decay", "1", "--solver", "linearized", "--patience", "none", "--row-normalize"]
    train += ["--layers", str(options.layers), "--stages", str(options.layers), "--hidden", str(options.hidden)]
    train += ["--epochs", "3", "--eval-every", "3", "--out", str(folder / "run"), "--overwrite"]
    timed(f"{shards} shards", train, rows)
    return float(rows[f"{shards} shards"]["peak_bytes"])


def sharded(folder: Path, options: argparse.Namespace) -> Path:
    """The folder with a random graph in four shards."""
    make_graph(folder / "arrays", options)
    timed("shard", ["shard", str(folder / "arrays"), "--shards", "4", "--out", str(folder / "shards")], {})
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    for name, default in (
        ("nodes", 250_000), ("edges", 1_000_000), ("features", 64), ("train", 200_000), ("layers", 8), ("hidden", 128),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    folder = sharded(options.folder, options)
    peaks = {str(shards): peak(folder, options, shards) for shards in (1, 2, 4)}
    with tempfile.TemporaryDirectory() as name:
        few = argparse.Namespace(**vars(options) | {"nodes": 1000, "edges": 2000, "train": 500})
        constant = peak(sharded(Path(name), few), few, 2)
    shares = {shards: (bytes_ - constant) / (peaks["1"] - constant) * int(shards) for shards, bytes_ in peaks.items()}
    figures = {"peak_bytes": peaks, "constant_bytes": constant, "times_one_part_of_one_process": shares}
    print(figures)
    write(options.out, figures)


if __name__ == "__main__":
    main()
