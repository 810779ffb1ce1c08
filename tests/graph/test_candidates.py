"""What is tried where features are left to the data, the rows that it makes, and what is taken."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from helpers.communities import communities
from pdadmm_g import GAMLPClassifier
from pdadmm_g.config import ModelConfig
from pdadmm_g.graph import candidates as module
from pdadmm_g.graph.candidates import augmentation, candidates, open_normalizations, propagated
from pdadmm_g.graph.checks import check_graph
from pdadmm_g.training.prepare import prepare_graph


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


def unlike(nodes: int = 300, seed: int = 0) -> Data:
    """Three classes with noisy features, and edges that only join nodes of the first class with others, and so on."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(nodes) % 3
    x = torch.eye(3, 8)[y] + 1.5 * torch.randn(nodes, 8, generator=generator)
    source = torch.randint(nodes, (8 * nodes,), generator=generator)
    target = torch.randint(nodes // 3, (8 * nodes,), generator=generator) * 3 + (y[source] + 1) % 3
    return split(Data(x=x, edge_index=torch.stack([source, target]), y=y), generator, nodes // 5, 3 * nodes // 5)


def chosen(data: Data, **settings: Any) -> ModelConfig:
    """By linear models alone: the network is said."""
    config = ModelConfig(**{"layers": 2, "hidden": 8, "weight_decay": 0.1, "unlabelled": 0} | settings)
    return prepare_graph(check_graph(data), config.resolved(), seed=0).config


def tried(data: Data, **settings: Any) -> list[ModelConfig]:
    return candidates(check_graph(data), ModelConfig(**{"unlabelled": 0} | settings).resolved("classification"))


# ------------------------------------------------------------------------------------------------------- what is tried


def test_all_that_is_left_open_is_tried_and_nothing_else() -> None:
    data = unlike(60)
    everything = tried(data)
    assert {each.augment for each in everything} == {"none", "average", "hops", "apart"}
    assert {each.directed for each in everything} == {"symmetric", "both"}
    assert {each.row_normalize for each in everything} == {True, False}
    assert len({module.described(each) for each in everything}) == len(everything)
    for given in (
        {"augment": "hops", "hops": 2}, {"augment": "average", "teleport": 0.3}, {"directed": "out"},
        {"row_normalize": False}, {"normalize": "none"}, {"augment": "power"}, {"components": 3}, {"label_hops": 2},
        {"unlabelled": 30},
    ):  # fmt: skip
        found = tried(data, **given)
        for name, value in given.items():
            assert {getattr(each, name) for each in found} == {value}, given
    assert len(tried(data, augment="hops", directed="symmetric", normalize="unit")) == 1
    assert {each.directed for each in tried(communities(60))} == {"symmetric"}  # of which each edge is there once
    alone = data.clone()
    alone.edge_index = torch.empty(2, 0, dtype=torch.int64)
    assert {each.augment for each in tried(alone)} == {"none"}


def test_columns_of_a_table_are_standardized_and_copies_are_of_few_directions() -> None:
    data, config = check_graph(communities(60, features=300)), ModelConfig(unlabelled=0).resolved()
    assert {*open_normalizations(data, config)} == {"centered", "unit", "standard"}
    data.columns = ("a column",)
    assert open_normalizations(data, config) == ("standard",)
    learns = dataclasses.replace(config, unlabelled=20)
    assert "standard" not in open_normalizations(data, learns)
    assert {(each.augment, each.components) for each in candidates(data, learns)} == {("average", module.COMPONENTS)}


# ------------------------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("settings", [{}, {"components": 3}, {"unlabelled": 9, "components": 4}])
def test_rows_are_those_of_the_augmentations(settings: dict[str, Any]) -> None:
    """Whether or not several come from one propagation, and with what is propagated given."""
    data, nodes = check_graph(unlike(60)), torch.tensor([5, 40, 7])
    configs = tried(data, **settings)
    found = list(propagated(data, nodes, configs))
    assert sorted(map(repr, (each.config for each in found))) == sorted(map(repr, configs))
    for config, rows, source, basis in found:
        augment = augmentation(dataclasses.replace(config, normalize="none"), basis)
        assert (basis is not None) == (config.components is not None)
        torch.testing.assert_close(rows, augment.propagated(data, nodes), rtol=1e-4, atol=1e-5)
        if source is not None:
            torch.testing.assert_close(rows, augment.own_propagated(data, nodes, source=source), rtol=1e-4, atol=1e-5)


# ----------------------------------------------------------------------------------------------------- what is taken


def test_the_graph_is_used_where_it_helps() -> None:
    assert chosen(planted(homophilous=True)).augment in ("average", "hops")


def test_a_graph_without_a_message_does_no_harm() -> None:
    data = planted(homophilous=False)
    settings = {"layers": 2, "hidden": 16, "epochs": 60, "random_state": 0, "weight_decay": 0.1}
    alone = GAMLPClassifier(augment="none", **settings).fit(data).score(data)
    assert GAMLPClassifier(**settings).fit(data).score(data) >= alone - 0.03
    assert alone > 0.85


def test_directions_are_used_where_they_tell_something() -> None:
    """Classes point to one another in a circle: only the two directions apart tell who is who."""
    data = unlike()
    fixed = {"layers": 2, "hidden": 8, "epochs": 30, "weight_decay": 0.1, "random_state": 0, "unlabelled": 0}
    fixed |= {"label_hops": 0, "calibrate": False}
    clf = GAMLPClassifier(**fixed, row_normalize=False).fit(data)
    alike = GAMLPClassifier(**fixed, row_normalize=False, directed="symmetric").fit(data)
    assert clf.config_.directed == "both"
    assert clf.score(data) > alike.score(data) + 0.05
    assert "edges have directions: features go along them each way by itself" in " ".join(clf.choices_)
