"""Known labels of neighbours as features, by dense matrices in double precision."""

from __future__ import annotations

import numpy as np
import torch

from pdadmm_g.graph.graph import Graph
from pdadmm_g.graph.propagation import KnownLabels, _parts

HOPS = 3
NODES = torch.tensor([0, 1, 2, 3, 5, 6])


def eight(*, weighted: bool = False, ids: bool = True) -> Graph:
    """Nodes 0 to 6 are joined, some pairs both ways; nobody joins node 7."""
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2, 1, 6, 6], [1, 2, 3, 4, 5, 6, 3, 5, 0, 2, 6]])
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    data = Graph(x=x, edge_index=edges, ids=np.array([f"n{node}" for node in range(8)]) if ids else None)
    data.edge_weight = 1 + torch.arange(11.0) if weighted else None
    return data


def known(data: Graph, *, targets: torch.Tensor | None = None) -> KnownLabels:
    generator = torch.Generator().manual_seed(1)
    return KnownLabels.of(data, NODES, torch.rand(len(NODES), 2, generator=generator) if targets is None else targets)


def by_hand(data: Graph, labels: KnownLabels) -> torch.Tensor:
    """The definition: the mean over known nodes of other parts by walks of each length."""
    A, weights = torch.zeros(8, 8, dtype=torch.float64), data.get("edge_weight")
    for place, (a, b) in enumerate(data.edge_index.T.tolist()):
        A[a, b] += 0 if a == b else 1 if weights is None else weights[place]
    A = torch.maximum(A, A.T)
    root = A.sum(1).clamp(min=1e-9) ** -0.5
    P = root[:, None] * A * root
    part = {int(node): int(own) for node, own in zip(NODES, _parts(labels.keys.numpy()), strict=True)}
    found = torch.zeros(8, HOPS, 2, dtype=torch.float64)
    for hop in range(HOPS):
        power = torch.linalg.matrix_power(P, hop + 1)
        for node in range(8):
            others = [place for place, other in enumerate(NODES.tolist()) if part[other] != part.get(node, -1)]
            shares = power[node, NODES[others]]
            if shares.sum() > 1e-12:
                found[node, hop] = shares @ labels.targets[others].double() / shares.sum()
    return found.flatten(1)


def test_rows_are_means_over_what_is_known_of_others() -> None:
    for weighted in (False, True):
        data = eight(weighted=weighted)
        labels = known(data)
        rows = labels.rows(data, None, HOPS)
        torch.testing.assert_close(rows.double(), by_hand(data, labels), rtol=1e-5, atol=1e-6)
        assert torch.equal(labels.rows(data, torch.tensor([6, 4]), HOPS), rows[[6, 4]])
        assert (rows[7] == 0).all()
    assert not torch.allclose(rows, known(eight()).rows(eight(), None, HOPS), atol=0.01)  # weights have a say


def test_a_target_is_never_part_of_its_own_row() -> None:
    data = eight()
    before = known(data)
    rows = before.rows(data, None, HOPS)
    for place, node in enumerate(NODES.tolist()):
        targets = before.targets.clone()
        targets[place] += 5
        changed = known(data, targets=targets).rows(data, None, HOPS)
        assert torch.equal(changed[node], rows[node])
        assert not torch.equal(changed[4], rows[4])  # whose own is not known: it has all of them within reach


def test_nodes_are_known_by_their_ids_wherever_they_stand() -> None:
    data = eight(weighted=True)
    labels, order = known(data), torch.tensor([3, 7, 0, 5, 1, 6, 4, 2])
    place = order.argsort()
    turned = Graph(
        x=data.x[order], edge_index=place[data.edge_index], edge_weight=data.edge_weight, ids=data.ids[order.numpy()]
    )
    torch.testing.assert_close(labels.rows(turned, None, HOPS), labels.rows(data, None, HOPS)[order])
    some = torch.tensor([0, 1, 2])  # of the others nobody is there
    less = Graph(x=data.x[some], edge_index=torch.tensor([[0, 1], [1, 2]]), ids=data.ids[some.numpy()])
    rows = labels.rows(less, None, 1)
    assert torch.equal(rows[0], labels.targets[1])
    strangers = Graph(x=data.x, edge_index=data.edge_index, ids=np.array([f"m{node}" for node in range(8)]))
    assert (labels.rows(strangers, None, HOPS) == 0).all()


def test_without_ids_another_graph_knows_nothing() -> None:
    data = eight(ids=False)
    labels = known(data)
    assert labels.rows(data, None, HOPS).any()
    same = Graph(x=data.x.flip(1).to_sparse_csr(), edge_index=data.edge_index)
    torch.testing.assert_close(labels.rows(same, None, HOPS), labels.rows(data, None, HOPS))
    for x in (data.x + 0.1, data.x[:5]):
        edges = data.edge_index[:, (data.edge_index < len(x)).all(0)]
        assert (labels.rows(Graph(x=x, edge_index=edges), None, HOPS) == 0).all()
