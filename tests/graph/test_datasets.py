from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data

from helpers.commands import save
from pdadmm_g import InputError, load_dataset
from pdadmm_g.graph.datasets import BENCHMARKS, digest, missing_raw_files
from pdadmm_g.graph.graph import MASKS


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


def test_flickr_and_arxiv_files(tmp_path: Path) -> None:
    write_flickr(tmp_path)
    write_arxiv(tmp_path)
    for name, shape, classes, sizes in (("flickr", (14, 5), 7, [8, 3, 3]), ("ogbn-arxiv", (9, 4), 3, [4, 2, 3])):
        data = load_dataset(name, tmp_path)
        assert data.x.shape == shape
        assert data.y.tolist() == [i % classes for i in range(shape[0])]
        assert [int(data[mask].sum()) for mask in MASKS] == sizes


def test_missing_and_unreadable_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", no_network)
    write_flickr(tmp_path, features=False)
    assert missing_raw_files(BENCHMARKS["flickr"], tmp_path) == ["flickr/raw/feats.npy"]
    with pytest.raises(InputError, match=r"flickr/raw/feats.npy is missing.*no network.*--data-root"):
        load_dataset("flickr", tmp_path)
    write_flickr(tmp_path / "whole")
    assert missing_raw_files(BENCHMARKS["flickr"], tmp_path / "whole") == []
    (tmp_path / "whole/flickr/raw/role.json").write_text("{")
    with pytest.raises(InputError, match="flickr: cannot read as raw files") as caught:
        load_dataset("flickr", tmp_path / "whole")
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="nowhere: no such folder"):
        load_dataset("cora", tmp_path / "nowhere")
    with pytest.raises(InputError, match="'korra'; known: digits, cora"):
        load_dataset("korra")


def test_raw_files_of_planetoid_execute_nothing(tmp_path: Path) -> None:
    raw, trace = tmp_path / "planetoid/Cora/raw", tmp_path / "executed"
    raw.mkdir(parents=True)
    for part in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"):
        (raw / f"ind.cora.{part}").write_bytes(pickle.dumps(Bomb(trace), protocol=2))
    with pytest.raises(InputError, match="planetoid/Cora: cannot read as raw files"):
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


# ---------------------------------------------------------------------------------------------------- own files


def test_npz_round_trip(tmp_path: Path, tiny_graph: Data) -> None:
    """Masks may be indices, and numbers of other byte orders and kinds."""
    nodes, x = tiny_graph.train_mask.nonzero().view(-1).numpy(), tiny_graph.x.numpy().astype(">f8")
    for changes in ({}, {"train_mask": nodes}, {"x": x, "y": tiny_graph.y.numpy().astype(np.uint64)}):
        data = load_dataset(save(tmp_path / "graph.npz", tiny_graph, **changes))
        for name, value in tiny_graph.to_dict().items():
            assert torch.equal(data[name], value), name


def test_a_file_is_looked_for_under_the_data_root_too(tmp_path: Path, tiny_graph: Data, monkeypatch) -> None:
    save(tmp_path / "graph.npz", tiny_graph)
    assert load_dataset("graph.npz", tmp_path).num_nodes == tiny_graph.num_nodes
    monkeypatch.setenv("PDADMM_G_DATA", str(tmp_path))
    assert load_dataset("graph.npz").num_nodes == tiny_graph.num_nodes
    with pytest.raises(InputError, match="^other.npz: no such file"):
        load_dataset("other.npz")


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
    """In one line that quotes no other library."""
    path = tmp_path / f"file{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"file{suffix}: cannot read") as caught:
        load_dataset(path)
    for word in ("\n", "pickle", "weights_only", "PytorchStreamReader", "zip"):
        assert word not in str(caught.value)


# -------------------------------------------------------------- files that once ended in a traceback, a hang, gigabytes


def npy(shape: str, dtype: str = "<f4", body: bytes = b"") -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy("(547608330240, 3)"), "read|memory|fit"),
        (npy("(" * 300), "cannot read as an array"),
        (npy("(1,)", "|O", b"cos\nsystem\n(S'false'\ntR."), "Python objects are not read"),
        (npy("(1,)", "<U1", b"abcd"), "not text"),
    ],
    ids=["terabytes", "unclosed", "pickle", "text"],
)
def test_hostile_array_headers(tmp_path: Path, content: bytes, message: str) -> None:
    with zipfile.ZipFile(tmp_path / "g.npz", "w") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(InputError, match=f"g.npz: 'x'.*{message}"):
        load_dataset(tmp_path / "g.npz")


def test_arrays_that_are_not_used_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", x=np.ones((3, 2)), edge_index=np.array([[0], [1]]), edge_weights=np.ones(1))
    with pytest.warns(UserWarning, match=r"g.npz: 'edge_weights' is not used; the arrays of a graph are x, edge_index"):
        load_dataset(tmp_path / "g.npz")
