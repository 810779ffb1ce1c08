"""Predictions on graphs that are not the training graph."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from pdadmm_g import GAMLPClassifier, InputError, load_dataset
from pdadmm_g.cli import main

SETTINGS = {
    "layers": 3,
    "hidden": 16,
    "stages": (3,),
    "epochs": 20,
    "weight_decay": 0.1,
    "unlabelled": 0,
    "random_state": 0,
}
AUGMENTATIONS = [("average", 4, "centered"), ("hops", 3, "unit"), ("power", 2, "centered")]


@pytest.fixture(scope="module")
def digits() -> Data:
    return load_dataset("digits")


@pytest.fixture(scope="module", params=AUGMENTATIONS, ids=lambda setting: setting[0])
def fitted(request: pytest.FixtureRequest, digits: Data) -> GAMLPClassifier:
    augment, hops, normalize = request.param
    return GAMLPClassifier(**SETTINGS, augment=augment, hops=hops, normalize=normalize).fit(digits)


def grown(data: Data, x: torch.Tensor, edges: list[tuple[int, int]]) -> Data:
    """The graph with more nodes and edges, without labels and masks."""
    return Data(
        x=torch.cat([data.x, x]),
        edge_index=torch.cat([data.edge_index, torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T], dim=1),
    )


def test_nodes_in_another_component_change_nothing(fitted: GAMLPClassifier, digits: Data) -> None:
    n = digits.num_nodes
    # Far from any digit, so that means or scales that were learned anew would show.
    strangers = 100 * torch.rand(300, 64, generator=torch.Generator().manual_seed(0))
    more = grown(digits, strangers, [(n + i, n + (7 * i + 1) % 300) for i in range(300)])
    np.testing.assert_allclose(fitted.predict_proba(more)[:n], fitted.predict_proba(digits), atol=1e-6)


def test_a_twin_gets_the_prediction_of_the_node_it_copies(fitted: GAMLPClassifier, digits: Data) -> None:
    # A second copy of the graph: new nodes with the same neighbourhoods as the old ones.
    n = digits.num_nodes
    pair = Data(x=torch.cat([digits.x, digits.x]), edge_index=torch.cat([digits.edge_index, digits.edge_index + n], 1))
    before, after = fitted.predict_proba(digits), fitted.predict_proba(pair)
    np.testing.assert_allclose(after[:n], before, atol=1e-6)
    np.testing.assert_allclose(after[n:], before, atol=1e-6)


def test_two_new_nodes_with_the_same_neighbours_are_alike(fitted: GAMLPClassifier, digits: Data) -> None:
    n = digits.num_nodes
    more = grown(digits, digits.x[[3, 3]], [(n, 10), (n, 20), (n + 1, 10), (n + 1, 20)])
    first, second = fitted.predict_proba(more, [n, n + 1])
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_an_edge_to_a_new_node_reaches_old_ones_within_the_hops(fitted: GAMLPClassifier, digits: Data) -> None:
    line = Data(x=digits.x[:12], edge_index=torch.stack([torch.arange(11), torch.arange(1, 12)]))
    longer = grown(line, digits.x[12:13], [(11, 12)])
    change = np.abs(fitted.predict_proba(longer)[:12] - fitted.predict_proba(line)).max(1)
    augmentation = fitted.augmentation_
    assert augmentation is not None
    # The new node changes the degree of its neighbour, and so also what that one passes on: one hop further.
    reach = augmentation.hops - 1 if augmentation.mode == "hops" else augmentation.hops
    assert change[11] > 1e-4
    assert change[: 12 - reach - 1].max() < 1e-6


def test_permuting_the_nodes_permutes_the_predictions(fitted: GAMLPClassifier, digits: Data) -> None:
    n = digits.num_nodes
    more = grown(digits, digits.x[:20] + 1, [(n + i, 3 * i) for i in range(20)])
    order = torch.randperm(n + 20, generator=torch.Generator().manual_seed(1))
    place = torch.empty_like(order)
    place[order] = torch.arange(n + 20)
    shuffled = Data(x=more.x[order], edge_index=place[more.edge_index])
    np.testing.assert_allclose(fitted.predict_proba(shuffled), fitted.predict_proba(more)[order], atol=1e-6)


def test_chosen_nodes(fitted: GAMLPClassifier, digits: Data) -> None:
    everything = fitted.predict(digits)
    mask = torch.zeros(1797, dtype=torch.bool)
    mask[[4, 9, 1000]] = True
    for nodes in (torch.tensor([1000, 4, 9, 4]), np.array([1796, 0]), [3, 2], mask):
        assert (fitted.predict(digits, nodes) == everything[np.asarray(nodes)]).all()
    assert fitted.predict(digits, []).shape == (0,)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([1797], r"nodes names a node outside 0\.\.1796"),
        ([-1], "outside"),
        ([0.5], "booleans or a list of node indices"),
        (torch.ones(3, dtype=torch.bool), r"nodes has shape \(3,\)"),
    ],
)
def test_nodes_that_are_not_there(fitted: GAMLPClassifier, digits: Data, nodes: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fitted.predict(digits, nodes)


def test_the_command_needs_neither_labels_nor_masks(
    tmp_path: Path,
    tiny_graph: Data,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    classifier = GAMLPClassifier(**SETTINGS, augment="average", hops=2, normalize="centered").fit(tiny_graph)
    Path("run").mkdir()
    classifier.save("run/model.safetensors")
    bigger = grown(tiny_graph, tiny_graph.x[[0, 19]], [(20, 1), (20, 2), (21, 18), (21, 17)])
    np.savez("bigger.npz", x=bigger.x, edge_index=bigger.edge_index)
    with pytest.raises(SystemExit) as caught:
        main(["predict", "run", "--dataset", "bigger.npz", "--out", "preds.csv"])
    assert not caught.value.code
    assert capsys.readouterr().out == "22 predictions written to preds.csv\n"
    rows = list(csv.DictReader(Path("preds.csv").read_text().splitlines()))
    assert [int(row["label"]) for row in rows] == [*tiny_graph.y.tolist(), 0, 1]
    assert [int(row["label"]) for row in rows] == classifier.predict(bigger).tolist()


def test_the_lines_of_the_guide(tiny_graph: Data) -> None:
    guide = Path(__file__).parents[1] / "docs" / "guides" / "new-nodes.md"
    lines = guide.read_text().split("```python\n")[1].split("```")[0].replace("(random_state=0)", "(**settings)")
    scope = {
        "data": tiny_graph, "settings": SETTINGS, "new_features": tiny_graph.x[[0, 19]],
        "new_edges": torch.tensor([[20, 21], [1, 18]]),
    }  # fmt: skip
    exec(lines, scope)
    assert scope["clf"].predict(scope["grown"], [20, 21]).tolist() == [0, 1]
