"""Files that once ended in a traceback, a hang or gigabytes."""

from __future__ import annotations

import io
import struct
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from pdadmm_g import InputError, load_dataset
from pdadmm_g.data import graph_files


def npy(shape: str, dtype: str = "<f4", body: bytes = b"") -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


HEADERS = {
    "terabytes": (npy("(547608330240, 3)"), "does not fit its"),
    "overflow": (npy(f"({2**63}, {2**63})"), "does not fit its"),
    "negative": (npy("(-1, 3)"), "does not fit its"),
    "unclosed": (npy("(" * 300), "cannot be read as an array"),
    "pickle": (npy("(1,)", "|O", b"cos\nsystem\n(S'false'\ntR."), "not Python objects"),
    "text": (npy("(1,)", "<U1", b"abcd"), "not text"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_array_headers(tmp_path: Path, name: str) -> None:
    content, message = HEADERS[name]
    with zipfile.ZipFile(tmp_path / "g.npz", "w") as archive:
        archive.writestr("x.npy", content)
    with pytest.raises(InputError, match=f"g.npz: 'x' .*{message}"):
        load_dataset(tmp_path / "g.npz")


def test_sizes_beyond_what_the_archive_can_hold_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy("(1000000, 1)", body=bytes(4_000_000)))
    assert load_dataset(path).x.shape == (1000000, 1)
    content = path.read_bytes()
    size = struct.pack("<I", len(npy("(1000000, 1)")) + 4_000_000)
    path.write_bytes(content.replace(size, struct.pack("<I", 2**32 - 2)))
    with pytest.raises(InputError, match="claims more bytes than the file can hold"):
        load_dataset(path)


def test_a_name_twice_and_broken_deflate(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", npy("(1, 1)", body=bytes(4)))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("x.npy", npy("(1, 1)", body=bytes(4)))
    with pytest.raises(InputError, match="holds 'x' twice"):
        load_dataset(path)
    np.savez_compressed(path, x=np.arange(300.0).reshape(100, 3))
    content = bytearray(path.read_bytes())
    content[200:260] = b"\xff" * 60
    path.write_bytes(content)
    with pytest.raises(InputError, match="'x' cannot be read as an array"):
        load_dataset(path)


def test_other_byte_orders_and_unsigned_numbers_are_read(tmp_path: Path) -> None:
    x = np.arange(6.0).reshape(3, 2)
    np.savez(tmp_path / "g.npz", x=x.astype(">f8"), y=np.array([0, 1, 1], dtype=np.uint64))
    data = load_dataset(tmp_path / "g.npz")
    assert np.array_equal(data.x.numpy(), x)
    assert data.y.tolist() == [0, 1, 1]


def test_unreadable_files_do_not_quote_other_libraries(tmp_path: Path) -> None:
    for name in ("g.npz", "g.pt"):
        (tmp_path / name).write_bytes(b"PK\x03\x04 nonsense")
        with pytest.raises(InputError, match=f"{name}: cannot read as") as caught:
            load_dataset(tmp_path / name)
        for word in ("pickle", "weights_only", "PytorchStreamReader", "zip"):
            assert word not in str(caught.value)


def test_incomplete_record_in_a_pt_file(tmp_path: Path, tiny_graph: Data) -> None:
    data = tiny_graph.to_pyg()
    del data.__dict__["_store"]
    torch.save(data, tmp_path / "g.pt")
    with pytest.raises(InputError, match="g.pt: cannot read as a saved torch_geometric Data"):
        load_dataset(tmp_path / "g.pt")


def test_arrays_that_are_not_used_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", x=np.ones((3, 2)), edge_index=np.array([[0], [1]]), edge_weights=np.ones(1))
    with pytest.warns(UserWarning, match=r"g.npz: 'edge_weights' is not used; the arrays of a graph are x, edge_index"):
        load_dataset(tmp_path / "g.npz")


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features of any size stay out of memory where that is asked for, and are read a few rows at a time."""
    monkeypatch.setattr(graph_files, "PREDICT_BYTES", 0)
    monkeypatch.setattr(graph_files, "PIECE_BYTES", 100)


def columns_follow_each_other(x: torch.Tensor) -> bool:
    return x.stride() == (1, len(x))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(101, 7), (3, 60), (1, 1)], ids=str)
def test_features_out_of_memory_are_the_same(save, dtype, shape, tmp_path: Path, small_memory: None) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    save(tmp_path / "g.npz", x=x, edge_index=np.zeros((2, 1), dtype=int))
    data = load_dataset(tmp_path / "g.npz", streamed=True)
    assert columns_follow_each_other(data.x)
    assert np.array_equal(data.x.numpy(), x)
    assert data.x.numpy().dtype == dtype
    whole = load_dataset(tmp_path / "g.npz").x
    assert whole.is_contiguous()
    assert torch.equal(whole, data.x)


def test_what_is_small_or_of_another_kind_is_read_whole(
    tmp_path: Path, small_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.arange(12.0).reshape(4, 3)
    for other in (np.asfortranarray(x), x.astype(">f8"), x.astype(np.int32), x > 5):
        np.savez(tmp_path / "g.npz", x=other)
        data = load_dataset(tmp_path / "g.npz", streamed=True)
        assert data.x.is_contiguous()
        assert np.array_equal(data.x.numpy(), other)
    np.savez(tmp_path / "g.npz", x=x)
    for most, streams in ((x.nbytes, False), (x.nbytes - 1, True)):
        monkeypatch.setattr(graph_files, "PREDICT_BYTES", most)
        assert columns_follow_each_other(load_dataset(tmp_path / "g.npz", streamed=True).x) is streams


def refusal(path: Path, **options: bool) -> str:
    with pytest.raises(InputError) as caught:
        load_dataset(path, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "NaN or infinity, first in row 40"),
        (-np.inf, "NaN or infinity, first in row 40"),
        (2e15, "exceed 1e+15"),
    ],
)
def test_bad_features_out_of_memory_are_refused_likewise(value, message, tmp_path: Path, small_memory: None) -> None:
    x = np.ones((50, 3), dtype=np.float32)
    x[40, 1] = value
    np.savez(tmp_path / "g.npz", x=x)
    assert message in refusal(tmp_path / "g.npz")
    assert refusal(tmp_path / "g.npz", streamed=True) == refusal(tmp_path / "g.npz")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_features_out_of_memory_are_refused_likewise(save, tmp_path: Path, small_memory: None) -> None:
    path = tmp_path / "g.npz"
    save(path, x=np.random.default_rng(0).standard_normal((300, 3)))
    sound = path.read_bytes()
    for place in (300, 5000, 7000):  # the last row among them; the sum of all bytes tells
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        assert "'x' cannot be read as an array" in refusal(path)
        assert refusal(path, streamed=True) == refusal(path)
    path.write_bytes(sound[:4000])
    assert refusal(path, streamed=True) == refusal(path)


def test_no_room_for_features_out_of_memory_is_one_line(
    tmp_path: Path, small_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "g.npz", x=np.ones((50, 3)))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: io.FileIO("/dev/full", "r+"))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/scratch")
    message = "/scratch: cannot write: No space left on device; TMPDIR names a folder with room for the features"
    assert refusal(tmp_path / "g.npz", streamed=True) == message


def test_features_out_of_memory_leave_no_file(tmp_path: Path, small_memory: None, own_temporary_folder: None) -> None:
    np.savez(tmp_path / "g.npz", x=np.ones((50, 3)))
    data = load_dataset(tmp_path / "g.npz", streamed=True)
    assert [path.name for path in tmp_path.iterdir()] == ["g.npz"]
    (tmp_path / "g.npz").write_bytes(b"")  # whatever becomes of the file that was read
    assert bool((data.x == 1).all())
