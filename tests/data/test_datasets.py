from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data

from pdadmm_g import InputError, load_dataset
from pdadmm_g.data.checks import check_graph, check_training
from pdadmm_g.data.datasets import BENCHMARKS, digest, missing_raw_files
from pdadmm_g.data.graph import MASKS, as_mask


def test_digits() -> None:
    data = load_dataset("digits")
    assert data.x.shape == (1797, 64)
    assert [int(data[mask].sum()) for mask in MASKS] == [50, 500, 1247]
    assert torch.bincount(data.y[data.train_mask]).tolist() == [5] * 10
    assert not (data.train_mask & data.val_mask).any()
    assert (data.train_mask | data.val_mask | data.test_mask).all()
    edges = {tuple(edge) for edge in data.edge_index.T.tolist()}
    assert all((b, a) in edges for a, b in edges)
    assert torch.bincount(data.edge_index[0]).min() >= 10
    assert torch.equal(data.train_mask, load_dataset("digits").train_mask)
    # The same graph on every machine, whatever its number of threads: distances are exact and ties are broken.
    assert hashlib.sha256(data.edge_index.numpy().tobytes()).hexdigest().startswith("8c0021322541360c")


# ------------------------------------------------------------------------------------------------- real raw files


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed", "amazon-photo"])
def test_benchmarks_have_the_documented_size_and_split(data_root: Path, name: str) -> None:
    data, benchmark = load_dataset(name, data_root), BENCHMARKS[name]
    assert data.x.shape == (benchmark.nodes, benchmark.features)
    assert int(data.y.max()) + 1 == benchmark.classes
    sizes = [int(data[mask].sum()) for mask in MASKS]
    planetoid = name != "amazon-photo"
    assert sizes == [20 * benchmark.classes, *((500, 1000) if planetoid else (1000, 1000))]
    assert not (data.train_mask & data.test_mask).any()
    assert not (data.val_mask & data.test_mask).any()


def test_split_follows_the_papers_protocol(data_root: Path) -> None:
    """Seeded with 100 before each permutation: of each class, and of the other nodes; test before validation."""
    data = load_dataset("amazon-photo", data_root)
    state = torch.random.get_rng_state()
    train = torch.zeros(data.num_nodes, dtype=torch.bool)
    for label in range(8):
        members = (data.y == label).nonzero().view(-1)
        torch.manual_seed(100)
        members = members[torch.randperm(len(members))]
        train[members[:20]] = True
    torch.manual_seed(100)
    remainder = (~train).nonzero().view(-1)
    remainder = remainder[torch.randperm(len(remainder))]
    torch.random.set_rng_state(state)
    for mask, nodes in zip(MASKS, (train.nonzero().view(-1), remainder[1000:2000], remainder[:1000]), strict=True):
        assert data[mask].nonzero().view(-1).tolist() == sorted(nodes.tolist())


# ------------------------------------------------------------------------------------ small files in the raw formats


def write_flickr(root: Path, *, features: bool = True) -> None:
    raw = root / "flickr" / "raw"
    raw.mkdir(parents=True)
    rng = np.random.default_rng(0)
    adjacency = scipy.sparse.random(14, 14, density=0.3, format="csr", random_state=0)
    np.savez(
        raw / "adj_full.npz",
        data=adjacency.data, indices=adjacency.indices, indptr=adjacency.indptr, shape=adjacency.shape,
    )  # fmt: skip
    if features:
        np.save(raw / "feats.npy", rng.normal(size=(14, 5)))
    (raw / "class_map.json").write_text(json.dumps({str(i): i % 7 for i in range(14)}))
    (raw / "role.json").write_text(json.dumps({"tr": list(range(8)), "va": [8, 9, 10], "te": [11, 12, 13]}))


