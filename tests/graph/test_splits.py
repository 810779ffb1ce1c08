from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

from helpers.estimators import classifier
from pdadmm_g import InputError
from pdadmm_g.config import ModelConfig
from pdadmm_g.graph import examples
from pdadmm_g.graph.checks import check_graph
from pdadmm_g.graph.examples import CROSSED, PARTS, folds_of, with_masks


def labelled(*counts: int, unlabelled: int = 0) -> Data:
    """So many nodes of each class, and some without label."""
    y = torch.cat([torch.full((count,), label) for label, count in enumerate(counts)] + [torch.full((unlabelled,), -1)])
    return check_graph(Data(x=torch.ones(len(y), 1), edge_index=torch.zeros(2, 0).long(), y=y))


def split(data: Data, *, seed: int = 0, **settings: object) -> tuple[Data, tuple[str, ...]]:
    return with_masks(data, ModelConfig(**settings), seed=seed)


def by_class(data: Data, mask: str) -> list[int]:
    return torch.bincount(data.y[data[mask]], minlength=int(data.y.max()) + 1).tolist()


def test_so_large_a_share_of_each_class_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    data, reasons = split(labelled(50, 10, 2, unlabelled=5))
    assert by_class(data, "val_mask") == [10, 2, 1]
    assert by_class(data, "train_mask") == [40, 8, 1]
    assert not (data.train_mask & data.val_mask).any()
    assert by_class(split(labelled(10, 1))[0], "val_mask") == [2, 0]  # a class of one keeps its node
    assert by_class(split(labelled(20, 10), validation=0.5)[0], "val_mask") == [10, 5]
    monkeypatch.setattr(examples, "MOST", 12)
    assert by_class(split(labelled(40, 40))[0], "val_mask") == [6, 6]
    assert "all 62 nodes with a label" in reasons[0]
    assert "13 of the 62 nodes" in reasons[1]


@pytest.mark.parametrize(
    ("counts", "settings", "crosses"),
    [
        ((5, 5), {}, True), ((5, 4), {}, False), ((CROSSED.stop - 6, 5), {}, True), ((CROSSED.stop - 5, 5), {}, False),
        ((5, 5), {"validation": 0.2}, False), ((5, 5), {"validation": 0}, False), ((5, 5), {"patience": None}, False),
    ],
)  # fmt: skip
def test_of_few_nodes_none_is_set_aside_where_all_can_be_asked(counts, settings, crosses: bool) -> None:
    data, reasons = with_masks(labelled(*counts, unlabelled=5), ModelConfig(**settings), seed=0, crosses=True)
    assert ("decide out of fold in 5 parts" in reasons[-1]) is crosses
    if crosses:
        assert "val_mask" not in data
        assert by_class(data, "train_mask") == [*counts]


def test_each_node_is_asked_once_and_each_part_has_its_share_of_each_class() -> None:
    labels = torch.tensor([0] * 23 + [1] * 11 + [2] * 3)[torch.randperm(37, generator=torch.Generator().manual_seed(0))]
    folds = folds_of(labels, 3)
    assert len(folds) == PARTS
    assert torch.cat([asked for _, asked in folds]).sort().values.tolist() == [*range(37)]
    for training, asked in folds:
        assert torch.cat([training, asked]).sort().values.tolist() == [*range(37)]
        for label, number in ((0, 23), (1, 11), (2, 3)):
            assert abs(int((labels[asked] == label).sum()) - number / PARTS) < 1
    again, other = folds_of(labels, 3), folds_of(labels, 4)
    assert all(torch.equal(a[1], b[1]) for a, b in zip(folds, again, strict=True))
    assert not all(len(a[1]) == len(b[1]) and torch.equal(a[1], b[1]) for a, b in zip(folds, other, strict=True))


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
    clf = classifier(split=1).fit(swapped)
    assert clf.score(swapped) == 1.0
