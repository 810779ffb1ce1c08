from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from experiments import cells
from experiments.cells import Cell, run_cell, run_cells
from experiments.results import Results

FAST = {
    "layers": 2, "hidden": 8, "epochs": 5, "augment": "average", "hops": 2, "teleport": 0.05, "normalize": "unit",
    "weight_decay": 0.1,
    "unlabelled": 0,
}  # fmt: skip
OPTIONS = {"data_root": None, "processes": 1}


@pytest.fixture
def graph(graph_file: Path) -> str:
    return str(graph_file)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, dict]]:
    """What was really run."""
    made, run_once = [], cells.run_once

    def counted(dataset, settings, seed, data_root, device, split):
        made.append((seed, settings))
        return run_once(dataset, settings, seed, data_root, device, split)

    monkeypatch.setattr(cells, "run_once", counted)
    return made


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "out", "test")


def test_a_finished_cell_is_not_run_again(graph: str, results: Results, runs) -> None:
    """With more seeds only those that are new are run; with other settings it is another cell."""
    cell = Cell("mine", graph, (FAST,), (0, 1))
    (first,) = run_cells([cell], results, **OPTIONS)
    assert [seed for seed, _ in runs] == [0, 1]
    assert list(run_cells([cell], results, **OPTIONS)) == [first]
    assert first["mean"] == np.mean([run["test_accuracy"] for run in first["runs"]])
    assert {"command", "date", "hardware", "versions"} <= set(first)
    row = run_cell(Cell("mine", graph, (FAST,), (0, 7)), Results(results.folder, "with both seeds"), None)
    assert [seed for seed, _ in runs] == [0, 1, 7]
    assert row["command"] == "with both seeds"
    assert [run["seed"] for run in row["runs"]] == [0, 1, 7]
    run_cell(Cell("mine", graph, (FAST | {"epochs": 6},), (0,)), results, None)
    assert len(runs) == 4


@pytest.mark.timeout(120)
def test_processes_of_a_pool_write_one_file_and_leave_the_interrupt_to_the_command(
    graph: str, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process stands for all of them, each takes seconds to start; several writers are in test_results.py.

    A terminal interrupts all, and one that raised would print where it was. With the command they end.
    """
    names, numbers = [f"method {number}" for number in range(4)], []
    cases = [Cell(name, graph, (FAST,), (0, 1)) for name in names]

    def interrupted() -> None:
        with cells.process_pool(1) as pool:
            monkeypatch.setattr(cells, "process_pool", lambda _: contextlib.nullcontext(pool))
            rows = list(run_cells(cases, results, data_root=None, processes=2))
            assert [row["method"] for row in results.rows()] == names
            assert sorted(rows, key=lambda row: row["method"]) == results.rows()
            assert all([run["seed"] for run in row["runs"]] == [0, 1] for row in rows)
            assert pool.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN
            numbers.append(pool.submit(os.getpid).result())
            pool.submit(time.sleep, 1000.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(ProcessLookupError):
        os.kill(numbers[0], 0)
