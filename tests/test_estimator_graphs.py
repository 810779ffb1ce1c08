"""What scikit-learn's contract asks of matrices, asked of graphs: odd but sound input works, the rest is named."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

from helpers.communities import communities
from helpers.estimators import classifier
from pdadmm_g import GAMLPClassifier, Graph, InputError, NodeClassifier, as_graph
from pdadmm_g.graph.checks import check_graph

MASKS = ("train_mask", "val_mask", "test_mask")


@pytest.fixture(autouse=True)
def no_warning_reaches_the_user():
    torch.set_warn_always(True)  # not only the first time, which may have been in another test
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Sparse CSR tensor support")  # torch to whoever makes one
        yield
    torch.set_warn_always(False)


def fitted(data: Data, **settings: Any) -> GAMLPClassifier:
    return classifier(**{"augment": "average", "epochs": 20} | settings).fit(data)


# ------------------------------------------------------------------------------------------------------- odd, but sound


def test_isolated_nodes(tiny_graph: Data) -> None:
    """A node alone is its own features, and is predicted as if the rest of the graph were not there."""
    isolated = [0, 3, 6, 10, 16]
    tiny_graph.edge_index = tiny_graph.edge_index[:, ~torch.isin(tiny_graph.edge_index, torch.tensor(isolated)).any(0)]
    clf = fitted(tiny_graph)
    alone = Data(x=tiny_graph.x[isolated], edge_index=torch.empty(2, 0, dtype=torch.int64))
    np.testing.assert_allclose(clf.predict_proba(tiny_graph)[isolated], clf.predict_proba(alone), atol=1e-6)
    assert clf.score(tiny_graph) >= 0.75
    rows = clf.augmentation_.features(tiny_graph)[isolated]
    torch.testing.assert_close(rows, torch.nn.functional.normalize(tiny_graph.x[isolated]))


def test_fitting_is_permutation_equivariant(tiny_graph: Data) -> None:
    """Other names for the nodes change sums by their rounding only, before and after training."""
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    permuted = Data(x=tiny_graph.x[order], edge_index=order.argsort()[tiny_graph.edge_index], y=tiny_graph.y[order])
    for mask in MASKS:
        permuted[mask] = tiny_graph[mask][order]
    clf, other = (fitted(data, normalize="centered") for data in (tiny_graph, permuted))
    np.testing.assert_allclose(clf.predict_proba(tiny_graph)[order], other.predict_proba(permuted), atol=1e-3)


def test_masks_of_any_kind_are_the_same(tiny_graph: Data) -> None:
    def read_only(mask: torch.Tensor) -> np.ndarray:
        booleans = mask.numpy().copy()
        booleans.flags.writeable = False
        return booleans

    for convert in (
        lambda mask: mask.nonzero().view(-1),
        lambda mask: mask.nonzero().view(-1).tolist(),
        lambda mask: np.ascontiguousarray(mask.numpy()[::-1])[::-1],
        read_only,
    ):
        changed = tiny_graph.clone()
        for mask in MASKS:
            changed[mask] = convert(tiny_graph[mask])
        assert all(torch.equal(check_graph(changed)[mask], tiny_graph[mask]) for mask in MASKS)
    for kind in (torch.bool, torch.int64, torch.uint8):
        tiny_graph.val_mask = torch.zeros(20, dtype=kind)
        assert not check_graph(tiny_graph).val_mask.any()
    assert fitted(tiny_graph).history_[-1]["val_accuracy"] is None


def test_feature_types(tiny_graph: Data) -> None:
    """Features that hold the same numbers give the same predictions, whatever they are stored as."""
    tiny_graph.x = (4 * tiny_graph.x).round().abs()
    expected = fitted(tiny_graph).predict_proba(tiny_graph)
    for convert in (
        torch.Tensor.half, torch.Tensor.double, torch.Tensor.long, torch.Tensor.byte, torch.Tensor.to_sparse,
        torch.Tensor.to_sparse_csr, lambda x: x.T.contiguous().T,
    ):  # fmt: skip
        changed = tiny_graph.clone()
        changed.x = convert(tiny_graph.x)
        found = fitted(changed).predict_proba(changed)
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert found.dtype == np.float32


@pytest.mark.parametrize(("value", "normalize"), [(0.0, "unit"), (1.0, "centered"), (1.0, "auto")])
def test_features_that_say_nothing(tiny_graph: Data, value: float, normalize: str) -> None:
    """Nothing to learn, and nothing that is not a number."""
    tiny_graph.x = torch.full((20, 5), value)
    clf = fitted(tiny_graph, normalize=normalize)
    assert clf.status_.name in ("MAX_EPOCHS", "EARLY_STOPPED", "CONVERGED")
    assert np.isfinite(clf.predict_proba(tiny_graph)).all()
    assert clf.score(tiny_graph) == 0.5


# --------------------------------------------------------------------------------------------------------------- labels


def test_labels_with_gaps(tiny_graph: Data) -> None:
    tiny_graph.y = torch.where(tiny_graph.y == 0, 200, 5).to(torch.uint8)
    clf = fitted(tiny_graph)
    assert clf.classes_.tolist() == [5, 200]
    assert clf.predict(tiny_graph).tolist() == tiny_graph.y.tolist()


def test_one_class_is_refused(tiny_graph: Data) -> None:
    tiny_graph.y = torch.full((20,), 3)
    with pytest.raises(InputError, match="all training nodes are of class 3"):
        fitted(tiny_graph, augment="auto", weight_decay=None)


# What people write with two tables means what they mean, or one line says what to write.


LABELS = np.array(["ant", "bee"])


@pytest.fixture
def tables(tiny_graph: Graph) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Three nodes of each kind train; two validate; of the others, three have a label and two none."""
    nodes = pd.DataFrame(tiny_graph.x.numpy(), columns=list("abcde")).assign(label=LABELS[tiny_graph.y.numpy()])
    nodes["split"] = ["train", "train", "train", "val", "val", "", "", "", "", ""] * 2
    nodes.loc[nodes.index % 10 > 7, "label"] = None
    return nodes, pd.DataFrame(tiny_graph.edge_index.T.numpy(), columns=["source", "target"])


