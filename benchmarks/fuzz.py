"""Fuzz everything that reads a file, a setting, a graph or a command line.

The property: a case ends in success with a sound result or in an InputError of one line (the command: exit code 0, 2 or
3, and for 2 exactly one line "error: ..."), within seconds, within bounded memory, and a refused input leaves no file.

    python benchmarks/fuzz.py --cases 100000 --seed 0 --out results/fuzz.json

Cases come from valid inputs by structure-aware mutations, each from its own seed: --target NAME --seed S --cases 1
repeats one. Where atheris is installed it goes over the four readers of bytes as well, guided by coverage.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.metadata
import importlib.util
import io
import itertools
import json
import math
import os
import platform
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

#: Address space that a case may take beyond what the libraries have, and its time, also on a busy machine.
MEMORY, SECONDS = 3 << 30, 30
NUMBERS = (0, 1, -1, 2, 3, 7, 20, 255, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30)
FLOATS = (0.0, -0.0, 1e-45, 1e-300, 0.5, 1.0, 1e15, 1.1e15, 1e38, 1e39, 1e308, math.inf, -math.inf, math.nan)
TEXTS = (
    "", " ", "none", "None", "null", "true", "yes", "nan", "inf", "-inf", "1e400", "0x10", "1_000", "1,2", ",", "2,,3",
    "\u0661\u0662", "é", "\U0001f4a5", "a\nb", "\x00", "\ufeff1", "/", "..", "~", "x" * 5000, "9" * 5000, "%s", "{}",
)  # fmt: skip


class Violation(AssertionError):
    """The property does not hold."""


# ---------------------------------------------------------------------------------------------------------- mutations


def mutate_bytes(rng: random.Random, content: bytes) -> bytes:
    """Flip, cut, repeat, overwrite or fill."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        if not data:
            return bytes(rng.randrange(256) for _ in range(rng.randrange(64)))
        place = rng.randrange(min(len(data), rng.choice((16, 256, len(data)))))
        match rng.randrange(7):
            case 0:
                data[place] ^= 1 << rng.randrange(8)
            case 1:
                data[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, ord("-"), ord("9"), rng.randrange(256)))
            case 2:
                del data[place:]
            case 3:
                del data[place : place + rng.randrange(1, 64)]
            case 4:
                data[place:place] = data[place : place + rng.randrange(1, 64)]
            case 5:
                value = rng.choice(NUMBERS) & (2**64 - 1)
                data[place : place + 8] = struct.pack("<Q", value)
            case 6:
                data[place : place + 4] = struct.pack("<f", rng.choice((math.nan, math.inf, -1e38, 1e38, 0.0)))
    return bytes(data)


def any_value(rng: random.Random, depth: int = 0) -> Any:
    """Something that YAML or JSON can hold."""
    kind = rng.randrange(8 if depth < 3 else 5)
    if kind < 2:
        return rng.choice(NUMBERS)
    if kind == 2:
        return rng.choice(FLOATS)
    if kind == 3:
        return rng.choice(TEXTS)
    if kind == 4:
        return rng.choice((None, True, False))
    if kind == 5:
        return {rng.choice(TEXTS)[:20]: any_value(rng, depth + 1) for _ in range(rng.randrange(3))}
    return [any_value(rng, depth + 1) for _ in range(rng.randrange(4))]


