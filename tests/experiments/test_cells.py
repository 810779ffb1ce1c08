from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from torch_geometric.data import Data

from pdadmm_g.errors import InputError
from pdadmm_g.experiments import cells
from pdadmm_g.experiments.cells import Cell, run_cell, run_cells

FAST = {"layers": 2, "hidden": 8, "epochs": 5, "augment": "average", "hops": 2, "weight_decay": 0.1}


@pytest.fixture
def graph(tmp_path: Path, tiny_graph: Data) -> str:
    names = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")
    np.savez(tmp_path / "graph.npz", **{name: tiny_graph[name].numpy() for name in names})
    return str(tmp_path / "graph.npz")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, dict]]:
    """What was really run."""
    made, run_once = [], cells.run_once

    def counted(dataset, settings, seed, data_root, device):
        made.append((seed, settings))
        return run_once(dataset, settings, seed, data_root, device)

    monkeypatch.setattr(cells, "run_once", counted)
    return made


class FileCell(Cell):
    file = "cell.json"


def test_a_finished_cell_is_not_run_again(graph: str, tmp_path: Path, runs) -> None:
    cell = FileCell("mine", graph, (FAST,), (0, 1))
    options = {"data_root": None, "processes": 1, "command": "test"}
    (first,) = run_cells([cell], tmp_path / "out", **options)
    assert [seed for seed, _ in runs] == [0, 1]
    (second,) = run_cells([cell], tmp_path / "out", **options)
    assert len(runs) == 2
    assert first == second
    assert first["mean"] == np.mean([run["test_accuracy"] for run in first["runs"]])
    assert {"command", "date", "hardware", "versions"} <= set(first)


def test_more_seeds_keep_the_ones_that_are_there(graph: str, tmp_path: Path, runs) -> None:
    run_cell(FileCell("mine", graph, (FAST,), (0,)), tmp_path, None, "test")
    result = run_cell(FileCell("mine", graph, (FAST,), (0, 7)), tmp_path, None, "with both seeds")
    assert [seed for seed, _ in runs] == [0, 7]
    assert result["command"] == "with both seeds"
    assert [run["seed"] for run in result["runs"]] == [0, 7]


def test_other_settings_are_another_cell(graph: str, tmp_path: Path, runs) -> None:
    run_cell(FileCell("mine", graph, (FAST,), (0,)), tmp_path, None, "test")
    run_cell(FileCell("mine", graph, (FAST | {"epochs": 6},), (0,)), tmp_path, None, "test")
    assert len(runs) == 2


def test_the_candidate_that_is_best_on_validation_is_taken(graph: str, tmp_path: Path, monkeypatch) -> None:
    """The other one is better on test: that must not matter."""

    def measured(dataset, settings, seed, data_root, device):
        good = settings["weight_decay"] == 0.2
        accuracies = {"val_accuracy": 0.9 if good else 0.8, "test_accuracy": 0.1 if good else 1.0, "val_loss": 1.0}
        return {"seed": seed, **accuracies, "status": "MAX_EPOCHS"}

    monkeypatch.setattr(cells, "run_once", measured)
    candidates = tuple(FAST | {"weight_decay": decay} for decay in (0.1, 0.2))
    result = run_cell(FileCell("mine", graph, candidates, (0, 1)), tmp_path, None, "test")
    assert result["settings"]["weight_decay"] == 0.2
    assert [run["test_accuracy"] for run in result["runs"]] == [0.1, 0.1]
    assert len(result["search"]) == 2


def test_candidates_are_compared_over_several_seeds(graph: str, tmp_path: Path, monkeypatch) -> None:
    """The first candidate is better with the first seed, the second over both."""
    accuracies = {(0.1, 0): 0.9, (0.1, 1): 0.5, (0.2, 0): 0.8, (0.2, 1): 0.8, (0.2, 2): 0.7}

    def measured(dataset, settings, seed, data_root, device):
        accuracy = accuracies[settings["weight_decay"], seed]
        return {"seed": seed, "val_accuracy": accuracy, "test_accuracy": accuracy, "val_loss": 1.0, "status": "DONE"}

    monkeypatch.setattr(cells, "run_once", measured)
    candidates = tuple(FAST | {"weight_decay": decay} for decay in (0.1, 0.2))
    result = run_cell(FileCell("mine", graph, candidates, (0, 1, 2), search_seeds=2), tmp_path, None, "test")
    assert [run["test_accuracy"] for run in result["runs"]] == [0.8, 0.8, 0.7]


def test_a_broken_result_file_is_named(graph: str, tmp_path: Path) -> None:
    (tmp_path / "cell.json").write_text("{")
    with pytest.raises(InputError, match=r"cell\.json: cannot read the results"):
        run_cell(FileCell("mine", graph, (FAST,), (0,)), tmp_path, None, "test")


def test_results_are_plain_json(graph: str, tmp_path: Path) -> None:
    run_cell(FileCell("mine", graph, (FAST,), (0,)), tmp_path, None, "test")
    json.loads((tmp_path / "cell.json").read_text(), parse_constant=lambda text: pytest.fail(text))
