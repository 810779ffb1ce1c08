"""What fuzzing and review found: input that once ended in a traceback, a hang or a silently wrong model."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch_geometric.data import Data

from pdadmm_g import GAMLPClassifier, InputError, load_dataset
from pdadmm_g.cli import main
from pdadmm_g.config import RunConfig
from pdadmm_g.data.checks import check_graph
from pdadmm_g.runs.train_run import train_run
from pdadmm_g.training import checkpoint


def npy(shape: str, dtype: str = "<f4", body: bytes = b"") -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


# ------------------------------------------------------------------------------------------------------------- graphs

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
    del tiny_graph.__dict__["_store"]
    torch.save(tiny_graph, tmp_path / "g.pt")
    with pytest.raises(InputError, match="g.pt: cannot read as a saved torch_geometric Data"):
        load_dataset(tmp_path / "g.pt")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": ["a"] * 20}, "labels 'y' must be integers, not list"),
        ({"y": np.array(["a"] * 20)}, "labels 'y' must be integers, not <U1"),
        ({"y": {}}, "labels 'y' must be integers, not dict"),
        ({"train_mask": "all"}, "train_mask must be booleans or a list of node indices, not str"),
        ({"edge_index": torch.eye(2, 20).to_sparse()}, "edge_index must be dense"),
        ({"edge_index": torch.zeros(2, 3, dtype=torch.complex64)}, "edge_index must hold integers"),
        ({"num_nodes": 7}, "'num_nodes' contradicts the 20 rows of 'x'"),
    ],
)
def test_attributes_of_any_type(tiny_graph: Data, changes: dict, message: str) -> None:
    for name, value in changes.items():
        tiny_graph[name] = value
    with pytest.raises(InputError, match=message):
        check_graph(tiny_graph)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_infinity_in_half_precision_is_seen(tiny_graph: Data, layout: str) -> None:
    tiny_graph.x = tiny_graph.x.half()
    tiny_graph.x[3, 1] = float("inf")
    tiny_graph.x = tiny_graph.x.to_sparse() if layout == "sparse" else tiny_graph.x
    with pytest.raises(InputError, match="NaN or infinity, first in row 3"):
        check_graph(tiny_graph)


def test_missing_raw_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = tmp_path / "flickr/raw"
    raw.mkdir(parents=True)
    for name in ("adj_full.npz", "class_map.json", "role.json"):
        (raw / name).write_bytes(b"")
    with pytest.raises(SystemExit):
        main(["datasets", "--data-root", str(tmp_path)])
    out = capsys.readouterr().out
    assert "missing: flickr/raw/feats.npy" in out
    assert "not found: planetoid/Cora/" in out


# ----------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layers: 3\nlayers: 4\n", "'layers' is there twice"),
        ("eval-every: 3\neval_every: 4\n", "'eval_every' is there twice"),
        ("stages: [&a [x, x], " + ", ".join(f"&{b} [{', '.join(['*' + a] * 9)}]" for a, b in
         zip("abcdefghijklm", "bcdefghijklmn", strict=True)) + "]\n", "stages must be a whole number"),
        ("layers: &a\n  - *a\n", "layers must be a whole number"),
        ("[" * 5000, "not valid YAML"),
        ("out: " + "9" * 5000, "not valid YAML"),
        ("augment: " + "x" * 100_000, "augment must be one of"),
        ("dataset: \"a\\0.npz\"\n", "dataset must not contain a null byte"),
        ("a: b\n" * 900_000, "4500000 bytes are too many"),
    ],
    ids=["twice", "two spellings", "laughs", "endless", "deep", "digits", "long", "null", "large"],
)  # fmt: skip
def test_hostile_yaml(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        RunConfig.load(tmp_path / "run.yaml")
    assert len(str(caught.value)) <= 520
    assert "\n" not in str(caught.value)


def test_files_without_end_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(InputError, match="not a regular file"):
            RunConfig.load(path)


def test_messages_are_one_printable_line() -> None:
    assert str(InputError("a\n\tb\x1b[31mc")) == "a b [31mc"


# -------------------------------------------------------------------------------------------- models, runs, checkpoints


@pytest.fixture
def stopped(tmp_path: Path, tiny_graph: Data) -> RunConfig:
    """A run that was stopped after the checkpoint of its second epoch."""
    torch.save(tiny_graph, tmp_path / "g.pt")
    config = RunConfig(
        dataset=str(tmp_path / "g.pt"), out=str(tmp_path / "run"), layers=2, hidden=4, epochs=4, augment="average",
        weight_decay=0.1, quantize="p", checkpoint_every=1, normalize="unit",
    )  # fmt: skip

    def stop(record: dict) -> None:
        if record["epoch"] == 3:
            raise StopIteration

    with pytest.raises(StopIteration):
        train_run(config, on_epoch=stop)
    return config


def refused(config: RunConfig, message: str) -> None:
    before = sorted(Path(config.out).rglob("*"))
    with pytest.raises(InputError, match=message):
        train_run(config, resume=True)
    assert sorted(Path(config.out).rglob("*")) == before


def test_checkpoints_that_do_not_fit(stopped: RunConfig) -> None:
    folder = checkpoint.latest(Path(stopped.out) / "checkpoints").folder
    layer = folder / "layer-001.safetensors"
    sound = load_file(str(layer))
    for change, message in (
        ({"W": None, "weight": sound["W"]}, "has nothing for W, this run needs"),
        ({"z": sound["z"][:, :2].contiguous()}, r"has \(6, 2\) for z, this run needs \(6, 4\)"),
        ({"u": torch.full_like(sound["u"], float("nan"))}, "u holds something else than finite float32 numbers"),
        ({"W": sound["W"].double()}, "W holds something else than finite float32 numbers"),
        ({"levels": None}, "no sound levels"),
    ):
        tensors = {name: value for name, value in (sound | change).items() if value is not None}
        save_file(tensors, str(layer))
        refused(stopped, message)
    save_file(sound, str(layer))
    meta = json.loads((folder / "meta.json").read_text())
    for change, message in (
        ({"total_epochs": 10**30}, "total_epochs is not a count"),
        ({"rho": None}, "rho is missing or not a number"),
        ({"rho": 10**400}, "rho is missing or not a number"),
        ({"data": "another digest"}, "was written for other data"),
        ({"chosen": meta["chosen"] | {"weight_decay": "much"}}, "weight_decay must be"),
        ({"chosen": {"weight_decay": 0.1}}, "chosen does not name augment, hops, normalize, weight_decay"),
        ({"sizes": [6, 6, 5, 9]}, "was written for"),
        ({"schedule": {"window": 0}}, "another penalty schedule"),
        ({"stage": 5}, "is of stage 5"),
    ):
        (folder / "meta.json").write_text(json.dumps(meta | change))
        refused(stopped, message)
    (folder / "meta.json").write_text(json.dumps(meta | {"settings": {"layrs": 2}}))
    refused(stopped, "its settings are of another version")
    (folder / "meta.json").write_text(json.dumps(meta))
    history = folder.parent / "history.jsonl"
    sound_lines = history.read_text()
    for broken, message in (
        ("[]\n" * 2, "no record of epoch 1"),
        (sound_lines.replace('"seconds"', '"minutes"'), "no record of epoch 1"),
        (
            re.sub(r'"objective": [^,]*', lambda found: '"objective": NaN'.ljust(len(found[0])), sound_lines),
            "no record of epoch 1",
        ),
        (sound_lines.replace('"epoch": 2', '"epoch": 3'), "no record of epoch 2"),
        (sound_lines.splitlines(keepends=True)[0], "the history of 1 epochs, not of 2"),
        (sound_lines[:-9], "history.jsonl: cannot read the checkpoint"),
        ("", "the history of 0 epochs, not of 2"),
    ):
        history.write_text(broken)
        refused(stopped, message)
    history.unlink()
    refused(stopped, "history.jsonl: cannot read the checkpoint: No such file")
    history.write_text(sound_lines)
    assert train_run(stopped, resume=True)["epochs"] == 4


def test_folders_in_place_of_files_are_no_checkpoint(stopped: RunConfig) -> None:
    folder = checkpoint.latest(Path(stopped.out) / "checkpoints").folder
    for path in (folder / "meta.json", folder.parent / "history.jsonl"):
        path.unlink()
        path.mkdir()
    with pytest.warns(UserWarning, match="holds no checkpoint"):
        assert train_run(dataclasses.replace(stopped, checkpoint_every=None), resume=True)["epochs"] == 4


@pytest.mark.timeout(60)
def test_worker_that_refuses_a_checkpoint_is_an_input_error(stopped: RunConfig) -> None:
    folder = checkpoint.latest(Path(stopped.out) / "checkpoints").folder
    (folder / "layer-002.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match="layer-002.safetensors: cannot read the checkpoint"):
        train_run(dataclasses.replace(stopped, workers=2), resume=True)


def test_model_files_that_lie(tmp_path: Path, tiny_graph: Data) -> None:
    path = tmp_path / "m.safetensors"
    clf = GAMLPClassifier(layers=2, hidden=4, epochs=2, augment="average", weight_decay=0.1, normalize="centered")
    clf.fit(tiny_graph).save(path)
    content = path.read_bytes()
    assert GAMLPClassifier.load(path).classes_.tolist() == [0, 1]
    tensors = load_file(str(path))
    head = struct.unpack("<Q", content[:8])[0]
    about = json.loads(content[8 : 8 + head])["__metadata__"]["pdadmm_g"]

    def write(change: dict, description: str = about) -> None:
        kept = {name: value for name, value in (tensors | change).items() if value is not None}
        save_file(kept, str(path), metadata={"pdadmm_g": description})

    for change, message in (
        ({"linears.0.bias": torch.full((4,), float("inf"))}, "linears.0.bias holds something else than finite"),
        ({"extra.scale": torch.zeros(5)}, "column scales are not positive"),
        ({"extra.mean": torch.zeros(3)}, "column means do not fit"),
        ({"linears.1.bias": torch.zeros(3)}, "weights do not fit its description"),
        ({"linears.0.weight": None}, "linears.0.weight' is missing"),
    ):
        write(change)
        with pytest.raises(InputError, match=message):
            GAMLPClassifier.load(path)
    for old, new in (
        ('"widths": [5, 4, 2]', f'"widths": [{10**12}, {10**12}, 2]'),
        ('"classes": [0, 1]', '"classes": [1, 1]'),
        ('"activation": "relu", "extra"', '"activation": "tanh", "extra"'),
    ):
        assert old in about
        write({}, about.replace(old, new))
        with pytest.raises(InputError, match="not a pdadmm-g model file: its"):
            GAMLPClassifier.load(path)


# ------------------------------------------------------------------------------------------------------------ signals


@pytest.mark.parametrize("seconds", [0.05, 0.5])
def test_early_interrupt_has_no_traceback(tmp_path: Path, seconds: float) -> None:
    script = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); print('up', flush=True)\n"
    script += f"import threading, os; threading.Timer({seconds}, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
    script += "sys.argv = ['pdadmm-g', 'train', '--out', 'run', '--epochs', '100000']\n"
    script += "from pdadmm_g.__main__ import main; main()\n"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False
    )
    assert result.returncode == 130, result.stderr
    assert "Traceback" not in result.stderr


# ------------------------------------------------------------------------------------------------------------- pickle


@pytest.mark.timeout(120)
def test_nothing_of_ours_is_pickled(tmp_path: Path, tiny_graph: Data) -> None:
    """Training in two workers, checkpoint, resume, save and load, with every way to unpickle made to fail."""
    np.savez(tmp_path / "g.npz", **{name: value.numpy() for name, value in tiny_graph.to_dict().items()})
    (tmp_path / "sitecustomize.py").write_text(
        "import pickle, _pickle\n"
        "def refuse(*_, **__):\n    raise AssertionError('something was unpickled')\n"
        "class Refuse:\n    __init__ = refuse\n"
        "def forbid():\n"
        "    pickle.load = pickle.loads = _pickle.load = _pickle.loads = refuse\n"
        "    pickle.Unpickler = pickle._Unpickler = _pickle.Unpickler = Refuse\n"
    )
    (tmp_path / "worker.py").write_text(
        "import sys\nfrom pathlib import Path\nfrom pdadmm_g.training import worker_process as child\n"
        "import sitecustomize\nsitecustomize.forbid()\nchild.main(Path(sys.argv[1]))\n"
    )
    (tmp_path / "job.py").write_text(
        "import sys\nfrom pdadmm_g.training import local_workers as parallel\nfrom pdadmm_g.config import RunConfig\n"
        "from pdadmm_g.runs.folder import RunFolder\nfrom pdadmm_g.runs.train_run import train_run\n"
        "import sitecustomize\nsitecustomize.forbid()\n"
        "parallel.WORKER = [sys.executable, 'worker.py']\n"
        "config = RunConfig(dataset='g.npz', out='run', layers=3, hidden=4, epochs=3, augment='average', workers=2,\n"
        "                   weight_decay=0.1, normalize='unit', quantize='pq', checkpoint_every=2)\n"
        "def stop(record):\n    if record['epoch'] == 5:\n        raise StopIteration\n"
        "try:\n    train_run(config, on_epoch=stop)\n    raise SystemExit('did not stop')\n"
        "except StopIteration:\n    pass\n"
        "assert train_run(config, resume=True)['epochs'] == 6\n"
        "RunFolder('run').classifier()\nprint('done')\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    result = subprocess.run(
        [sys.executable, "job.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.stdout == "done\n", result.stderr
