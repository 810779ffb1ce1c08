"""How far a call goes: modules and functions that ``fit(nodes, edges)`` passes, and how often it changes folder.

Counted with ``sys.setprofile`` in all threads, on a table of 300 nodes, in the second of two calls. Also how often
settings are validated.

python -m benchmarks.walks
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections import Counter
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd

from pdadmm_g import GAMLPClassifier

PACKAGE = "/pdadmm_g/"


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


def main() -> None:
    nodes, edges = tables()
    calls, folders = Counter[tuple[str, str]](), list[str]()

    def called(frame: FrameType, event: str, argument: Any) -> None:
        _, found, module = frame.f_code.co_filename.partition(PACKAGE)
        if event == "call" and found:
            calls[module, frame.f_code.co_name] += 1
            if threading.current_thread() is threading.main_thread():
                folders.append(module.rpartition("/")[0])

    for profile in (None, called):
        threading.setprofile(profile)
        sys.setprofile(profile)
        GAMLPClassifier(random_state=0).fit(nodes, edges)
        threading.setprofile(None)
        sys.setprofile(None)
    changes = sum(one != other for one, other in itertools.pairwise(folders))
    print(f"{len({module for module, _ in calls})} modules, {len(calls)} functions, {changes} changes of folder")
    print(f"settings validated {calls['config.py', '__post_init__']} times")


if __name__ == "__main__":
    main()
