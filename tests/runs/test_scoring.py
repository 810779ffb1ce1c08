from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from helpers.run_files import record
from pdadmm_g.config import ModelConfig
from pdadmm_g.runs.scoring import confusion, unquantized_bytes, work_seconds, worker_totals


def test_confusion_of_test_nodes_else_of_validation_nodes(tiny_graph: Data) -> None:
    predicted = torch.zeros(20, dtype=torch.int64)
    classes = np.array([0, 1])
    assert confusion(tiny_graph, predicted, classes) == {
        "nodes": "test", "classes": [0, 1], "counts": [[4, 0], [4, 0]],
    }  # fmt: skip
    tiny_graph.y[19] = 5  # a class that training never saw
    seen = confusion(tiny_graph, predicted, classes)
    assert seen is not None
    assert (seen["classes"], seen["counts"]) == ([0, 1, 5], [[4, 0, 0], [3, 0, 0], [1, 0, 0]])
    del tiny_graph.test_mask
    assert confusion(tiny_graph, predicted, classes) == {
        "nodes": "val", "classes": [0, 1], "counts": [[3, 0], [3, 0]],
    }  # fmt: skip
    del tiny_graph.val_mask
    assert confusion(tiny_graph, predicted, classes) is None


def test_totals_of_a_run_resumed_with_more_workers() -> None:
    class Resumed:
        history_ = [record(1, 2, 1), record(2, 2, 2)]  # noqa: RUF012
        plan_ = (2, 3)

    totals = worker_totals(Resumed())  # type: ignore[arg-type]
    assert [worker["bytes_p"] for worker in totals] == [0, 50]
    assert [round(worker["compute_seconds"], 9) for worker in totals] == [0.012, 0.006]


def test_what_single_precision_would_have_sent() -> None:
    """The 100 values of an epoch took 100 bytes; an epoch of an earlier version does not say how many it sent."""

    def with_values(record: dict[str, Any]) -> dict[str, Any]:
        return record | {"workers": [worker | {"values_sent": 50} for worker in record["workers"]]}

    class Trained:
        history_ = [with_values(record(1, 2, 2)), with_values(record(2, 2, 2)), record(3, 2, 2)]  # noqa: RUF012
        config_ = ModelConfig(shards=3)

    assert unquantized_bytes(Trained()) == 400 + 400 + 100  # type: ignore[arg-type]
    assert work_seconds(Trained()) == pytest.approx(3 * 6 * 0.006)  # type: ignore[arg-type]