def mutate_json(rng: random.Random, value: Any) -> Any:
    """Replace, remove or add something somewhere in a JSON value."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        value = dict(value)
        key = rng.choice(list(value))
        match rng.randrange(5):
            case 0:
                del value[key]
            case 1:
                value[rng.choice(TEXTS)] = any_value(rng)
            case _:
                value[key] = mutate_json(rng, value[key])
        return value
    if isinstance(value, list) and value and rng.random() < 0.8:
        value = list(value)
        place = rng.randrange(len(value))
        if rng.random() < 0.3:
            del value[place]
        else:
            value[place] = mutate_json(rng, value[place])
        return value
    return any_value(rng)


def odd_file(rng: random.Random, path: Path) -> bool:
    """Now and then something that is not a file with the wanted content at all; True if so."""
    kind = rng.randrange(60)
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        path.write_bytes(b"")
    elif kind == 2:
        path.symlink_to(path.name)
    elif kind == 3:
        path.symlink_to("/dev/null")
    elif kind == 4:
        path.symlink_to("missing")
    elif kind == 5:
        path.symlink_to("/dev/zero")
    elif kind == 6:
        os.mkfifo(path)
    return kind <= 6


# ------------------------------------------------------------------------------------------------------------- graphs


def valid_graph() -> Any:
    """Two cliques of six nodes."""
    return _valid_graph().clone()


@functools.cache
def _valid_graph() -> Any:
    import torch
    from torch_geometric.data import Data

    y = torch.arange(12) // 6
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)) + y[:, None]
    pairs = [(i, j) for i in range(12) for j in range(12) if i != j and i // 6 == j // 6]
    data = Data(x=x, edge_index=torch.tensor(pairs).T, y=y)
    for mask, nodes in (("train_mask", (0, 1)), ("val_mask", (2, 3)), ("test_mask", (4, 5))):
        data[mask] = torch.tensor([node % 6 in nodes for node in range(12)])
    return data


def any_array(rng: random.Random) -> Any:
    """An array of any type and shape, with any values."""
    import numpy as np

    shape = tuple(rng.choice((0, 1, 2, 3, 11, 12, 13)) for _ in range(rng.choice((0, 1, 1, 2, 2, 2, 3))))
    kind = rng.choice("?bBhHiIlLefdgFDSUMmV")
    with np.errstate(all="ignore"):
        values = [rng.choice((rng.choice(FLOATS), rng.choice(NUMBERS), rng.randrange(-2, 14))) for _ in range(97)]
        flat = np.resize(np.array([float(value) for value in values]), int(np.prod(shape)))
        if kind in "SU":
            return flat.astype(kind + "8").reshape(shape)
        if kind in "Mm":
            return np.zeros(shape, dtype=f"{kind}8[s]")
        if kind == "V":
            return np.zeros(shape, dtype=[("a", "f4"), ("b", "i4")])
        array = flat.astype(kind).reshape(shape)
    return rng.choice((array, np.asfortranarray(array), array.astype(array.dtype.newbyteorder())))


def mutate_arrays(rng: random.Random, arrays: dict[str, Any]) -> dict[str, Any]:
    """Other types, shapes and values in one or two of the arrays."""
    import numpy as np

    arrays = dict(arrays)
    for _ in range(rng.choice((0, 1, 1, 2))):
        name = rng.choice(list(arrays))
        array = arrays[name]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            match rng.randrange(7):
                case 0:
                    arrays[name] = any_array(rng)
                case 1 if array.dtype.kind != "V":
                    with contextlib.suppress(ValueError, TypeError):  # text that is no number
                        arrays[name] = array.astype(rng.choice("?bBhHiIlLefdgFD"))
                case 2 if array.size:
                    array = array.copy()
                    value = rng.choice((rng.choice(FLOATS), rng.randrange(-3, 15)))
                    with contextlib.suppress(ValueError, OverflowError, TypeError):
                        array.reshape(-1)[rng.randrange(array.size)] = value
                    arrays[name] = array
                case 3:
                    arrays[name] = np.atleast_1d(array)[..., : rng.randrange(1, 12)]
                case 4:
                    arrays[name] = array[None] if rng.random() < 0.5 else array.reshape(-1)
                case 5:
                    del arrays[name]
                    arrays = arrays or {name: array}
                case 6:
                    arrays[rng.choice(("x", "adj", "../x", "é", "num_nodes", "edge_attr"))] = any_array(rng)
    return arrays


def check_data(data: Any) -> None:
    """What every loaded graph promises."""
    import torch

    nodes = data.x.shape[0]
    sound = data.x.ndim == 2 and nodes > 0 and bool(torch.isfinite(data.x.to_dense()).all())
    if data.edge_index is not None and data.edge_index.numel():
        sound &= int(data.edge_index.min()) >= 0 and int(data.edge_index.max()) < nodes
    if data.y is not None:
        sound &= data.y.dtype == torch.int64 and data.y.shape == (nodes,) and int(data.y.min()) >= -1
    for mask in ("train_mask", "val_mask", "test_mask"):
        if mask in data:
            sound &= data[mask].dtype == torch.bool and data[mask].shape == (nodes,)
    if not sound:
        raise Violation(f"accepted an unsound graph: {data}")


def write_npz(rng: random.Random, path: Path) -> None:
    """Valid arrays, mutated as arrays, as headers, as a zip archive or as bytes."""
    import numpy as np

    arrays = mutate_arrays(rng, {name: value.numpy() for name, value in valid_graph().to_dict().items()})
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rng.choice((np.savez, np.savez, np.savez_compressed))(buffer, **arrays)
    content = buffer.getvalue()
    kind = rng.randrange(10)
    if kind < 3:
        content = mutate_bytes(rng, content)
    elif kind < 6:
        content = _rewritten_archive(rng, content)
    path.write_bytes(content)


def _rewritten_archive(rng: random.Random, content: bytes) -> bytes:
    """Another header in one member, a bomb, a name twice, or a pickle inside."""
    members = {name: archive.read(name) for archive in [zipfile.ZipFile(io.BytesIO(content))] for name in
               archive.namelist()}  # fmt: skip
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        victim = rng.choice(list(members))
        for name, member in members.items():
            if name == victim:
                match rng.randrange(6):
                    case 0:
                        shape = tuple(rng.choice(NUMBERS) for _ in range(rng.randrange(1, 4)))
                        member = _npy(repr(shape), rng.choice(("<f4", "<f8", "|b1", "|O", "<U9999999", "|V0")))
                    case 1:
                        member = _npy(rng.choice(("(" * 300, "(1e9,)", "[3]", "None", "(-1,)", "(True,)")), "<f4")
                    case 2:
                        member = mutate_bytes(rng, member)
                    case 3:
                        member = _npy("(12, 3)", "|O") + b"cos\nsystem\n(S'false'\ntR."
                    case 4:
                        with warnings.catch_warnings():
                            warnings.simplefilter("ignore")
                            archive.writestr(name, member)
                    case 5:
                        member = _npy(f"({2**22 * rng.randrange(1, 40)},)", "|b1") + bytes(rng.choice((0, 2**25)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                archive.writestr(name, member)
    return target.getvalue()


def _npy(shape: str, dtype: str) -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header


def npz(rng: random.Random, folder: Path) -> None:
    """Graphs from .npz files."""
    from pdadmm_g import load_dataset

    path = folder / "graph.npz"
    if not odd_file(rng, path):
        write_npz(rng, path)
    check_data(load_dataset(path))


def pt(rng: random.Random, folder: Path) -> None:
    """Graphs from .pt files."""
    import torch

    from pdadmm_g import load_dataset

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


def weird_graph(rng: random.Random) -> Any:
    """A Data whose attributes are of any type."""
    import torch
    from torch_geometric.data import Data

    data = valid_graph()
    arrays = mutate_arrays(rng, {name: value.numpy() for name, value in data.to_dict().items()})
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


def graph(rng: random.Random, _: Path) -> None:
    """Graphs in memory, and what can be trained on them."""
    from pdadmm_g.data.checks import check_graph, check_training

    data = check_graph(weird_graph(rng))
    check_data(data)
    check_training(data)


def fit(rng: random.Random, _: Path) -> None:
    """Whole fits of tiny networks on odd graphs."""
    import numpy as np

    from pdadmm_g import GAMLPClassifier

    clf = GAMLPClassifier(
        layers=rng.choice((2, 3)), hidden=rng.choice((1, 4)), epochs=3, random_state=rng.randrange(99),
        augment=rng.choice(("auto", "none", "hops", "average", "power")), solver=rng.choice(("exact", "linearized")),
        rho=rng.choice((5.0, 1e-15, 1e15)), nu=rng.choice((1.0, 1e-15, 1e15)), quantize=rng.choice(("none", "p", "pq")),
        weight_decay=rng.choice((0.0, 0.1, 1e15)), activation=rng.choice(("relu", "tanh", "identity")),
    )  # fmt: skip
    data = weird_graph(rng)
    clf.fit(data)
    if not all(bool(parameter.isfinite().all()) for parameter in clf.model_.parameters()):
        raise Violation(f"a model that is not finite, status {clf.status_.name}")
    if clf.status_.is_failure and not clf.message_.startswith("epoch "):
        raise Violation(f"{clf.status_.name} without a place: {clf.message_!r}")
    if not clf.status_.is_failure and not np.isfinite(clf.predict_proba(data)).all():
        raise Violation("probabilities are not finite")


# -------------------------------------------------------------------------------------------------- models and runs


@functools.cache
def trained() -> dict[str, bytes]:
    """The files of a run that was stopped after a checkpoint, model.safetensors of the finished run among them."""
    import torch

    from pdadmm_g.config import RunConfig
    from pdadmm_g.runs.train_run import train_run

    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        torch.save(valid_graph(), "graph.pt")
        config = RunConfig(dataset="graph.pt", out="run", layers=3, hidden=4, epochs=2, weight_decay=0.1,
                           augment="average", normalize="centered", quantize="pq", bits=4,
                           checkpoint_every=1)  # fmt: skip

        def stop(record: dict[str, Any]) -> None:
            if record["epoch"] == 3:
                raise StopIteration

        with contextlib.suppress(StopIteration):
            train_run(config, on_epoch=stop)
        files = {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}
        train_run(config, overwrite=True)
        files |= {str(path): path.read_bytes() for path in Path().rglob("run/[ms]*[ry]*") if path.is_file()
                  and path.name != "metrics.jsonl"}  # fmt: skip
    return files


def unpack(folder: Path, *, finished: bool) -> None:
    for name, content in trained().items():
        if "checkpoints" in name if finished else name in ("run/summary.json", "run/model.safetensors"):
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    # Configuration and checkpoint name the graph by its full path, which was another one.
    for path in folder.glob("run/checkpoints/*/meta.json"):
        meta = json.loads(path.read_text())
        meta["settings"]["dataset"] = str((folder / "graph.pt").resolve())
        path.write_text(json.dumps(meta))
    config = folder / "run/config.yaml"
    lines = [f"dataset: {folder / 'graph.pt'}" if line.startswith("dataset:") else line
             for line in config.read_text().splitlines()]  # fmt: skip
    config.write_text("\n".join(lines) + "\n")


def mutate_safetensors(rng: random.Random, content: bytes) -> bytes:
    """The header as JSON, the metadata in it, the values, or plain bytes."""
    kind = rng.randrange(4)
    if kind == 0:
        return mutate_bytes(rng, content)
    length = struct.unpack("<Q", content[:8])[0]
    header, values = json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])
    if kind == 1:
        header = mutate_json(rng, header)
    elif kind == 2 and "pdadmm_g" in header.get("__metadata__", {}):
        about = mutate_json(rng, json.loads(header["__metadata__"]["pdadmm_g"]))
        header["__metadata__"]["pdadmm_g"] = json.dumps(about)
    else:
        place = 4 * rng.randrange(len(values) // 4)
        values[place : place + 4] = struct.pack("<f", rng.choice((math.nan, math.inf, 1e38, 0.0)))
    text = json.dumps(header).encode()
    return struct.pack("<Q", rng.choice((len(text),) * 9 + (0, 1, 2**63))) + text + bytes(values)


def use_model(path: Path) -> None:
    """Load a model file; if it loads, it predicts."""
    import numpy as np

    from pdadmm_g import GAMLPClassifier

    clf = GAMLPClassifier.load(path)
    probabilities = clf.predict_proba(valid_graph())
    if probabilities.shape != (12, len(clf.classes_)) or not np.isfinite(probabilities).all():
        raise Violation("a loaded model predicts nonsense")


def model(rng: random.Random, folder: Path) -> None:
    """Model files."""
    path = folder / "model.safetensors"
    if not odd_file(rng, path):
        path.write_bytes(mutate_safetensors(rng, trained()["run/model.safetensors"]))
    use_model(path)


def mutate_run(rng: random.Random, file: Path) -> None:
    """Break one file of a run folder."""
    content = file.read_bytes()
    file.unlink()
    if rng.random() < 0.1 or odd_file(rng, file):
        return
    if file.suffix == ".safetensors":
        content = mutate_safetensors(rng, content)
    elif file.suffix == ".yaml":
        content = any_yaml(rng).encode(errors="replace") if rng.random() < 0.5 else mutate_bytes(rng, content)
    elif file.suffix in (".json", ".jsonl") and rng.random() < 0.7:
        lines = content.decode().splitlines() if file.suffix == ".jsonl" else [content.decode()]
        place = rng.randrange(len(lines))
        lines[place] = json.dumps(mutate_json(rng, json.loads(lines[place])))
        content = "\n".join(lines).encode(errors="replace")
    else:
        content = mutate_bytes(rng, content)
    file.write_bytes(content)


def checkpoint(rng: random.Random, folder: Path) -> None:
    """Resuming from a run folder with one broken file."""
    from pdadmm_g.config import RunConfig
    from pdadmm_g.runs.train_run import train_run

    unpack(folder, finished=False)
    config = RunConfig.load(folder / "run/config.yaml", {"out": str(folder / "run")})
    mutate_run(rng, rng.choice([path for path in (folder / "run").rglob("*") if path.is_file()]))
    summary = train_run(config, resume=True)
    if summary["epochs"] != 4 and summary["status"] not in ("NON_FINITE", "DIVERGED", "CONVERGED"):
        raise Violation(f"resumed to {summary['epochs']} epochs, {summary['status']}")


def run_folder(rng: random.Random, folder: Path) -> None:
    """evaluate and predict on a finished run with one broken file."""
    unpack(folder, finished=True)
    mutate_run(rng, rng.choice([path for path in (folder / "run").rglob("*") if path.is_file()]))
    if rng.random() < 0.5:
        command(["evaluate", "run"])
    else:
        command(["predict", "run", "--out", "predictions.csv"])


# ------------------------------------------------------------------------------------------------ settings, command


@functools.cache
def setting_names() -> list[str]:
    from dataclasses import fields

    from pdadmm_g.config import RunConfig

    return [item.name for item in fields(RunConfig)]


def any_yaml(rng: random.Random) -> str:
    """Settings as text: mostly readable lines, sometimes what a parser may choke on."""
    import yaml

    kind = rng.randrange(12)
    if kind == 0:
        letters = "abcdefghijklmnopqrstu"[: rng.randrange(2, 20)]
        laughs = [f"&{b} [{', '.join(['*' + a] * 9)}]" for a, b in itertools.pairwise(letters)]
        return f"{rng.choice(setting_names())}: [{', '.join(['&a [x, x]', *laughs])}]\n"
    if kind == 1:
        return rng.choice(("[", "{", "- ", "? ", "!!python/object/apply:os.system ")) * rng.choice((1, 50, 2000))
    if kind == 2:
        name = rng.choice(setting_names())
        return f"{name}: 3\n{name}: 4\n"
    if kind == 3:
        return "layers: &a\n  - *a\n" if rng.random() < 0.5 else "<<: {layers: 3}\n<<: 4\n"
    names = [rng.choice(setting_names()) for _ in range(rng.randrange(1, 5))]
    text = yaml.safe_dump({name: any_value(rng) for name in names}, allow_unicode=rng.random() < 0.5)
    if kind == 4:
        return mutate_bytes(rng, text.encode(errors="replace")).decode("utf-8", "surrogateescape")
    return text


def yaml_file(rng: random.Random, folder: Path) -> None:
    """Configuration files."""
    from pdadmm_g.config import RunConfig

    path = folder / "run.yaml"
    if not odd_file(rng, path):
        path.write_bytes(any_yaml(rng).encode("utf-8", "surrogateescape"))
    round_trip(RunConfig.load(path), folder)


def round_trip(config: Any, folder: Path) -> None:
    """A configuration that was accepted comes back from its own YAML."""
    again = folder / "again.yaml"
    again.write_text(config.to_yaml(), encoding="utf-8")
    if type(config).load(again) != config:
        raise Violation(f"does not survive YAML: {config}")
    again.unlink()
    config.resolved()


def settings(rng: random.Random, folder: Path) -> None:
    """Settings as values."""
    from pdadmm_g.config import RunConfig

    chosen = {rng.choice(setting_names()): any_value(rng) for _ in range(rng.randrange(1, 4))}
    round_trip(RunConfig.from_settings(chosen), folder)


def cli(rng: random.Random, folder: Path) -> None:
    """Command lines. Those that would train do so on a tiny graph for a few epochs, or on nothing."""
    import torch

    torch.save(valid_graph(), folder / "graph.pt")
    name = rng.choice(("train", "train", "train", "tune", "evaluate", "predict", "datasets", "reproduce", "bench", "x"))
    arguments = [name]
    for _ in range(rng.randrange(5)):
        option = rng.choice(
            [*setting_names(), "config", "resume", "overwrite", "budget", "methods", "help", "nonsense"]
        )
        if option in ("workers", "device", "epochs", "layers", "hidden", "hops", "threads", "compile", "precision"):
            continue  # may be valid, and too much for a case
        arguments.append("--" + option.replace("_", "-"))
        if rng.random() < 0.9:
            value = any_value(rng)
            arguments.append(str(value) if rng.random() < 0.8 else rng.choice(TEXTS))
    if name in ("train", "tune"):
        arguments += ["--layers", "2", "--hidden", "2", "--epochs", "2", "--augment", "none", "--weight-decay", "0.1"]
        arguments += ["--dataset", rng.choice(("graph.pt", "graph.pt", "nothing.npz", ".", "cora.npz", "\x00.npz"))]
        arguments += ["--budget", "1"] if name == "tune" else []
    if name == "bench":
        arguments += ["--seconds", "0", "--nodes", "0"]
    if name == "reproduce":
        arguments += [rng.choice(("table-100", "table-1000", "")), "--datasets", rng.choice(("korra", "", ","))]
    if rng.random() < 0.3:
        rng.shuffle(arguments)
    if rng.random() < 0.1:
        arguments.append(rng.choice(TEXTS))
    code = command(arguments)
    if code == 2 and sorted(path.name for path in folder.iterdir()) != ["graph.pt"]:
        raise Violation(f"refused, but wrote {sorted(path.name for path in folder.iterdir())}: {arguments}")


def command(arguments: list[str]) -> int:
    """Run the command in this process; its exit code, if its manners are as they should be."""
    from pdadmm_g.cli import main

    out, err = io.StringIO(), io.StringIO()
    shown = warnings.showwarning
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(arguments)
        code: Any = "none"
    except SystemExit as end:
        code = end.code or 0
    finally:
        warnings.showwarning = shown
    errors = [line for line in err.getvalue().splitlines() if line.startswith("error:")]
    if code not in (0, 2, 3) or (code == 2) != (len(errors) == 1):
        raise Violation(f"exit code {code} with {len(errors)} error lines: {arguments}")
    if "Traceback" in err.getvalue():
        raise Violation(f"a traceback was printed: {arguments}")
    return int(code)


# ------------------------------------------------------------------------------------------------------------ running

#: Target and its share of the cases.
TARGETS: dict[str, tuple[Callable[[random.Random, Path], None], float]] = {
    "settings": (settings, 0.3), "npz": (npz, 0.16), "yaml": (yaml_file, 0.15), "model": (model, 0.13),
    "graph": (graph, 0.1), "pt": (pt, 0.06), "cli": (cli, 0.02), "checkpoint": (checkpoint, 0.015),
    "run": (run_folder, 0.01), "fit": (fit, 0.002),
}  # fmt: skip
#: Targets that only read: a refusal must leave the folder as it was.
READERS = ("npz", "pt", "model", "yaml", "settings", "run")


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """Bound the memory of this process; big files are not to be written either."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def late(*_: object) -> None:
        raise Violation(f"took more than {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    yield


def judge(case: Callable[[], None]) -> tuple[str, str]:
    """(ending, what was found): accepted, refused, or violation with the exception and where it came from."""
    from pdadmm_g import InputError

    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case()
        return "accepted", ""
    except InputError as error:
        if "\n" in str(error) or len(str(error)) > 1000 or not str(error):
            return "violation", f"InputError of {len(str(error))} characters: {str(error)[:80]!r}"
        return "refused", ""
    except BaseException as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "pdadmm_g" in frame.filename]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "fuzz.py"
        return (
            "violation",
            f"{type(error).__name__} at {where}: {str(error).splitlines()[0][:150] if str(error) else ''}",
        )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def listing(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


def run_target(name: str, cases: int, seed: int, report: Path) -> None:
    """Run the cases of one target, writing what was seen to ``report`` as we go."""
    function = TARGETS[name][0]
    counts = {"cases": 0, "accepted": 0, "refused": 0, "violation": 0}
    found: dict[str, dict[str, Any]] = {}
    trained()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary, limits():
        folder = Path(temporary) / "case"
        folder.mkdir()
        for number in range(seed, seed + cases):
            os.chdir(folder)
            report.with_suffix(".at").write_text(str(number))
            before: list[str] = []

            def case(number: int = number) -> None:
                function(random.Random(f"{name} {number}"), folder)

            ending, what = judge(case)
            if ending == "refused" and name in READERS:
                before = [path for path in listing(folder) if path.endswith((".tmp", "again.yaml", ".csv"))]
                if before:
                    ending, what = "violation", f"refused, but left {before}"
            counts["cases"] += 1
            counts[ending] += 1
            if ending == "violation":
                found.setdefault(what, {"seed": number, "times": 0})["times"] += 1
            if ending == "violation" or counts["cases"] % 100 == 0 or counts["cases"] == cases:
                report.write_text(json.dumps({**counts, "found": found}))
            if any(folder.iterdir()):
                os.chdir("/")
                shutil.rmtree(folder)
                folder.mkdir()


def run_atheris(name: str, cases: int, seed: int, report: Path) -> None:
    """Coverage-guided bytes for one of the readers, starting from valid files."""
    import atheris

    with atheris.instrument_imports(include=["pdadmm_g", "yaml", "numpy.lib", "zipfile", "json"]):
        import pdadmm_g.config
        import pdadmm_g.data.datasets
        import pdadmm_g.estimator
        import pdadmm_g.runs.folder  # noqa: F401
    counts = {"cases": 0, "accepted": 0, "refused": 0, "violation": 0}
    found: dict[str, dict[str, Any]] = {}
    files = trained()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    corpus = folder / "corpus"
    corpus.mkdir()
    unpack(folder, finished=False)
    valid = {"npz": [], "model": [files["run/model.safetensors"]], "yaml": [files["run/config.yaml"]],
             "checkpoint": [content for path, content in files.items() if "checkpoints" in path]}  # fmt: skip
    rng = random.Random(seed)
    for number in range(20 if name == "npz" else 0):
        write_npz(rng, corpus / str(number))
    for number, content in enumerate(valid[name]):
        (corpus / f"valid-{number}").write_bytes(content)

    def read(content: bytes) -> None:
        import torch

        from pdadmm_g import load_dataset
        from pdadmm_g.config import RunConfig
        from pdadmm_g.training.checkpoint import latest

        path = folder / {"npz": "g.npz", "model": "m.safetensors", "yaml": "c.yaml"}.get(name, "x")
        path.write_bytes(content)
        if name == "npz":
            check_data(load_dataset(path))
        elif name == "model":
            use_model(path)
        elif name == "yaml":
            RunConfig.load(path)
        else:
            saved = latest(folder / "run/checkpoints")
            if b'"stage_epoch"' in content:
                target = saved.folder.parent / "history.jsonl"
            else:
                target = saved.folder / ("meta.json" if content[:1] == b"{" else "layer-001.safetensors")
            whole = target.read_bytes()
            target.write_bytes(content)
            try:
                again = latest(folder / "run/checkpoints")
                again.layer(0, torch.empty(0), layer_shapes(whole) if target.suffix == ".safetensors" else {})
            finally:
                target.write_bytes(whole)

    def one(content: bytes) -> None:
        ending, what = judge(lambda: read(content))
        counts["cases"] += 1
        counts[ending] += 1
        if ending == "violation":
            entry = found.setdefault(what, {"bytes": content[:400].hex(), "times": 0})
            entry["times"] += 1
        if ending == "violation" or counts["cases"] % 100 == 0 or counts["cases"] >= cases:
            report.write_text(json.dumps({**counts, "found": found}))
        if counts["cases"] >= cases:
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)

    with limits():
        flags = [sys.argv[0], str(corpus), f"-seed={seed + 1}", "-max_len=4096", "-verbosity=0", "-rss_limit_mb=0",
                 "-timeout=60"]  # fmt: skip
        atheris.Setup(flags, one)
        atheris.Fuzz()


