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

from pdadmm_g import GAMLPClassifier, Graph, InputError, NodeClassifier, as_graph, load_dataset

MASKS = ("train_mask", "val_mask", "test_mask")


@pytest.fixture(autouse=True)
def no_warning_reaches_the_user():
    torch.set_warn_always(True)  # not only the first time, which may have been in another test
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Sparse CSR tensor support")  # torch to whoever makes one
        yield
    torch.set_warn_always(False)


def fitted(data: Data, **settings: object) -> GAMLPClassifier:
    fixed = {"layers": 2, "hidden": 8, "epochs": 20, "augment": "average", "hops": 2, "normalize": "unit"}
    return GAMLPClassifier(**fixed | {"weight_decay": 0.1, "random_state": 0} | settings).fit(data)


def model_bytes(clf: GAMLPClassifier, folder: Path) -> bytes:
    clf.save(folder / "model.safetensors")
    return (folder / "model.safetensors").read_bytes()


def with_edges(data: Data, edge_index: torch.Tensor) -> Data:
    changed = data.clone()
    changed.edge_index = edge_index
    return changed


def without_edges_of(data: Data, nodes: list[int]) -> Data:
    touched = torch.isin(data.edge_index, torch.tensor(nodes)).any(0)
    return with_edges(data, data.edge_index[:, ~touched])


# --------------------------------------------------------------------------------------------------------------- edges


@pytest.mark.parametrize("mask", MASKS)
def test_isolated_nodes(tiny_graph: Data, mask: str) -> None:
    """A node alone is its own features, and is predicted as if the rest of the graph were not there."""
    isolated = tiny_graph[mask].nonzero().view(-1).tolist()
    data = without_edges_of(tiny_graph, isolated)
    clf = fitted(data)
    alone = Data(x=data.x[isolated], edge_index=torch.empty(2, 0, dtype=torch.int64))
    np.testing.assert_allclose(clf.predict_proba(data)[isolated], clf.predict_proba(alone), atol=1e-6)
    assert clf.score(data) >= 0.75
    rows = clf.augmentation_.features(data)[isolated]
    torch.testing.assert_close(rows, torch.nn.functional.normalize(data.x[isolated]))


@pytest.mark.parametrize("blemish", ["self-loops", "doubled", "one direction", "other order"])
def test_edges_count_as_undirected_and_once(tiny_graph: Data, tmp_path: Path, blemish: str) -> None:
    edges = tiny_graph.edge_index
    changed = {
        "self-loops": torch.cat([edges, torch.arange(20).expand(2, -1)], 1),
        "doubled": torch.cat([edges, edges, edges.flip(0)], 1),
        "one direction": edges[:, edges[0] < edges[1]],
        "other order": edges.flip(1),
    }[blemish]
    expected = model_bytes(fitted(tiny_graph), tmp_path)
    assert model_bytes(fitted(with_edges(tiny_graph, changed)), tmp_path) == expected


@pytest.mark.parametrize("settings", [{}, {"augment": "auto", "normalize": "auto", "hops": None}], ids=["set", "auto"])
def test_no_edges_at_all(tiny_graph: Data, settings: dict[str, object]) -> None:
    """Every node is alone: the graph adds nothing, and that is no error."""
    data = with_edges(tiny_graph, torch.empty(2, 0, dtype=torch.int64))
    clf = fitted(data, **settings)
    assert clf.score(data) >= 0.75
    alone = fitted(data, **settings | {"augment": "none", "hops": 1})
    np.testing.assert_allclose(clf.predict_proba(data), alone.predict_proba(data), atol=1e-4)


# ------------------------------------------------------------------------------------------------------- permutations


@pytest.mark.parametrize("normalize", ["unit", "centered"])
def test_fitting_is_permutation_equivariant(tiny_graph: Data, normalize: str) -> None:
    """Other names for the nodes change sums by their rounding only, before and after training."""
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    permuted = Data(x=tiny_graph.x[order], edge_index=order.argsort()[tiny_graph.edge_index], y=tiny_graph.y[order])
    for mask in MASKS:
        permuted[mask] = tiny_graph[mask][order]
    clf, other = (fitted(data, normalize=normalize) for data in (tiny_graph, permuted))
    assert clf.predict(tiny_graph)[order].tolist() == other.predict(permuted).tolist()
    np.testing.assert_allclose(clf.predict_proba(tiny_graph)[order], other.predict_proba(permuted), atol=1e-3)


