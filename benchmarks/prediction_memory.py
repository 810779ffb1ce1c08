"""Memory that predict and evaluate take on a graph whose features are more than 1 GiB.

    python -m benchmarks.prediction_memory --folder /tmp/memory
    python -m benchmarks.prediction_memory --folder /tmp/memory --limit 1200           MB of memory that is not a file's

A model of a small graph is applied to a large one with the same features. Of each command: seconds, the peak of its
memory as the system counts it, in which pages of temporary files are that it would take back if it had to, and the peak
without these (Linux alone tells).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from experiments.record import write

CLASSES = 8
SETTINGS = "--hops 4 --layers 3 --hidden 64 --epochs 20 --weight-decay 0.1 --unlabelled 0 --normalize centered"
RUNS = {"hops": ["--augment", "hops"], "components": ["--augment", "hops", "--components", "64"]}


def make_graph(path: Path, nodes: int, edges: int, width: int) -> None:
    """Nodes of classes by turns, with masks."""
    if path.exists():
        return
    rng = np.random.default_rng(0)
    y, order = np.arange(nodes) % CLASSES, np.arange(nodes) % 11
    x = rng.standard_normal((CLASSES, width), dtype=np.float32)[y]
    x += rng.standard_normal((nodes, width), dtype=np.float32)
    masks = {f"{name}_mask": order == place for place, name in enumerate(("train", "val", "test"))}
    np.savez(path, x=x, edge_index=rng.integers(0, nodes, (2, edges)), y=y, **masks)


def measured(arguments: list[str], limit: int | None) -> dict[str, Any]:
    """Run the command and see what it takes."""
    begin, own = time.perf_counter(), 0
    most = (limit or 0) * 10**6
    before = functools.partial(resource.setrlimit, resource.RLIMIT_DATA, (most, most)) if limit else None
    process = subprocess.Popen(
        [sys.executable, "-m", "pdadmm_g", *arguments],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=before,
    )  # fmt: skip
    status = Path(f"/proc/{process.pid}/status")
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        parts = dict(line.split(":", 1) for line in status.read_text().splitlines())
        own = max(own, 1024 * int(parts.get("RssAnon", "0").split()[0]))
        time.sleep(0.02)
    found = {"seconds": round(time.perf_counter() - begin, 1), "code": os.waitstatus_to_exitcode(ended[1])}
    if found["code"]:
        assert process.stderr is not None
        return found | {"error": process.stderr.read().splitlines()[-1]}
    return found | {"peak_mb": ended[2].ru_maxrss * 1024 // 10**6, "without_files_mb": own // 10**6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("nodes", 1_000_000), ("edges", 3_000_000), ("width", 300)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    small, large = (str(options.folder / name) for name in ("small.npz", f"{options.nodes}-{options.width}.npz"))
    make_graph(Path(small), 10_000, 30_000, options.width)
    make_graph(Path(large), options.nodes, options.edges, options.width)
    figures: dict[str, Any] = {name: getattr(options, name) for name in ("nodes", "edges", "width", "limit")}
    for name, settings in RUNS.items():
        run = str(options.folder / name)
        train = ["train", "--dataset", small, "--out", run, "--overwrite", "--quiet", *settings, *SETTINGS.split()]
        subprocess.run([sys.executable, "-m", "pdadmm_g", *train], check=True)
        for command, more in (("predict", ["--out", os.devnull]), ("evaluate", [])):
            figures[f"{command} {name}"] = measured([command, run, "--dataset", large, *more], options.limit)
    print(json.dumps(figures, indent=1))
    write(options.out, figures)


if __name__ == "__main__":
    main()
