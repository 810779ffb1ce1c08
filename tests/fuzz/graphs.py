"""Targets: graphs from files and in memory, and fits on them."""

from __future__ import annotations

import contextlib
import io
import random
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from pdadmm_g.data.checks import check_graph, check_training
from pdadmm_g.data.datasets import load_dataset
from pdadmm_g.data.splits import one_split
from pdadmm_g.data.targets import hard_labels, has_columns
from pdadmm_g.errors import NotFiniteError
from pdadmm_g.estimator import GAMLPClassifier

from .limits import Violation
from .mutations import NUMBERS, any_value, mutate_arrays, mutate_bytes, odd_file
from .valid import valid_arrays, valid_graph


def npz(rng: random.Random, folder: Path) -> None:
    """Graphs from .npz files."""
    path = folder / "graph.npz"
    if not odd_file(rng, path):
        write_npz(rng, path)
    check_data(load_dataset(path))


def pt(rng: random.Random, folder: Path) -> None:
    """Graphs from .pt files."""
    path = folder / "graph.pt"
    if not odd_file(rng, path):
        kind = rng.randrange(6)
        if kind == 0:
            torch.save(any_value(rng), path)
        elif kind == 1:
            torch.save({"x": torch.zeros(3, 3)}, path)
        elif kind == 2:
            torch.save(weird_graph(rng), path)
        else:
            torch.save(valid_graph(), path)
            path.write_bytes(mutate_bytes(rng, path.read_bytes()))
    check_data(load_dataset(path))


def graph(rng: random.Random, _: Path) -> None:
    """Graphs in memory, and what can be trained on them."""
    data = check_graph(weird_graph(rng))
    check_data(data)
    check_training(one_split(data, None)[0])


def fit(rng: random.Random, _: Path) -> None:
    """Whole fits of tiny networks on odd graphs."""
    clf = GAMLPClassifier(
        layers=rng.choice((2, 3)), hidden=rng.choice((1, 4)), epochs=3, random_state=rng.randrange(99),
        augment=rng.choice(("auto", "none", "hops", "average", "power")), solver=rng.choice(("exact", "linearized")),
        rho=rng.choice((5.0, 1e-15, 1e15)), nu=rng.choice((1.0, 1e-15, 1e15)), quantize=rng.choice(("none", "p", "pq")),
        weight_decay=rng.choice((0.0, 0.1, 1e15)), activation=rng.choice(("relu", "tanh", "identity")),
        unlabelled=rng.choice((None, 0, 3, 100)), rounds=rng.choice((1, 3)), copies=rng.choice((1, 2)),
        drop=rng.choice((0.0, 0.5, 0.99)), drop_entries=rng.choice((None, 0.0, 0.99)),
        sharpness=rng.choice((None, 1e-15, 2.0, 1e15)), trust=rng.choice((0.0, 10.0, 1e15)),
        components=rng.choice((None, 1, 2, 99)),
    )  # fmt: skip
    data = weird_graph(rng)
    clf.fit(data)
    if not all(bool(parameter.isfinite().all()) for parameter in clf.model_.parameters()):
        raise Violation(f"a model that is not finite, status {clf.status_.name}")
    if clf.status_.is_failure and not clf.message_.startswith("epoch "):
        raise Violation(f"{clf.status_.name} without a place: {clf.message_!r}")
    if not clf.status_.is_failure:
        try:
            clf.predict_proba(data)
        except NotFiniteError as error:
            raise Violation(f"probabilities are not finite, status {clf.status_.name}") from error


def check_data(data: Data) -> None:
    """What every loaded graph promises."""
    nodes = data.num_nodes
    sound = nodes > 0
    if data.x is not None:
        sound &= data.x.ndim == 2 and len(data.x) == nodes and bool(torch.isfinite(data.x.to_dense()).all())
    if data.edge_index is not None and data.edge_index.numel():
        sound &= int(data.edge_index.min()) >= 0 and int(data.edge_index.max()) < nodes
    if has_columns(data):
        sound &= data.y.is_floating_point() and len(data.y) == nodes
    elif data.y is not None:
        labels = hard_labels(data)
        sound &= labels.dtype == torch.int64 and labels.shape == (nodes,) and int(labels.min()) >= -1
        if data.y.is_floating_point():
            total = data.y[labels >= 0].sum(1)
            sound &= torch.allclose(total, torch.ones_like(total)) and not bool((data.y < 0).any())
    for mask in ("train_mask", "val_mask", "test_mask"):
        if mask in data:
            # A column for each of several splits, of which training takes one.
            sound &= data[mask].dtype == torch.bool and len(data[mask]) == nodes and data[mask].ndim <= 2
    if not sound:
        raise Violation(f"accepted an unsound graph: {data}")


def write_npz(rng: random.Random, path: Path) -> None:
    """Valid arrays, mutated as arrays, as headers, as a zip archive or as bytes."""
    arrays = mutate_arrays(rng, valid_arrays())
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save: Any = rng.choice((np.savez, np.savez, np.savez_compressed))
        save(buffer, **arrays)
    content = buffer.getvalue()
    kind = rng.randrange(10)
    if kind < 3:
        content = mutate_bytes(rng, content)
    elif kind < 6:
        content = _rewritten_archive(rng, content)
    path.write_bytes(content)


def _rewritten_archive(rng: random.Random, content: bytes) -> bytes:
    """Another header in one member, a bomb, a name twice, or a pickle inside."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        victim = rng.choice(list(members))
        for name, member in members.items():
            if name == victim:
                match rng.randrange(6):
                    case 0:
                        shape = tuple(rng.choice(NUMBERS) for _ in range(rng.randrange(1, 4)))
                        member = npy(repr(shape), rng.choice(("<f4", "<f8", "|b1", "|O", "<U9999999", "|V0")))
                    case 1:
                        member = npy(rng.choice(("(" * 300, "(1e9,)", "[3]", "None", "(-1,)", "(True,)")), "<f4")
                    case 2:
                        member = mutate_bytes(rng, member)
                    case 3:
                        member = npy("(12, 3)", "|O") + b"cos\nsystem\n(S'false'\ntR."
                    case 4:
                        with warnings.catch_warnings():
                            warnings.simplefilter("ignore")
                            archive.writestr(name, member)
                    case 5:
                        member = npy(f"({2**22 * rng.randrange(1, 40)},)", "|b1") + bytes(rng.choice((0, 2**25)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                archive.writestr(name, member)
    return target.getvalue()


def npy(shape: str, dtype: str) -> bytes:
    """The header of an array, as a file has it."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def weird_graph(rng: random.Random) -> Data:
    """A Data whose attributes are of any type."""
    arrays = mutate_arrays(rng, valid_arrays())
    result = Data()
    for name, array in arrays.items():
        try:
            value: Any = torch.as_tensor(array)
        except (TypeError, ValueError):
            value = array
        match rng.randrange(12):
            case 0:
                value = any_value(rng)
            case 1:
                value = array.tolist()
            case 2 if isinstance(value, torch.Tensor) and value.ndim == 2:
                with contextlib.suppress(RuntimeError):
                    value = value.to_sparse()
            case 3 if isinstance(value, torch.Tensor) and value.is_floating_point():
                value = value.requires_grad_()
        with contextlib.suppress(Exception):  # torch_geometric refuses some itself
            result[name] = value
    return result
