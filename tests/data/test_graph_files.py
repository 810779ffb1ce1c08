"""Files that once ended in a traceback, a hang or gigabytes."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from pdadmm_g import InputError, load_dataset


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
