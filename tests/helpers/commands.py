"""Small settings and graphs for commands, and what a refusal looks like."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pdadmm_g.graph.graph import Graph

#: Features and weight decay, so that nothing is searched for.
FIXED = [
    "--augment", "average", "--hops", "2", "--teleport", "0.05", "--normalize", "unit", "--label-hops", "0",
    "--weight-decay", "0.1",
]  # fmt: skip
SMALL = ["--layers", "3", "--hidden", "8", "--epochs", "5", *FIXED]


def save(path: Path, data: Graph, **changes: object) -> Path:
    arrays = {name: np.asarray(value) for name, value in (data.to_dict() | changes).items() if value is not None}
    np.savez(path, **arrays)
    return path


def assert_refused(code: int, out: str, err: str, *messages: str) -> None:
    """Exit code 2, and a last line that says why; before it only what was being done."""
    assert code == 2
    assert out == ""
    *before, line = err.splitlines()
    assert set(before) <= {"starting", "reading"}
    assert line.startswith("error: ")
    for message in messages:
        assert message in line