# --------------------------------------------------------------------------------------------------------------- masks


@pytest.mark.parametrize("kind", ["indices", "numpy booleans", "read-only", "backwards", "lists"])
def test_masks_of_any_kind_give_the_same_model(tiny_graph: Data, tmp_path: Path, kind: str) -> None:
    def convert(mask: torch.Tensor) -> object:
        booleans, indices = mask.numpy().copy(), mask.nonzero().view(-1)
        booleans.flags.writeable = kind != "read-only"
        backwards = np.ascontiguousarray(booleans[::-1])[::-1]
        kinds = {"indices": indices, "lists": indices.tolist(), "backwards": backwards}
        return kinds.get(kind, booleans)

    changed = tiny_graph.clone()
    for mask in MASKS:
        changed[mask] = convert(tiny_graph[mask])
    expected = fitted(tiny_graph)
    clf = fitted(changed)
    assert model_bytes(clf, tmp_path) == model_bytes(expected, tmp_path)
    assert clf.score(changed) == expected.score(tiny_graph)


def test_empty_validation_mask_is_no_validation(tiny_graph: Data) -> None:
    for kind in (torch.bool, torch.int64, torch.uint8):
        tiny_graph.val_mask = torch.zeros(20, dtype=kind)
        clf = fitted(tiny_graph)
        assert clf.history_[-1]["val_accuracy"] is None
        assert clf.score(tiny_graph) == 1.0


@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.uint8])
def test_empty_training_mask_is_refused(tiny_graph: Data, kind: torch.dtype) -> None:
    tiny_graph.train_mask = torch.zeros(20, dtype=kind)
    with pytest.raises(InputError, match="train_mask is empty: mark at least one node per class"):
        fitted(tiny_graph)


# ------------------------------------------------------------------------------------------------------------- features


@pytest.mark.parametrize("kind", ["float16", "float64", "int64", "uint8", "sparse", "csr", "transposed"])
def test_feature_types(tiny_graph: Data, kind: str) -> None:
    """Features that hold the same numbers give the same predictions, whatever they are stored as."""
    tiny_graph.x = (4 * tiny_graph.x).round().abs()
    convert = {
        "sparse": torch.Tensor.to_sparse,
        "csr": torch.Tensor.to_sparse_csr,
        "transposed": lambda x: x.T.contiguous().T,
    }.get(kind, lambda x: x.to(getattr(torch, kind)))
    changed = tiny_graph.clone()
    changed.x = convert(tiny_graph.x)
    expected, clf = fitted(tiny_graph), fitted(changed)
    np.testing.assert_allclose(clf.predict_proba(changed), expected.predict_proba(tiny_graph), atol=1e-5)
    assert clf.predict_proba(changed).dtype == np.float32


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(20, 5, dtype=torch.complex64), "must be real numbers"),
        (torch.full((20, 5), 1e300, dtype=torch.float64), "exceed 1e.15, first in row 0: rescale them"),
        (torch.full((20, 5), float("inf"), dtype=torch.float16), "NaN or infinity, first in row 0"),
        (torch.zeros(20), "must be a matrix"),
        (np.zeros(20), "must be a matrix"),
    ],
    ids=["complex", "too large", "infinite", "vector", "array"],
)
def test_features_that_are_refused(tiny_graph: Data, x: object, message: str) -> None:
    tiny_graph.x = x
    with pytest.raises(InputError, match=message):
        fitted(tiny_graph)


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("normalize", ["unit", "centered", "auto"])
def test_features_that_say_nothing(tiny_graph: Data, value: float, normalize: str) -> None:
    """Nothing to learn, and nothing that is not a number."""
    tiny_graph.x = torch.full((20, 5), value)
    clf = fitted(tiny_graph, normalize=normalize)
    assert clf.status_.name in ("MAX_EPOCHS", "EARLY_STOPPED", "CONVERGED")
    probabilities = clf.predict_proba(tiny_graph)
    assert np.isfinite(probabilities).all()
    assert clf.score(tiny_graph) == 0.5