def write_arxiv(root: Path) -> None:
    folder = root / "ogbn_arxiv"
    rng = np.random.default_rng(0)
    tables = {
        "raw/edge": [f"{a},{b}" for a, b in rng.integers(0, 9, (20, 2))],
        "raw/node-feat": [",".join(f"{v:.3f}" for v in row) for row in rng.normal(size=(9, 4))],
        "raw/node-label": [str(i % 3) for i in range(9)],
        "raw/node_year": ["2015"] * 9,
        "raw/num-node-list": ["9"],
        "raw/num-edge-list": ["20"],
        "split/time/train": ["0", "1", "2", "3"],
        "split/time/valid": ["4", "5"],
        "split/time/test": ["6", "7", "8"],
    }
    for name, lines in tables.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "wt") as file:
            file.write("\n".join(lines) + "\n")
    (folder / "RELEASE_v1.txt").write_text("release\n")


def test_flickr_files(tmp_path: Path) -> None:
    write_flickr(tmp_path)
    data = load_dataset("flickr", tmp_path)
    assert data.x.shape == (14, 5)
    assert data.y.tolist() == [i % 7 for i in range(14)]
    assert [int(data[mask].sum()) for mask in MASKS] == [8, 3, 3]


def test_arxiv_files(tmp_path: Path) -> None:
    write_arxiv(tmp_path)
    data = load_dataset("ogbn-arxiv", tmp_path)
    assert data.x.shape == (9, 4)
    assert data.y.tolist() == [i % 3 for i in range(9)]
    assert [int(data[mask].sum()) for mask in MASKS] == [4, 2, 3]
    check_training(data)


def test_changed_raw_files_are_not_served_from_the_cache(tmp_path: Path) -> None:
    write_flickr(tmp_path)
    before = load_dataset("flickr", tmp_path)
    features = tmp_path / "flickr/raw/feats.npy"
    np.save(features, np.arange(70.0).reshape(14, 5))
    os.utime(features, (1, 1))
    after = load_dataset("flickr", tmp_path)
    assert not torch.equal(before.x, after.x)


def test_missing_raw_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    write_flickr(tmp_path, features=False)
    with pytest.raises(InputError, match=r"flickr/raw/feats.npy is missing.*no network.*--data-root"):
        load_dataset("flickr", tmp_path)


def test_unreadable_raw_file_is_one_line(tmp_path: Path) -> None:
    write_flickr(tmp_path)
    (tmp_path / "flickr/raw/role.json").write_text("{")
    with pytest.raises(InputError, match="cannot read the raw files") as caught:
        load_dataset("flickr", tmp_path)
    assert "\n" not in str(caught.value)


def test_raw_files_of_planetoid_execute_nothing(tmp_path: Path) -> None:
    raw, trace = tmp_path / "planetoid/Cora/raw", tmp_path / "executed"
    raw.mkdir(parents=True)
    for part in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"):
        (raw / f"ind.cora.{part}").write_bytes(pickle.dumps(Bomb(trace), protocol=2))
    with pytest.raises(InputError, match="planetoid/Cora: cannot read the raw files"):
        load_dataset("cora", tmp_path)
    assert not trace.exists()


