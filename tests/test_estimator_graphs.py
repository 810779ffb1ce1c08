"""What scikit-learn's contract asks of matrices, asked of graphs: odd but sound input works, the rest is named."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from pdadmm_g import GAMLPClassifier, InputError

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


@pytest.mark.parametrize("scale", [1e38, 3e38])
@pytest.mark.parametrize("solver", ["exact", "linearized"])
@pytest.mark.parametrize("quantize", ["none", "p", "pq"])
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


def test_labels_and_masks_of_a_graph_may_be_memory_maps(tiny_graph: Data, tmp_path: Path) -> None:
    expected = model_bytes(fitted(tiny_graph), tmp_path)
    for name in ("y", *MASKS):
        np.save(tmp_path / f"{name}.npy", tiny_graph[name].numpy())
        tiny_graph[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
    assert model_bytes(fitted(tiny_graph), tmp_path) == expected
