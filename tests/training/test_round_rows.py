from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from helpers.threads import ThreadLine, on_threads
from pdadmm_g.admm.risks import Targets
from pdadmm_g.config import ModelConfig
from pdadmm_g.data.examples import Examples
from pdadmm_g.engine.team import Team
from pdadmm_g.training.rounds import DealtRows, Drawn, SpreadRows, examples_of, sharpened


def test_the_rows_of_a_round_are_copies_with_sharpened_means() -> None:
    X = torch.randn(3, 5, 4)  # three copies of two labelled nodes and three others
    labelled = Targets(torch.tensor([1, 0]), torch.tensor([2.0, 1.0]))
    mean = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]])
    config = ModelConfig(sharpness=2.0, trust=4.0)
    rows = examples_of(X, labelled, mean, config)
    assert torch.equal(rows.X, torch.cat([X[0], X[1], X[2]]))
    expected = [[0, 1], [1, 0], [0.5, 0.5], [0.81 / 0.82, 0.01 / 0.82], [0.04 / 0.68, 0.64 / 0.68]]
    assert torch.allclose(rows.y, torch.tensor(expected * 3))
    assert torch.allclose(rows.weights, torch.tensor([2 / 3, 1 / 3, 4 / 3, 4 / 3, 4 / 3] * 3))
    alone = examples_of(X, labelled, mean, dataclasses.replace(config, trust=0.0))
    assert torch.equal(alone.X, torch.cat([X[0, :2], X[1, :2], X[2, :2]]))
    assert torch.allclose(alone.weights, torch.tensor([2 / 3, 1 / 3] * 3))


@pytest.mark.parametrize("power", [200.0, 1e15])
def test_a_power_that_leaves_nothing_of_small_numbers_still_gives_targets(power: float) -> None:
    sharp = sharpened(torch.tensor([[0.5, 0.5], [0.6, 0.4], [1.0, 0.0]]), power)
    targets = sharp / sharp.sum(1, keepdim=True)
    assert torch.allclose(targets, torch.tensor([[0.5, 0.5], [1.0, 0.0], [1.0, 0.0]]))


#: Eight nodes of three classes, of which 2 and 6 have labels and 0, 3, 4 and 7 are asked, in three copies.
ASKED, MEAN = torch.tensor([0, 3, 4, 7]), torch.tensor([[0.6, 0.3, 0.1], [0.0, 0.0, 1.0], [0.1, 0.8, 0.1], [1, 0, 0]])
SAVED = {"mean": MEAN, "known": torch.tensor([[0, 0], [3, 2], [4, 1], [7, 0]])}


def spread(line: Any, parts: int) -> tuple[SpreadRows, Drawn]:
    """A process that has one of the parts, and what it has drawn: rows that say which copy of which node they are."""
    count = 8 // parts
    first, step = count * line.rank, 2 // parts
    training = np.array([2, 6])[step * line.rank :][:step] - first
    copies = SimpleNamespace(
        sharded=SimpleNamespace(part=SimpleNamespace(first=first, count=count)),
        training=training,
        labelled=Targets(torch.ones(len(training), dtype=torch.int64)),
    )
    team = Team()
    team.rows, team.rank = line, line.rank
    others = ASKED.split(4 // parts)[line.rank] - first
    nodes = first + torch.cat([torch.from_numpy(training), others])
    X = torch.stack([torch.stack([nodes, torch.full_like(nodes, copy)], 1) for copy in range(3)]).float()
    config = ModelConfig(sharpness=2.0, trust=1.0, copies=3, device="cpu")
    return SpreadRows(team, config, copies, 0), Drawn(None, X, others)  # type: ignore[arg-type]


Found = tuple[Examples | None, dict[str, torch.Tensor] | None]


def rows_of(found: list[Found]) -> list[list[float]]:
    return [row for training, _ in found if training is not None for row in training.X.tolist()]


@pytest.mark.parametrize("parts", [1, 2])
def test_spread_rows_are_in_the_order_of_nodes_for_any_number_of_parts(parts: int) -> None:
    def work(line: ThreadLine) -> tuple[Found, float | None]:
        rows, drawn = spread(line, parts)
        rows.known[drawn.others[0]] = 0  # type: ignore[index]
        mean, changed = rows.compared(drawn, MEAN.split(4 // parts)[line.rank])
        return rows.examples(drawn, mean), changed

    found = on_threads(parts, work)
    assert rows_of([each for each, _ in found]) == [[node, copy] for node in (0, 2, 3, 4, 6, 7) for copy in range(3)]
    # Node 0 was of class 0 and is; on two parts node 4 was too and is of class 1.
    assert [changed for _, changed in found] == [(parts - 1) / parts] * parts
    assert [tensors is None for (_, tensors), _ in found] == [False, True][:parts]
    for name, tensor in SAVED.items():
        assert torch.equal(found[0][0][1][name], tensor)


@pytest.mark.parametrize("parts", [1, 2])
def test_spread_rows_are_resumed_by_any_number_of_parts(parts: int) -> None:
    saved: Any = SimpleNamespace(pseudo_labels=lambda like: SAVED)

    def work(line: ThreadLine) -> tuple[Found, list[int]]:
        rows, drawn = spread(line, parts)
        return rows.examples(drawn, rows.restored(drawn, saved, torch.empty(0))), rows.known.tolist()

    found = on_threads(parts, work)
    assert rows_of([each for each, _ in found]) == [[n, copy] for n in (0, 2, 3, 4, 6, 7) for copy in range(3)]
    assert [number for _, known in found for number in known] == [0, -1, -1, 2, 1, -1, -1, 0]
    for name, tensor in SAVED.items():
        assert torch.equal(found[0][0][1][name], tensor)


def test_dealt_rows_know_the_classes_of_those_that_were_asked() -> None:
    """Of the eight nodes 2 and 6 have labels, and the six others are a pool of which four were asked."""
    copies: Any = SimpleNamespace(training=torch.tensor([2, 6]), others=torch.tensor([0, 1, 3, 4, 5, 7]))
    config = ModelConfig(sharpness=2.0, trust=1.0, copies=3, device="cpu")
    rows = DealtRows(Team(), config, copies, Targets(torch.ones(2, dtype=torch.int64)), 0)
    places, X = torch.tensor([5, 0, 2, 3]), torch.zeros(3, 6, 2)
    assert rows.compared(Drawn(torch.zeros(12, 2), X, places), MEAN[[3, 0, 1, 2]])[1] is None
    assert rows.known.tolist() == [0, -1, 2, 1, -1, 0]
    drawn = Drawn(torch.zeros(6, 2), X[:, :4], torch.tensor([2, 1]))
    mean, changed = rows.compared(drawn, MEAN[:2])
    assert changed == 1.0  # the third was of class 2 and is of class 0; the second was not known
    _, tensors = rows.examples(drawn, mean)
    assert tensors is not None
    assert tensors["known"].tolist() == [0, 2, 0, 1, -1, 0]


def test_a_process_without_nodes_has_no_rows() -> None:
    rows, nothing = SpreadRows(Team(), ModelConfig(), None, 0), torch.empty(0)
    assert rows.draw(1) == Drawn()
    assert rows.compared(Drawn(), nothing) == (nothing, None)
    assert rows.restored(Drawn(), SimpleNamespace(), nothing) is nothing  # type: ignore[arg-type]
    assert rows.examples(Drawn(), nothing) == (None, None)