def test_a_download_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an archive all that belongs to the data set is taken out, and what is under the root is not asked for."""
    write_arxiv(tmp_path / "there")
    files = [*BENCHMARKS["ogbn-arxiv"].raw_files]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as content:
        for name in files:
            content.write(tmp_path / "there/ogbn_arxiv" / name, f"arxiv/{name}")
    asked: list[str] = []

    def opened(address: str, timeout: float) -> io.BytesIO:
        asked.append(address)
        return io.BytesIO(archive.getvalue())

    monkeypatch.setattr("urllib.request.urlopen", opened)
    monkeypatch.delenv("PDADMM_G_DATA", raising=False)
    here = load_dataset("ogbn-arxiv", tmp_path / "there")
    for _ in range(2):
        assert digest(load_dataset("ogbn-arxiv", cache=tmp_path / "cache")) == digest(here)
    assert len(asked) == 1


def test_missing_root_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: no such folder"):
        load_dataset("cora", tmp_path / "nowhere")


def test_missing_raw_files(tmp_path: Path) -> None:
    assert "flickr/raw/feats.npy" in missing_raw_files(BENCHMARKS["flickr"], tmp_path)
    write_flickr(tmp_path)
    assert missing_raw_files(BENCHMARKS["flickr"], tmp_path) == []


# ---------------------------------------------------------------------------------------------------- own files


def save_npz(path: Path, data: Data, **changes: object) -> Path:
    arrays = {name: value.numpy() for name, value in data.to_dict().items()} | changes
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return path


def test_npz_round_trip(tmp_path: Path, tiny_graph: Data) -> None:
    data = load_dataset(save_npz(tmp_path / "graph.npz", tiny_graph))
    for name, value in tiny_graph.to_dict().items():
        assert torch.equal(data[name], value), name


def test_a_file_is_looked_for_under_the_data_root_too(tmp_path: Path, tiny_graph: Data, monkeypatch) -> None:
    save_npz(tmp_path / "graph.npz", tiny_graph)
    assert load_dataset("graph.npz", tmp_path).num_nodes == tiny_graph.num_nodes
    monkeypatch.setenv("PDADMM_G_DATA", str(tmp_path))
    assert load_dataset("graph.npz").num_nodes == tiny_graph.num_nodes
    with pytest.raises(InputError, match="^other.npz: no such file"):
        load_dataset("other.npz")


def test_npz_masks_may_be_indices(tmp_path: Path, tiny_graph: Data) -> None:
    nodes = tiny_graph.train_mask.nonzero().view(-1).numpy()
    data = load_dataset(save_npz(tmp_path / "graph.npz", tiny_graph, train_mask=nodes))
    assert torch.equal(data.train_mask, tiny_graph.train_mask)


def test_pt_round_trip(tmp_path: Path, tiny_graph: Data) -> None:
    torch.save(tiny_graph, tmp_path / "graph.pt")
    data = load_dataset(tmp_path / "graph.pt")
    assert torch.equal(data.x, tiny_graph.x)
    assert torch.equal(data.edge_index, tiny_graph.edge_index)


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("suffix", [".pt", ".npz"])
def test_nothing_in_a_file_is_executed(tmp_path: Path, suffix: str) -> None:
    path, trace = tmp_path / f"bomb{suffix}", tmp_path / "executed"
    if suffix == ".pt":
        torch.save(Data(x=torch.eye(2), note=Bomb(trace)), path)
    else:
        np.savez(path, x=np.array([Bomb(trace)], dtype=object))
    with pytest.raises(InputError, match="cannot (be )?read"):
        load_dataset(path)
    assert not trace.exists()
    pickle.loads(pickle.dumps(Bomb(trace)))
    assert trace.exists()  # the bomb would have gone off


@pytest.mark.parametrize("suffix", [".pt", ".npz"])
@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04broken"])
def test_garbage_files_are_refused(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"file{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"file{suffix}: cannot read") as caught:
        load_dataset(path)
    assert "\n" not in str(caught.value)


def test_pt_with_something_else_inside(tmp_path: Path) -> None:
    torch.save({"x": torch.eye(2)}, tmp_path / "dict.pt")
    with pytest.raises(InputError, match="holds a dict"):
        load_dataset(tmp_path / "dict.pt")


def test_unknown_names_and_missing_files() -> None:
    with pytest.raises(InputError, match="unknown data set 'korra'; known: digits, cora"):
        load_dataset("korra")
    with pytest.raises(InputError, match="nowhere.npz: no such file"):
        load_dataset("nowhere.npz")


# --------------------------------------------------------------------------------------------------------- checks


def broken(data: Data, **changes: object) -> Data:
    data = data.clone()
    for name, value in changes.items():
        data[name] = value
    return data


def with_entry(tensor: torch.Tensor, index: tuple[int, ...], value: float) -> torch.Tensor:
    tensor = tensor.clone()
    tensor[index] = value
    return tensor


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_features_name_the_row(tiny_graph: Data, value: float) -> None:
    x = with_entry(tiny_graph.x, (13, 2), value)
    with pytest.raises(InputError, match="NaN or infinity, first in row 13"):
        check_graph(broken(tiny_graph, x=x))
    with pytest.raises(InputError, match="NaN or infinity, first in row 13"):
        check_graph(broken(tiny_graph, x=x.to_sparse()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_features_that_would_overflow_are_refused(tiny_graph: Data, dtype: torch.dtype) -> None:
    x = with_entry(tiny_graph.x.to(dtype), (7, 1), 3e38)
    with pytest.raises(InputError, match="features exceed 1e.15, first in row 7"):
        check_graph(broken(tiny_graph, x=x))
    check_graph(broken(tiny_graph, x=torch.full((20, 5), 1e14)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"edge_index": torch.tensor([[0, 20], [1, 0]])}, r"edge_index names node 20, but nodes are 0\.\.19"),
        ({"edge_index": torch.tensor([[0, -1], [1, 0]])}, "edge_index names node -1"),
        ({"edge_index": torch.zeros(3, 4, dtype=torch.long)}, r"edge_index must have shape \(2, edges\)"),
        ({"edge_index": torch.zeros(2, 4)}, "edge_index must hold integers"),
        ({"y": torch.full((20,), 0.5)}, r"labels must be integers, but y\[0\] = 0.5"),
        ({"y": torch.zeros(19, dtype=torch.long)}, r"labels 'y' have shape \(19,\), expected \(20,\)"),
        ({"y": torch.full((20,), -2)}, "labels must be 0 or more"),
        ({"x": torch.zeros(20)}, "features 'x' must be a matrix"),
        ({"x": torch.zeros(20, 0)}, "features 'x' must be a matrix"),
        ({"train_mask": torch.ones(19, dtype=torch.bool)}, r"train_mask has shape \(19,\), expected \(20,\)"),
        ({"train_mask": torch.tensor([0, 20])}, r"train_mask names a node outside 0\.\.19"),
        ({"train_mask": torch.ones(20)}, "train_mask must be booleans or a list of node indices"),
    ],
)
def test_unsound_graphs_are_refused(tiny_graph: Data, changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_graph(broken(tiny_graph, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": None}, "labels 'y' are missing"),
        ({"train_mask": torch.zeros(20, dtype=torch.bool)}, "train_mask is empty"),
        ({"train_mask": torch.tensor([0, 1])}, "class 1 has no training node"),
        ({"y": torch.tensor([-1, *[0] * 9, *[1] * 10])}, r"node 0 of train_mask has no label \(y = -1\)"),
    ],
)
def test_untrainable_graphs_are_refused(tiny_graph: Data, changes: dict[str, object], message: str) -> None:
    data = check_graph(broken(tiny_graph, **changes))
    with pytest.raises(InputError, match=message):
        check_training(data)


def test_overlapping_masks_warn(tiny_graph: Data) -> None:
    with pytest.warns(UserWarning, match="train_mask and test_mask share 6 nodes"):
        check_training(broken(tiny_graph, test_mask=tiny_graph.train_mask | tiny_graph.test_mask))


def test_labels_may_be_whole_floats_or_a_column(tiny_graph: Data) -> None:
    data = check_graph(broken(tiny_graph, y=tiny_graph.y.float()[:, None]))
    assert torch.equal(data.y, tiny_graph.y)


def test_as_mask() -> None:
    assert as_mask([1, 3], 4, "mask").tolist() == [False, True, False, True]
    assert as_mask([True, False], 2, "mask").tolist() == [True, False]
    for dtype in (np.uint8, np.int64, np.uint16):
        assert as_mask(np.array([1, 0, 1], dtype=dtype), 3, "mask").tolist() == [True, False, True]
    with pytest.raises(InputError, match="mask names a node twice"):
        as_mask([0, 2, 2], 4, "mask")