@pytest.mark.parametrize("scale", [3e38])
@pytest.mark.parametrize("solver", ["exact", "linearized"])
@pytest.mark.parametrize("quantize", ["none", "pq"])
def test_activations_that_overflow_end_in_a_status(tiny_graph: Data, quantize: str, solver: str, scale: float) -> None:
    """With levels that cannot be calibrated as without."""
    X = np.clip(tiny_graph.x.double().numpy() * scale, -3.4e38, 3.4e38)
    settings = {"layers": 3, "hidden": 8, "epochs": 5, "weight_decay": 0.1, "random_state": 0}
    with np.errstate(all="ignore"):  # scikit-learn adds the features up
        clf = GAMLPClassifier(quantize=quantize, solver=solver, **settings).fit(X, tiny_graph.y.numpy())
    assert clf.status_.name == "NON_FINITE"
    assert all(torch.isfinite(parameter).all() for parameter in clf.model_.parameters())


# --------------------------------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize("kind", ["int32", "uint8", "int16", "float32"])
def test_label_types(tiny_graph: Data, tmp_path: Path, kind: str) -> None:
    changed = tiny_graph.clone()
    changed.y = tiny_graph.y.to(getattr(torch, kind))
    assert model_bytes(fitted(changed), tmp_path) == model_bytes(fitted(tiny_graph), tmp_path)


def test_labels_with_gaps(tiny_graph: Data) -> None:
    tiny_graph.y = torch.where(tiny_graph.y == 0, 200, 5).to(torch.uint8)
    clf = fitted(tiny_graph)
    assert clf.classes_.tolist() == [5, 200]
    assert clf.predict(tiny_graph).tolist() == tiny_graph.y.tolist()


def test_one_node_per_class(tiny_graph: Data) -> None:
    tiny_graph.train_mask = torch.tensor([0, 11])
    assert fitted(tiny_graph).score(tiny_graph) == 1.0


@pytest.mark.parametrize("settings", [{}, {"augment": "auto", "weight_decay": None}], ids=["set", "auto"])
def test_one_class_is_refused(tiny_graph: Data, settings: dict[str, object]) -> None:
    tiny_graph.y = torch.full((20,), 3)
    with pytest.raises(InputError, match="all training nodes are of class 3: there is nothing to tell apart"):
        fitted(tiny_graph, **settings)


# --------------------------------------------------------------------------------------------------------- memory maps


def test_read_only_memory_maps(tiny_graph: Data, tmp_path: Path) -> None:
    """Feature matrices and labels straight from files that must not be written to."""
    for name, array in (("X", tiny_graph.x.numpy()), ("y", tiny_graph.y.numpy())):
        np.save(tmp_path / f"{name}.npy", array)
    X, y = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "Xy")
    assert not X.flags.writeable
    clf = GAMLPClassifier(layers=2, hidden=8, epochs=20, weight_decay=0.1, random_state=0).fit(X, y)
    again = GAMLPClassifier(layers=2, hidden=8, epochs=20, weight_decay=0.1, random_state=0).fit(np.array(X), y)
    np.testing.assert_array_equal(clf.predict_proba(X), again.predict_proba(np.array(X)))
    assert clf.score(X, y) == 1.0


# What people write with two tables means what they mean, or one line says what to write.


LABELS = np.array(["ant", "bee"])