# ------------------------------------------------------------------------------------------------- which are scored


def test_without_test_nodes_those_outside_training_are_scored(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, edges = tables
    clf = classifier().fit(nodes, edge_index=edges)
    asked: list[int] = []
    predict = clf.predict

    def noted(data: Graph, given: torch.Tensor) -> Any:
        asked[:] = given.tolist()
        return predict(data, given)

    monkeypatch.setattr(clf, "predict", noted)
    for given in ((nodes,), (nodes, nodes["label"])):
        clf.score(*given, edge_index=edges)
        assert asked == [5, 6, 7, 15, 16, 17]
    nodes.loc[[7, 8], "split"] = "test"
    clf.score(nodes, nodes["label"], edge_index=edges)  # 8 has no label
    assert asked == [7]
    with pytest.raises(InputError, match="node 8 has no label"):
        clf.score(nodes, edge_index=edges)
    clf.score(nodes.drop(columns="split"), nodes["label"], edge_index=edges)  # whoever gives labels knows whose
    assert asked == [node for node in range(20) if node % 10 < 8]


# --------------------------------------------------------------------------------------- tables in their natural place


def test_graphs_alone(tables: Any, tmp_path: Path) -> None:
    nodes, edges = tables
    clf = classifier().fit(nodes, edges)
    remedy = r"as_graph\(nodes, edges\) makes one of tables"
    array = (nodes[list("abcde")].to_numpy(), f"data must be a graph, not a ndarray: {remedy}")
    for given, message in ((nodes, "'edge_index' is missing"), array):
        for write, name in ((clf.report, "page.html"), (clf.save, "run")):
            with pytest.raises(InputError, match=message):
                write(tmp_path / name, given)
    assert not [*tmp_path.iterdir()]
    with pytest.raises(InputError, match=f"graph must be a graph, not a DataFrame: {remedy}"):
        NodeClassifier(classifier(), nodes).fit([0, 1, 10, 11], [0, 0, 1, 1])
    graph = networkx.Graph(edges.to_numpy().tolist())
    networkx.set_node_attributes(graph, {i: row.tolist() for i, row in enumerate(nodes[list("abcde")].to_numpy())}, "x")
    networkx.set_node_attributes(graph, nodes["label"].to_dict(), "label")
    other = classifier().fit(graph)
    other.save(tmp_path / "run", graph)
    samples = NodeClassifier(classifier(), graph).fit([0, 1, 10, 11], ["ant", "ant", "bee", "bee"])
    expected = NodeClassifier(classifier(), as_graph(graph)).fit([0, 1, 10, 11], ["ant", "ant", "bee", "bee"])
    assert np.array_equal(samples.predict_proba([2, 12]), expected.predict_proba([2, 12]))


# Predictions on graphs that are not the training graph.


SETTINGS = {
    "layers": 3, "hidden": 16, "stages": (3,), "epochs": 20, "weight_decay": 0.1, "unlabelled": 0, "random_state": 0,
}  # fmt: skip
AUGMENTATIONS = [("average", 4, "centered"), ("hops", 3, "unit"), ("power", 2, "centered")]


@pytest.fixture(scope="module")
def known() -> Graph:
    return communities()


@pytest.fixture(scope="module", params=AUGMENTATIONS, ids=lambda setting: setting[0])
def trained(request: pytest.FixtureRequest, known: Graph) -> GAMLPClassifier:
    augment, hops, normalize = request.param
    return GAMLPClassifier(**SETTINGS, augment=augment, hops=hops, normalize=normalize).fit(known)


def test_nodes_in_other_components_change_nothing_and_a_twin_gets_the_same(
    trained: GAMLPClassifier, known: Graph
) -> None:
    """A second copy of the graph, and strangers so far away that means or scales learned anew would show."""
    n, strangers = known.num_nodes, 100 * torch.rand(30, 20, generator=torch.Generator().manual_seed(0))
    ring = 2 * n + torch.arange(30)
    edges = [known.edge_index, known.edge_index + n, torch.stack([ring, ring.roll(1)])]
    before = trained.predict_proba(known)
    after = trained.predict_proba(Data(x=torch.cat([known.x, known.x, strangers]), edge_index=torch.cat(edges, 1)))
    np.testing.assert_allclose(after[:n], before, atol=1e-6)
    np.testing.assert_allclose(after[n : 2 * n], before, atol=1e-6)


def test_an_edge_to_a_new_node_reaches_old_ones_within_the_hops(trained: GAMLPClassifier, known: Graph) -> None:
    edges = torch.stack([torch.arange(12), torch.arange(1, 13)])
    line, longer = Data(x=known.x[:12], edge_index=edges[:, :11]), Data(x=known.x[:13], edge_index=edges)
    change = np.abs(trained.predict_proba(longer)[:12] - trained.predict_proba(line)).max(1)
    augmentation = trained.augmentation_
    # The new node changes the degree of its neighbour, and so also what that one passes on: one hop further.
    reach = augmentation.hops - 1 if augmentation.mode == "hops" else augmentation.hops
    assert change[11] > 1e-4
    assert change[: 12 - reach - 1].max() < 1e-6


def test_chosen_nodes(tiny_graph: Graph) -> None:
    clf = fitted(tiny_graph)
    everything = clf.predict(tiny_graph)
    mask = torch.zeros(20, dtype=torch.bool)
    mask[[4, 9, 10]] = True
    for nodes in (torch.tensor([10, 4, 9, 4]), np.array([19, 0]), [3, 2], mask):
        assert (clf.predict(tiny_graph, nodes) == everything[np.asarray(nodes)]).all()
    assert clf.predict(tiny_graph, []).shape == (0,)
    for wrong, message in (
        ([20], "outside"), ([-1], "outside"), ([0.5], "list of node indices"),
        (torch.ones(3, dtype=torch.bool), "shape"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=f"nodes .*{message}"):
            clf.predict(tiny_graph, wrong)


def test_the_lines_of_the_guide(tiny_graph: Data) -> None:
    guide = Path(__file__).parents[1] / "docs" / "guides" / "new-nodes.md"
    lines = guide.read_text().split("```python\n")[1].split("```")[0].replace("(random_state=0)", "(**settings)")
    scope = {
        "data": tiny_graph, "settings": SETTINGS, "new_features": tiny_graph.x[[0, 19]],
        "new_edges": torch.tensor([[20, 21], [1, 18]]),
    }  # fmt: skip
    exec(lines, scope)
    assert scope["clf"].predict(scope["grown"], [20, 21]).tolist() == [0, 1]


def test_what_to_expect_is_of_the_validation_nodes_and_kept(tmp_path: Path) -> None:
    data = communities(labels=10)
    clf = classifier(augment="hops", calibrate=True).fit(data)
    found = clf.estimate_
    value, low, high = found.figures["accuracy"]
    assert value == pytest.approx(clf.score(data, data.val_mask))
    assert low < value < high
    assert (found.on, found.nodes, found.largest_class) == ("validation", 40, 0.4)
    assert clf.score(data) == pytest.approx(value, abs=high - low)
    again = classifier(augment="hops", calibrate=True, refit=True).fit(data)
    assert again.estimate_ == found  # from before those that validated trained
    clf.save(tmp_path / "run", data)
    assert GAMLPClassifier.load(tmp_path / "run").estimate_ == found
    assert classifier().fit(data.x.numpy(), data.y.numpy()).estimate_ is None
