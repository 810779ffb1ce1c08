"""A graph in parts gives what the same graph gives in memory, bit for bit where each row is computed by itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from helpers.lines import on_threads, part_for
from pdadmm_g.admm.risks import Targets
from pdadmm_g.engine.team import Line
from pdadmm_g.graph.augmentation import GraphAugment, is_mostly_zero
from pdadmm_g.graph.checks import check_graph
from pdadmm_g.graph.graph import Graph
from pdadmm_g.graph.parts import graph_facts, join_unlike, part_of
from pdadmm_g.graph.propagation import KnownLabels

NODES = 47


def graph(*, directed: bool = False, weights: bool = False, sparse: bool = False) -> Graph:
    draw = torch.Generator().manual_seed(1)
    edges = torch.randint(NODES, (2, 160), generator=draw)
    edges = edges if directed else torch.cat([edges, edges.flip(0)], 1)
    x = torch.rand(NODES, 12, generator=draw)
    x = x * (torch.rand(NODES, 12, generator=draw) < 0.05) if sparse else x
    data = Graph(x=x, edge_index=edges, y=torch.randint(3, (NODES,), generator=draw))
    if weights:
        w = torch.rand(160, generator=draw) + 0.1
        data.edge_weight = w if directed else torch.cat([w, w])
    return check_graph(data)


KINDS: list[dict[str, Any]] = [{}, {"directed": True}, {"weights": True}, {"directed": True, "weights": True}]
AUGMENTS = [
    GraphAugment("average", 3, normalize="centered"),
    GraphAugment("hops", 3, normalize="standard", row_normalize=False),
    GraphAugment("apart", 2, normalize="unit"),
    GraphAugment("hops", 2, normalize="unit", directed="both"),
    GraphAugment("power", 2, normalize="none", directed="out"),
    GraphAugment("none", 1, normalize="centered"),
]


@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_augmented_features(kind: dict[str, Any], parts: int) -> None:
    data = graph(**kind)
    nodes = torch.arange(0, NODES, 2)
    for augment in AUGMENTS:
        expected = dataclasses.replace(augment).fit_transform(data, nodes)

        def rows(line: Line, augment: GraphAugment = augment) -> torch.Tensor:
            own = part_for(data, line)
            return part_of(own).together(nodes, dataclasses.replace(augment).fit_transform(own, nodes))

        for found in on_threads(parts, rows):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
        if augment.normalize in ("unit", "none") and not kind.get("weights"):
            assert torch.equal(found, expected)


@pytest.mark.parametrize("sparse", [False, True])
def test_copies_are_the_same_random_ones(sparse: bool) -> None:
    data, augment = graph(sparse=sparse), GraphAugment("average", 2, normalize="unit", components=4)
    nodes, training = torch.tensor([3, 1, 40, 22]), torch.tensor([1, 3, 30])

    def rows(line: Line | None) -> torch.Tensor:
        own = data if line is None else part_for(data, line)
        assert is_mostly_zero(own) is sparse
        fitted = dataclasses.replace(augment).fit(own)
        targets = Targets(torch.zeros(3, dtype=torch.int64))
        copies = fitted.copies(fitted.source(own), training, targets, 0.5, 0.5 if sparse else 0.0)
        found = copies.rows(nodes, 2, seed=7).transpose(0, 1).contiguous()
        return part_of(own).together(nodes, found)

    expected = rows(None)
    for found in on_threads(3, rows):
        # Directions are learned from sums, and known but for their signs.
        torch.testing.assert_close(found.abs(), expected.abs(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_known_labels_and_facts(kind: dict[str, Any]) -> None:
    data, known = graph(**kind), torch.arange(0, NODES, 3)
    targets = torch.nn.functional.one_hot(data.y[known], 3)

    def found(line: Line) -> tuple[Any, ...]:
        own = part_for(data, line)
        labels = KnownLabels.of(own, known, targets)
        rows = part_of(own).together(torch.arange(NODES), labels.rows(own, None, 2))
        return labels, rows, graph_facts(own), join_unlike(own, known)

    expected = KnownLabels.of(data, known, targets)
    for labels, rows, facts, unlike in on_threads(2, found):
        torch.testing.assert_close(labels.sums, expected.sums)
        torch.testing.assert_close(rows, expected.rows(data, None, 2))
        assert facts == graph_facts(data)
        assert unlike == join_unlike(data, known)