def classifier(**settings: Any) -> GAMLPClassifier:
    fixed = {"layers": 2, "hidden": 8, "epochs": 3, "augment": "hops", "hops": 2, "normalize": "unit"}
    return GAMLPClassifier(**fixed | {"weight_decay": 0.1, "unlabelled": 0, "random_state": 0} | settings)


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
    unseen = [5, 6, 7, 15, 16, 17]
    clf.score(nodes, edge_index=edges)
    assert asked == unseen
    clf.score(as_graph(nodes, edge_index=edges))
    assert asked == unseen
    clf.score(nodes, nodes["label"], edge_index=edges)
    assert asked == unseen
    nodes.loc[[7, 8], "split"] = "test"
    clf.score(nodes, nodes["label"], edge_index=edges)  # 8 has no label
    assert asked == [7]
    with pytest.raises(InputError, match="node 8 has no label"):
        clf.score(nodes, edge_index=edges)
    clf.score(nodes.drop(columns="split"), nodes["label"], edge_index=edges)  # whoever gives labels knows whose
    assert asked == [node for node in range(20) if node % 10 < 8]


def test_who_is_scored_must_be_said(tables: Any) -> None:
    nodes, edges = tables
    clf = classifier().fit(nodes, edge_index=edges)
    plain = nodes.drop(columns="split")
    message = r"test_mask' is missing.*score\(data, mask\), or give labels: score\(nodes, y, edge_index=edges\)$"
    for call in (lambda: clf.score(plain, edge_index=edges), lambda: clf.score(as_graph(plain, edge_index=edges))):
        with pytest.raises(InputError, match=message):
            call()
    everyone = nodes.assign(split="train").dropna()
    joined = edges[edges.isin(everyone.index).all(axis=1)]
    with pytest.raises(InputError, match=message):
        clf.score(everyone, edge_index=joined)


# --------------------------------------------------------------------------------------- tables in their natural place


def test_a_table_of_edges_in_second_place(tables: Any) -> None:
    nodes, edges = tables
    clf = classifier().fit(nodes, edges)
    expected = classifier().fit(nodes, edge_index=edges)
    assert np.array_equal(clf.predict_proba(nodes, edges), expected.predict_proba(nodes, edge_index=edges))
    assert clf.predict(nodes, edges).tolist() == expected.predict(nodes, edge_index=edges).tolist()
    assert clf.predictions(nodes, edges)["label"].tolist() == clf.predict(nodes, edges).tolist()
    assert clf.score(nodes, edges) == expected.score(nodes, edge_index=edges)
    assert torch.equal(as_graph(nodes, edges).edge_index, as_graph(nodes, edge_index=edges).edge_index)
    features = nodes[list("abcde")].to_numpy()
    assert clf.fit(features, nodes["label"], edges).predict(features, edges).shape == (20,)


def test_nodes_without_edges(tables: Any) -> None:
    nodes, edges = tables
    with pytest.raises(InputError, match=r"'edge_index' is missing; give edges, fit\(nodes, edges\), or leave .*none"):
        classifier().fit(nodes)
    with pytest.raises(InputError, match="labels 'y' are missing; in a table they are the column 'label'"):
        classifier().fit(nodes.drop(columns="label"))
    with pytest.raises(InputError, match="'edge_index' is missing"):
        classifier().fit(nodes, edges).predict(nodes)
    alone = classifier(augment="none", hops=None).fit(nodes)
    assert alone.predict(nodes).shape == (20,)
    assert alone.score(nodes) <= 1.0


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
    samples, expected = (
        NodeClassifier(classifier(), given).fit([0, 1, 10, 11], ["ant", "ant", "bee", "bee"])
        for given in (graph, as_graph(graph))
    )
    assert samples.predict([2, 12]).tolist() == expected.predict([2, 12]).tolist()
    assert np.array_equal(samples.predict_proba([2, 12]), expected.predict_proba([2, 12]))


# Predictions on graphs that are not the training graph.


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
def on_digits(request: pytest.FixtureRequest, digits: Data) -> GAMLPClassifier:
    augment, hops, normalize = request.param
    return GAMLPClassifier(**SETTINGS, augment=augment, hops=hops, normalize=normalize).fit(digits)


def grown(data: Data, x: torch.Tensor, edges: list[tuple[int, int]]) -> Data:
    """The graph with more nodes and edges, without labels and masks."""
    return Data(
        x=torch.cat([data.x, x]),
        edge_index=torch.cat([data.edge_index, torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T], dim=1),
    )


