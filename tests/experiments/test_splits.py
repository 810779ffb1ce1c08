from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from experiments import cells, splits
from experiments.cells import Cell, run_cell
from experiments.results import Results
from experiments.tables import DEFAULT, PEERS

MASKS = ("train_mask", "val_mask", "test_mask")


def labelled(*sizes: int) -> Data:
    """A graph of classes of these sizes, which are mixed."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    return Data(x=torch.eye(2)[[0]].repeat(len(y), 1), y=torch.from_numpy(y), edge_index=torch.zeros(2, 0).long())


@pytest.mark.parametrize("number", [0, 7])
def test_splits_are_drawn_as_the_protocol_says(number: int) -> None:
    """Three classes with at least 40 nodes, of which 20 train; one of 39 and one of 7, of which 19 and 3 do.

    Nodes without label are in no mask.
    """
    data = labelled(300, 39, 400, 7, 40)
    data.y[np.flatnonzero(data.y.numpy() == 0)[::3]] = -1
    y = data.y.numpy()
    rng = np.random.default_rng(1000 + number)
    train = []
    for label, size in enumerate((20, 19, 20, 3, 20)):
        train += rng.permutation(np.flatnonzero(y == label))[:size].tolist()
    rest = rng.permutation(np.setdiff1d(np.flatnonzero(y >= 0), train))
    found = splits.random_split(data, number)
    for mask, nodes in zip(MASKS, (train, rest[:500], rest[500:]), strict=True):
        assert found[mask].nonzero().view(-1).tolist() == sorted(nodes), mask
    assert int(found.test_mask.sum()) == 686 - 82 - 500
    assert not any(mask in data for mask in MASKS), "the graph itself stays as it was"


def test_each_split_chooses_for_itself_and_goes_on_where_it_was(
    graph_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[float, int]] = []
    stop_at = [(0.2, 0), (0.3, 1)]
    # By decay and split: accuracy and loss on validation. Accuracy decides, then the loss; test must not matter.
    validation = {(0.1, 0): (0.9, 2.0), (0.2, 0): (0.9, 1.0), (0.3, 0): (0.8, 0.1),
                  (0.1, 1): (0.7, 1.0), (0.2, 1): (0.6, 1.0), (0.3, 1): (0.8, 5.0)}  # fmt: skip

    def measured(dataset, settings, seed, data_root, device, split):
        assert split is splits.random_split
        case = (settings["weight_decay"], seed)
        if case in stop_at:
            stop_at.remove(case)
            raise KeyboardInterrupt
        made.append(case)
        accuracy, loss = validation[case]
        return {"seed": seed, "val_accuracy": accuracy, "val_loss": loss, "test_accuracy": 1 - case[0], "seconds": 1.0}

    monkeypatch.setattr(cells, "run_once", measured)
    candidates = tuple({"weight_decay": decay} for decay in (0.1, 0.2, 0.3))
    cell = Cell("mine", str(graph_file), candidates, (0, 1), split=splits.random_split)
    results = Results(tmp_path / "out", "test")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            run_cell(cell, results, None)
    row = run_cell(cell, results, None)
    assert made == list(validation)
    assert [run["settings"]["weight_decay"] for run in row["runs"]] == [0.2, 0.3]
    assert row["mean"] == pytest.approx(0.75)
    assert len(row["search"]) == 4
    assert run_cell(cell, results, None)["runs"] == row["runs"]
    assert len(made) == 6


def test_the_command_runs_every_method_on_every_split(reproduce, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def measured(dataset, settings, seed, data_root, device, split):
        made.append((dataset, settings.get("method", "pdadmm-g"), seed))
        accuracy = 0.8 if not settings else 0.7 + seed / 100
        return {"seed": seed, "val_accuracy": 0.5, "val_loss": 1.0, "test_accuracy": accuracy, "status": "DONE"}

    monkeypatch.setattr(cells, "run_once", measured)
    assert reproduce("random-splits", "--quick")[0] == 0
    assert {(dataset, seed) for dataset, _, seed in made} == {("cora", 0), ("cora", 1)}
    tried = [method for _, method, seed in made if seed == 0]
    assert tried == ["pdadmm-g", *["sgc"] * 8, *["sign"] * 3, *["gcn"] * 4, *["grand"] * 3]
    lines = Path("results/random-splits-quick/table.md").read_text().splitlines()
    assert lines[2:4] == [f"| {DEFAULT} | 0.800 ± 0.000 | 0.800 |", "| SGC | 0.705 ± 0.007 | 0.705 |"]
    assert lines[-1] == f"| {DEFAULT} minus {[*PEERS][-1]}, points | +9.50 ± 0.50 | +9.50 ± 0.50 |"
    assert Path("results/random-splits-quick/figure.png").exists()
    before = len(made)
    assert reproduce("random-splits", "--quick", "--seeds", "1,2")[0] == 0
    assert {seed for _, _, seed in made[before:]} == {2}
