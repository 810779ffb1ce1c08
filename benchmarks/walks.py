"""How far a call goes: modules and functions that it passes, how often it changes folder, what is done more than once.

Counted with ``sys.setprofile`` in all threads, on a table of 300 nodes: ``fit(nodes, edges)``, the second of two calls;
and on each rank ``train --workers 2`` of the table, and ``train --shards 2`` of a folder of shards.

python -m benchmarks.walks
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd

PACKAGE = "/pdadmm_g/"
#: What should be done once.
ONCE = {
    "settings validated": ("config.py", "__post_init__"),
    "graph checked": ("graph/checks.py", "check_graph"),
    "split drawn": ("graph/examples.py", "with_masks"),
}


class Walk:
    def __init__(self) -> None:
        self.calls, self.folders = Counter[tuple[str, str]](), list[str]()

    def __enter__(self) -> Walk:
        threading.setprofile(self.called)
        sys.setprofile(self.called)
        return self

    def __exit__(self, *_: object) -> None:
        threading.setprofile(None)
        sys.setprofile(None)

    def called(self, frame: FrameType, event: str, _: Any) -> None:
        _, found, module = frame.f_code.co_filename.partition(PACKAGE)
        if event == "call" and found:
            self.calls[module, frame.f_code.co_name] += 1
            if threading.current_thread() is threading.main_thread():
                self.folders.append(module.rpartition("/")[0])

    def __str__(self) -> str:
        changes = sum(one != other for one, other in itertools.pairwise(self.folders))
        passed = f"{len({module for module, _ in self.calls})} modules, {len(self.calls)} functions"
        once = ", ".join(f"{name} {self.calls[call]} times" for name, call in ONCE.items())
        return f"{passed}, {changes} changes of folder; {once}"


def tables(number: int = 300) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Nodes of two kinds, a seventh of them labelled, and edges at random."""
    draw = np.random.default_rng(0)
    kind = draw.integers(2, size=number)
    labels = np.where(draw.random(number) < 1 / 7, np.array(["a", "b"])[kind], None)
    ids = np.array([f"n{each}" for each in range(number)])
    age, city = draw.normal(size=number) + kind, draw.choice(["x", "y", "z"], number)
    ends = draw.integers(number, size=(2, 3 * number))
    nodes = pd.DataFrame({"id": ids, "label": labels, "age": age, "city": city})
    return nodes, pd.DataFrame({"source": ids[ends[0]], "target": ids[ends[1]]})


def on_ranks(folder: Path, **settings: Any) -> None:
    """Train in processes, each of which prints its walk."""
    from pdadmm_g.config import RunConfig
    from pdadmm_g.engine import launch
    from pdadmm_g.runs.run import train_run

    launch.WORKER = [sys.executable, "-m", "benchmarks.walks"]
    os.environ["WALKS"] = str(folder)
    train_run(RunConfig(**settings, epochs=20, out=str(folder / "run")), overwrite=True)
    for rank in (0, 1):
        print(f"  rank {rank}: {json.loads((folder / f'{rank}.json').read_text())}")


def as_rank(job: Path) -> None:
    from pdadmm_g.engine import launch

    with Walk() as walk:
        launch.main(job)
    Path(os.environ["WALKS"], f"{os.environ['RANK']}.json").write_text(json.dumps(str(walk)))


def main() -> None:
    from pdadmm_g import GAMLPClassifier
    from pdadmm_g.graph.shards import open_source, shard_graph

    nodes, edges = tables()
    GAMLPClassifier(random_state=0).fit(nodes, edges)
    with Walk() as walk:
        GAMLPClassifier(random_state=0).fit(nodes, edges)
    print(f"fit(nodes, edges): {walk}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = folder / "nodes.csv", folder / "edges.csv"
        for table, file in zip((nodes, edges), files, strict=True):
            table.to_csv(file, index=False)
        shard_graph(open_source(str(files[0]), edges=str(files[1])), 2, folder / "shards")
        print("train --workers 2")
        on_ranks(folder, dataset=str(files[0]), edges=str(files[1]), workers=2)
        print("train --shards 2")
        on_ranks(folder, dataset=str(folder / "shards"), shards=2, workers=1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        as_rank(Path(sys.argv[1]))
        os._exit(0)
    main()
