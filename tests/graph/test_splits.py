from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from pdadmm_g import GAMLPClassifier, InputError
from pdadmm_g.config import ModelConfig
from pdadmm_g.graph.checks import check_graph
from pdadmm_g.graph.examples import MOST, with_masks


def labelled(*counts: int, unlabelled: int = 0) -> Data:
    """So many nodes of each class, and some without label."""
    y = torch.cat([torch.full((count,), label) for label, count in enumerate(counts)] + [torch.full((unlabelled,), -1)])
    return check_graph(Data(x=torch.ones(len(y), 1), edge_index=torch.zeros(2, 0).long(), y=y))


def split(data: Data, *, seed: int = 0, **settings: object) -> tuple[Data, tuple[str, ...]]:
    return with_masks(data, ModelConfig(**settings), seed=seed)


def by_class(data: Data, mask: str) -> list[int]:
    return torch.bincount(data.y[data[mask]], minlength=int(data.y.max()) + 1).tolist()


def test_labelled_nodes_train_but_a_fifth_of_each_class() -> None:
    data, reasons = split(labelled(50, 10, 2, unlabelled=5))
    assert by_class(data, "val_mask") == [10, 2, 1]
    assert by_class(data, "train_mask") == [40, 8, 1]
    assert not (data.train_mask & data.val_mask).any()
    assert by_class(split(labelled(10, 1))[0], "val_mask") == [2, 0]  # a class of one keeps its node
    assert by_class(split(labelled(4000, 4000))[0], "val_mask") == [MOST // 2, MOST // 2]
    assert "all 62 nodes with a label" in reasons[0]
    assert "13 of the 62 nodes" in reasons[1]


def test_the_seed_says_which() -> None:
    data = labelled(50, 50)
    first, again, other = (split(data, seed=seed)[0].val_mask for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_what_is_given_stays_and_test_nodes_are_never_taken(tiny_graph: Data) -> None:
    data, reasons = split(check_graph(tiny_graph))
    assert reasons == ()
    assert all(torch.equal(data[mask], tiny_graph[mask]) for mask in ("train_mask", "val_mask", "test_mask"))
    del tiny_graph.train_mask, tiny_graph.val_mask
    data, _ = split(check_graph(tiny_graph))
    assert torch.equal(~data.test_mask, data.train_mask | data.val_mask)


def test_validation_comes_out_of_the_training_nodes_alone(tiny_graph: Data) -> None:
    """Labels outside the masks may be those that somebody scores by."""
    del tiny_graph.val_mask
    data, (reason,) = split(check_graph(tiny_graph))
    assert bool((data.val_mask <= tiny_graph.train_mask).all())
    assert "2 of the 6 nodes with a label for training" in reason


@pytest.mark.parametrize("settings", [{"validation": 0.0}, {"patience": None}])
def test_none_where_none_is_wanted(settings: dict[str, object]) -> None:
    data, reasons = split(labelled(10, 10), **settings)
    assert "val_mask" not in data
    assert ("there are no validation nodes" in reasons[-1]) is (settings == {"validation": 0.0})


def test_one_label_a_class_is_too_few() -> None:
    with pytest.warns(UserWarning, match="too few labels to set some aside"):
        data, reasons = split(labelled(1, 1))
    assert "val_mask" not in data
    assert "too few labels" in reasons[-1]


def test_masks_of_several_splits(tiny_graph: Data) -> None:
    swapped = tiny_graph.clone()
    for first, second in (("train_mask", "val_mask"), ("val_mask", "train_mask")):
        swapped[first] = torch.stack([tiny_graph[first], tiny_graph[second]], dim=1)
    data, (reason,) = split(check_graph(swapped))
    assert torch.equal(data.train_mask, tiny_graph.train_mask)
    assert "of 2 splits: the first is taken" in reason
    data, reasons = split(check_graph(swapped), split=1)
    assert reasons == ()
    assert torch.equal(data.train_mask, tiny_graph.val_mask)
    assert torch.equal(data.test_mask, tiny_graph.test_mask)
    assert split(data, split=1)[1] == ()  # once more changes nothing
    uneven = swapped.clone()
    uneven.val_mask = torch.stack([tiny_graph.val_mask] * 3, dim=1)
    for graph, number, message in (
        (swapped, 2, "split = 2, but the masks are of 2 splits"), (tiny_graph, 1, "split = 1, but .* of one split"),
        (uneven, 0, "train_mask 2, val_mask 3"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            split(check_graph(graph), split=number)
    clf = GAMLPClassifier(layers=2, epochs=5, weight_decay=0.1, split=1, unlabelled=0).fit(swapped)
    assert clf.score(swapped) == 1.0


def test_weights_count_before_nodes_are_set_aside(tiny_graph: Data) -> None:
    """A weight a training node is one for each that the user sees, and a node of weight zero does not validate."""
    del tiny_graph.val_mask
    clf = GAMLPClassifier(layers=2, epochs=5, weight_decay=0.1, unlabelled=0, random_state=0)
    weights = torch.ones(6)
    weights[0] = 0
    clf.fit(tiny_graph, sample_weight=weights)
    assert "2 of the 5 nodes" in clf.choices_[0]
