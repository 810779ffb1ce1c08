from __future__ import annotations

import torch
from torch_geometric.data import Data

from helpers.communities import communities
from pdadmm_g import GAMLPClassifier
from pdadmm_g.data.facts import DEGREES, structural_features


def test_degrees_by_hand() -> None:
    star = torch.tensor([[0, 0, 0], [1, 2, 3]])
    degrees = structural_features(star, 5)[:, :DEGREES].argmax(1)
    assert degrees.tolist() == [2, 1, 1, 1, 0]


def test_new_nodes_leave_the_features_of_the_others() -> None:
    edges = torch.tensor([[0, 1], [1, 2]])
    assert torch.equal(structural_features(edges, 3), structural_features(edges, 1000)[:3])


def test_a_graph_of_edges_alone_is_learned() -> None:
    """Edges within communities say enough, and new nodes find their way."""
    data = communities(150, labels=10)
    bare = Data(edge_index=data.edge_index, y=data.y, train_mask=data.train_mask, val_mask=data.val_mask)
    clf = GAMLPClassifier(layers=2, epochs=30, weight_decay=0.1, unlabelled=0, random_state=0).fit(bare)
    assert clf.score(bare, data.test_mask) > 0.7
    assert "there are no features: degrees and random projections" in clf.choices_[0]
    assert clf.predict(Data(edge_index=data.edge_index, num_nodes=151)).shape == (151,)
