from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from pdadmm_g import GAMLPClassifier, GAMLPRegressor, as_graph
from pdadmm_g.config import ModelConfig
from pdadmm_g.graph import augmentation_choice
from pdadmm_g.graph.augmentation_choice import choose_augmentation


@pytest.fixture(autouse=True)
def two_weight_decays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the grid, for speed."""
    monkeypatch.setattr("pdadmm_g.training.choose.WEIGHT_DECAYS", (0.1, 1.0))


def split(data: Data, generator: torch.Generator, *ends: int) -> Data:
    parts = torch.randperm(data.num_nodes, generator=generator).tensor_split(ends)
    for mask, part in zip(("train_mask", "val_mask", "test_mask"), parts, strict=True):
        data[mask] = torch.zeros(data.num_nodes, dtype=torch.bool).index_fill_(0, part, True)
    return data


def planted(*, homophilous: bool, nodes: int = 240, seed: int = 0) -> Data:
    """Two classes; noisy features on a graph that joins like nodes, or clear features on a random graph."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % 2
    noise = 3.0 if homophilous else 0.5
    x = torch.eye(2, 8)[y] + noise * torch.randn(nodes, 8, generator=generator)
    source = torch.randint(nodes, (30 * nodes,), generator=generator)
    target = torch.randint(nodes, (30 * nodes,), generator=generator)
    if homophilous:
        target = (target - target % 2 + y[source]) % nodes
    return split(Data(x=x, edge_index=torch.stack([source, target]), y=y), generator, 60, 150)


def chosen(data: Data, **settings) -> ModelConfig:
    train, val = data.train_mask.nonzero().view(-1), data.val_mask.nonzero().view(-1)
    return choose_augmentation(data, train, val, ModelConfig(row_normalize=False, **settings).resolved()).config


def test_the_graph_is_used_where_it_helps() -> None:
    assert chosen(planted(homophilous=True)).augment in ("average", "hops")


def test_what_all_nodes_share_is_taken_out() -> None:
    """One large constant feature: unit rows all look the same, centred ones do not."""
    data = planted(homophilous=True)
    data.x = torch.cat([data.x, torch.full((data.num_nodes, 1), 300.0)], dim=1)
    assert chosen(data).normalize == "centered"


def test_a_graph_without_a_message_does_no_harm() -> None:
    data = planted(homophilous=False)
    settings = {"row_normalize": False, "layers": 2, "hidden": 16, "epochs": 60, "random_state": 0}
    alone = GAMLPClassifier(augment="none", **settings).fit(data).score(data)
    assert GAMLPClassifier(**settings).fit(data).score(data) >= alone - 0.03
    assert alone > 0.85


def test_what_the_user_says_is_not_chosen() -> None:
    data = planted(homophilous=False)
    assert chosen(data, augment="hops").augment == "hops"
    assert chosen(data, augment="hops").normalize in ("unit", "centered")
    assert chosen(data, normalize="none").normalize == "none"
    config = chosen(planted(homophilous=True), hops=5, directed="symmetric")
    assert (config.augment, config.hops) in {("average", 5), ("hops", 4), ("none", 1)}
    for directed in ("symmetric", "out", "in", "both"):
        assert chosen(unlike(), directed=directed).directed == directed


def test_test_labels_play_no_role() -> None:
    data = planted(homophilous=True, nodes=160)
    scrambled = data.clone()
    scrambled.y = data.y.clone()
    scrambled.y[data.test_mask] = 1 - data.y[data.test_mask]
    settings = {"layers": 2, "hidden": 8, "epochs": 10, "random_state": 0}
    first, second = (GAMLPClassifier(**settings).fit(graph) for graph in (data, scrambled))
    assert first.config_ == second.config_
    for a, b in zip(first.model_.parameters(), second.model_.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_score_that_is_not_defined_is_told_as_such() -> None:
    """One validation node has no coefficient of determination: the loss chooses."""
    data = planted(homophilous=True)
    data.y = torch.randn(len(data.y), 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    data.val_mask[data.val_mask.nonzero()[1:]] = False
    reg = GAMLPRegressor(layers=2, hidden=4, epochs=2, random_state=0).fit(as_graph(data, target="regression"))
    assert "inf" not in " ".join(reg.choices_)
    assert any("(validation undefined of a linear model, next best undefined)" in reason for reason in reg.choices_)
    assert any("(validation undefined)" in reason for reason in reg.choices_ if reason.startswith("weight decay"))


def test_rows_of_a_gpu_are_scored_on_the_cpu() -> None:
    class OnGpu(torch.Tensor):
        """Numpy takes it no more than one that is on a GPU."""

        def numpy(self):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")

        def cpu(self):
            return self.as_subclass(torch.Tensor)

    X = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    labels = [torch.arange(12) % 2, torch.arange(8) % 2]
    on_gpu, on_cpu = (augmentation_choice.linear_score(rows, labels) for rows in (X.as_subclass(OnGpu), X))
    assert on_gpu == on_cpu


def unlike(nodes: int = 300, seed: int = 0) -> Data:
    """Three classes with noisy features, and edges that only join nodes of the first class with others, and so on."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % 3
    x = torch.eye(3, 8)[y] + 1.5 * torch.randn(nodes, 8, generator=generator)
    source = torch.randint(nodes, (8 * nodes,), generator=generator)
    target = torch.randint(nodes // 3, (8 * nodes,), generator=generator) * 3 + (y[source] + 1) % 3
    return split(Data(x=x, edge_index=torch.stack([source, target]), y=y), generator, nodes // 5, 3 * nodes // 5)


def test_directions_are_used_where_they_tell_something() -> None:
    """Classes point to one another in a circle: only the two directions apart tell who is who."""
    data = unlike()
    assert chosen(data).directed == "both"
    fixed = {"layers": 2, "hidden": 8, "epochs": 30, "weight_decay": 0.1, "random_state": 0, "unlabelled": 0}
    clf = GAMLPClassifier(**fixed, row_normalize=False).fit(data)
    alike = GAMLPClassifier(**fixed, row_normalize=False, directed="symmetric").fit(data)
    assert clf.config_.directed == "both"
    assert clf.score(data) > alike.score(data) + 0.05
    assert "edges have directions: features go along them each way by itself" in clf.choices_[0]


def test_blocks_apart_are_tried_where_edges_join_unlike_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(
        augmentation_choice, "linear_score", lambda X, *_: tried.append(X.shape[1]) or (float(X.shape[1] == 24), 0.0)
    )
    # Own features and two hops of 8 columns: as wide as nothing else here.
    assert chosen(unlike(), directed="symmetric").augment == "apart"
    chosen(planted(homophilous=True), directed="symmetric")
    assert tried.count(24) == 2  # both normalisations, of the first graph alone


def test_a_model_with_directions_and_weights_is_saved(tmp_path) -> None:
    data = unlike(60)
    data.edge_weight = torch.rand(data.edge_index.shape[1]) + 0.1
    fixed = {"layers": 2, "hidden": 8, "epochs": 5, "weight_decay": 0.1, "random_state": 0, "components": 4}
    for settings in ({"augment": "apart", "directed": "both"}, {"augment": "average", "directed": "in"}):
        clf = GAMLPClassifier(**fixed, **settings, unlabelled=0, normalize="centered").fit(data)
        clf.save(tmp_path / "model.safetensors")
        loaded = GAMLPClassifier.load(tmp_path / "model.safetensors")
        assert (loaded.predict_proba(data) == clf.predict_proba(data)).all()
        unweighted = Data(x=data.x, edge_index=data.edge_index)
        assert not (loaded.predict_proba(unweighted) == clf.predict_proba(data)).all()