def layer_shapes(content: bytes) -> dict[str, tuple[int, ...]]:
    """The shapes in a safetensors file."""
    from safetensors.torch import load

    return {name: tuple(tensor.shape) for name, tensor in load(content).items() if name != "levels"}


def in_a_process(name: str, cases: int, seed: int, *, guided: bool) -> dict[str, Any]:
    """One target in its own process; a crash of the interpreter is a finding too, and the rest goes on."""
    total: dict[str, Any] = {"cases": 0, "accepted": 0, "refused": 0, "violation": 0, "found": {}}
    with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary:
        report = Path(temporary) / "report.json"
        while total["cases"] < cases:
            report.unlink(missing_ok=True)
            options = ["--guided"] if guided else []
            start = seed + total["cases"]
            command = [sys.executable, __file__, "--target", name, "--cases", str(cases - total["cases"])]
            process = subprocess.run(
                [*command, "--seed", str(start), "--out", str(report), *options], capture_output=True, text=True
            )
            part = json.loads(report.read_text()) if report.exists() else {"cases": 0, "found": {}}
            for key in ("cases", "accepted", "refused", "violation"):
                total[key] += part.get(key, 0)
            total["found"] |= part["found"]
            if process.returncode:
                at = report.with_suffix(".at").read_text() if report.with_suffix(".at").exists() else "?"
                last = (process.stderr.strip().splitlines() or [""])[-1]
                total["found"][f"the process ended with {process.returncode}: {last[:150]}"] = {"seed": at, "times": 1}
                total["violation"] += 1
                total["cases"] = max(total["cases"] + 1, int(at) + 1 - seed if at != "?" else cases)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000, help="in all, dealt to the targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="results/fuzz.json")
    parser.add_argument("--target", choices=TARGETS, help="only this one, in this process")
    parser.add_argument("--guided", action="store_true", help="with atheris")
    arguments = parser.parse_args()
    out = Path(arguments.out).resolve()
    if arguments.target:
        (run_atheris if arguments.guided else run_target)(arguments.target, arguments.cases, arguments.seed, out)
        return
    targets: dict[str, Any] = {}
    jobs = [(name, share, False) for name, (_, share) in TARGETS.items()]
    if importlib.util.find_spec("atheris"):
        jobs += [(name, 0.03, True) for name in ("npz", "model", "yaml", "checkpoint")]

    def work(job: tuple[str, float, bool]) -> tuple[str, dict[str, Any]]:
        name, share, guided = job
        label = f"{name} (atheris)" if guided else name
        return label, in_a_process(name, round(share * arguments.cases), arguments.seed, guided=guided)

    pool = ThreadPool(os.cpu_count() or 1)
    for label, target in pool.imap_unordered(work, jobs):
        targets[label] = target
        counts = {key: value for key, value in targets[label].items() if key != "found"}
        print(f"{label:<22}" + "  ".join(f"{key} {value}" for key, value in counts.items()), flush=True)
        for what, where in targets[label]["found"].items():
            print(f"    {what} (seed {where.get('seed')}, {where['times']} times)", flush=True)
    packages = ("atheris", "click", "hypothesis", "numpy", "PyYAML", "safetensors", "torch", "torch_geometric")
    versions = {"python": platform.python_version()}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    result = {
        "command": "python benchmarks/fuzz.py " + " ".join(sys.argv[1:]),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "versions": versions,
        "cases": sum(target["cases"] for target in targets.values()),
        "violations": sum(target["violation"] for target in targets.values()),
        "targets": targets,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{result['cases']} cases, {result['violations']} violations; written to {out}")


if __name__ == "__main__":
    main()
