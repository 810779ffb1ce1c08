"""A graph that is too large for one process, from arrays on disk to predictions: wall time, memory and bytes.

    python -m benchmarks.large_graph --folder /scratch/large --out large.json                           10 million nodes
    python -m benchmarks.large_graph --folder /tmp/large --nodes 100000 --edges 1000000 --train 10000 --shards 2

Makes a random graph with communities as a folder of arrays, in blocks; then shards it, trains (which augments first),
and predicts all nodes, each by the command line.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.results import write

CLASSES, BLOCK = 16, 1 << 20


def make_graph(folder: Path, options: argparse.Namespace) -> None:
    """Nodes in communities by turns; half of the edges stay within one."""
    if (folder / "done").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    nodes, features, edges = options.nodes, options.features, options.edges
    centres = rng.standard_normal((CLASSES, features), dtype=np.float32)
    open_array = functools.partial(np.lib.format.open_memmap, mode="w+")
    x = open_array(folder / "x.npy", dtype=np.float32, shape=(nodes, features))
    for start in range(0, nodes, BLOCK):
        own = np.arange(start, min(start + BLOCK, nodes))
        x[own[0] : own[-1] + 1] = centres[own % CLASSES] + 3 * rng.standard_normal((len(own), features), np.float32)
    ends = open_array(folder / "edge_index.npy", dtype=np.int32, shape=(2, edges))
    for start in range(0, edges, BLOCK):
        size = min(BLOCK, edges - start)
        source, target = rng.integers(0, nodes, (2, size), dtype=np.int32)
        within = np.minimum(target - target % CLASSES + source % CLASSES, nodes - 1)
        ends[:, start : start + size] = source, np.where(rng.random(size) < 0.5, within, target)
    np.save(folder / "y.npy", np.arange(nodes) % CLASSES)
    order = rng.permutation(nodes)
    validation = min(options.train // 10, 100_000)
    for name, part in (
        ("train", order[: options.train]),
        ("val", order[options.train : options.train + validation]),
        ("test", order[-validation:]),
    ):
        mask = np.zeros(nodes, dtype=bool)
        mask[part] = True
        np.save(folder / f"{name}_mask.npy", mask)
    (folder / "done").touch()


def timed(name: str, arguments: list[str], rows: dict[str, Any]) -> dict[str, Any]:
    """Run the command; wall time, peak memory of its largest process, and what it prints as JSON."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "pdadmm_g", *arguments, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)  # of the process and of those that it has started
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begin
    if process.returncode:
        raise SystemExit(process.returncode)
    rows[name] = {"seconds": round(seconds, 1), "peak_bytes": 1024 * used.ru_maxrss}
    print(f"{name}: {seconds:.1f} s", file=sys.stderr, flush=True)
    result: dict[str, Any] = json.loads(text)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    for name, default in (
        ("nodes", 10_000_000), ("edges", 100_000_000), ("features", 128), ("train", 1_000_000), ("shards", 8),
        ("workers", 1), ("hops", 4), ("layers", 8), ("hidden", 256), ("epochs", 20),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--solver", default="linearized")
    parser.add_argument("--keep", action="store_true", help="use shards and features that are there already")
    options = parser.parse_args()
    folder, shards = options.folder, str(options.shards)
    shape = ("nodes", "edges", "features", "train", "shards", "workers", "hops", "layers", "hidden", "epochs", "solver")
    rows: dict[str, Any] = {"options": {name: getattr(options, name) for name in shape}}
    begin = time.perf_counter()
    make_graph(folder / "arrays", options)
    rows["make"] = {"seconds": round(time.perf_counter() - begin, 1)}
    if not options.keep:
        shutil.rmtree(folder / "shards", ignore_errors=True)
    timed("shard", ["shard", str(folder / "arrays"), "--shards", shards, "--out", str(folder / "shards")], rows)
    train = ["train", "--dataset", str(folder / "shards"), "--shards", shards, "--workers", str(options.workers)]
    train += ["--augment", "average", "--hops", str(options.hops), "--normalize", "centered"]
    train += ["--layers", str(options.layers), "--stages", str(options.layers), "--hidden", str(options.hidden)]
    train += ["--epochs", str(options.epochs), "--patience", "none", "--weight-decay", "1", "--eval-every", "5"]
    train += ["--solver", options.solver, "--out", str(folder / "run"), "--overwrite", "--timeout", "300"]
    summary = timed("train", train, rows)
    rows["train"] |= {name: summary[name] for name in ("seconds", "train_accuracy", "test_accuracy", "bytes_sent")} | {
        "wall_seconds": rows["train"]["seconds"]
    }
    rows["augment"] = {"seconds": summary["times"]["features"]}
    run = str(folder / "run")
    timed("predict", ["predict", run, "--shards", shards, "--out", str(folder / "predictions.csv")], rows)
    print(json.dumps(rows, indent=1))
    write(options.out, rows)


if __name__ == "__main__":
    main()