def test_nodes_in_another_component_change_nothing(on_digits: GAMLPClassifier, digits: Data) -> None:
    n = digits.num_nodes
    # Far from any digit, so that means or scales that were learned anew would show.
    strangers = 100 * torch.rand(300, 64, generator=torch.Generator().manual_seed(0))
    more = grown(digits, strangers, [(n + i, n + (7 * i + 1) % 300) for i in range(300)])
    np.testing.assert_allclose(on_digits.predict_proba(more)[:n], on_digits.predict_proba(digits), atol=1e-6)


def test_a_twin_gets_the_prediction_of_the_node_it_copies(on_digits: GAMLPClassifier, digits: Data) -> None:
    # A second copy of the graph: new nodes with the same neighbourhoods as the old ones.
    n = digits.num_nodes
    pair = Data(x=torch.cat([digits.x, digits.x]), edge_index=torch.cat([digits.edge_index, digits.edge_index + n], 1))
    before, after = on_digits.predict_proba(digits), on_digits.predict_proba(pair)
    np.testing.assert_allclose(after[:n], before, atol=1e-6)
    np.testing.assert_allclose(after[n:], before, atol=1e-6)


def test_an_edge_to_a_new_node_reaches_old_ones_within_the_hops(on_digits: GAMLPClassifier, digits: Data) -> None:
    line = Data(x=digits.x[:12], edge_index=torch.stack([torch.arange(11), torch.arange(1, 12)]))
    longer = grown(line, digits.x[12:13], [(11, 12)])
    change = np.abs(on_digits.predict_proba(longer)[:12] - on_digits.predict_proba(line)).max(1)
    augmentation = on_digits.augmentation_
    assert augmentation is not None
    # The new node changes the degree of its neighbour, and so also what that one passes on: one hop further.
    reach = augmentation.hops - 1 if augmentation.mode == "hops" else augmentation.hops
    assert change[11] > 1e-4
    assert change[: 12 - reach - 1].max() < 1e-6


def test_permuting_the_nodes_permutes_the_predictions(on_digits: GAMLPClassifier, digits: Data) -> None:
    n = digits.num_nodes
    more = grown(digits, digits.x[:20] + 1, [(n + i, 3 * i) for i in range(20)])
    order = torch.randperm(n + 20, generator=torch.Generator().manual_seed(1))
    place = torch.empty_like(order)
    place[order] = torch.arange(n + 20)
    shuffled = Data(x=more.x[order], edge_index=place[more.edge_index])
    np.testing.assert_allclose(on_digits.predict_proba(shuffled), on_digits.predict_proba(more)[order], atol=1e-6)


def test_chosen_nodes(on_digits: GAMLPClassifier, digits: Data) -> None:
    everything = on_digits.predict(digits)
    mask = torch.zeros(1797, dtype=torch.bool)
    mask[[4, 9, 1000]] = True
    for nodes in (torch.tensor([1000, 4, 9, 4]), np.array([1796, 0]), [3, 2], mask):
        assert (on_digits.predict(digits, nodes) == everything[np.asarray(nodes)]).all()
    assert on_digits.predict(digits, []).shape == (0,)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([1797], r"nodes names a node outside 0\.\.1796"),
        ([-1], "outside"),
        ([0.5], "booleans or a list of node indices"),
        (torch.ones(3, dtype=torch.bool), r"nodes has shape \(3,\)"),
    ],
)
def test_nodes_that_are_not_there(on_digits: GAMLPClassifier, digits: Data, nodes: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        on_digits.predict(digits, nodes)


def test_the_lines_of_the_guide(tiny_graph: Data) -> None:
    guide = Path(__file__).parents[1] / "docs" / "guides" / "new-nodes.md"
    lines = guide.read_text().split("```python\n")[1].split("```")[0].replace("(random_state=0)", "(**settings)")
    scope = {
        "data": tiny_graph, "settings": SETTINGS, "new_features": tiny_graph.x[[0, 19]],
        "new_edges": torch.tensor([[20, 21], [1, 18]]),
    }  # fmt: skip
    exec(lines, scope)
    assert scope["clf"].predict(scope["grown"], [20, 21]).tolist() == [0, 1]
