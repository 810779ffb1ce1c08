from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data

from helpers.commands import assert_refused
from pdadmm_g import GAMLPClassifier, InputError, load_dataset
from pdadmm_g.cli import main
from pdadmm_g.runs import export as module
from pdadmm_g.runs.export import export

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "export.md"
onnx = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("onnx", "onnxscript", "onnxruntime"))), reason="onnx is not installed"
)
SETTINGS = {
    "layers": 4, "hidden": 16, "stages": (4,), "epochs": 20, "weight_decay": 0.1, "unlabelled": 0, "random_state": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def digits() -> Data:
    return load_dataset("digits")


@pytest.fixture(scope="module")
def fitted(digits: Data) -> GAMLPClassifier:
    return GAMLPClassifier(**SETTINGS, augment="average", hops=4, teleport=0.05, normalize="centered").fit(digits)


@pytest.fixture
def tiny(tiny_graph: Data) -> GAMLPClassifier:
    return GAMLPClassifier(**SETTINGS, augment="hops", hops=3, normalize="standard").fit(tiny_graph)


def run_onnx(path: Path, rows: torch.Tensor) -> tuple[np.ndarray, dict[str, object]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    about = json.loads(session.get_modelmeta().custom_metadata_map["pdadmm_g.json"])
    return session.run(["logits"], {"rows": rows.numpy()})[0], about


def assert_equal_logits(theirs: np.ndarray, classifier: GAMLPClassifier, data: Data) -> None:
    ours = classifier._logits(data).numpy()
    assert np.abs(theirs - ours).max() <= 1e-5 * np.abs(ours).max()
    assert (theirs.argmax(1) == ours.argmax(1)).all()


@onnx
def test_onnx_on_real_data(tmp_path: Path, fitted: GAMLPClassifier, digits: Data) -> None:
    difference = export(fitted, tmp_path / "model.onnx", "onnx")
    assert 0 <= difference < 1e-5
    logits, about = run_onnx(tmp_path / "model.onnx", fitted.augmentation_.propagated(digits))
    assert_equal_logits(logits, fitted, digits)
    assert about["classes"] == list(range(10))
    assert (about["augment"], about["hops"], about["normalize"], about["int8"]) == ("average", 4, "centered", False)


def test_torch_export_on_real_data(tmp_path: Path, fitted: GAMLPClassifier, digits: Data) -> None:
    export(fitted, tmp_path / "model.pt2", "torch-export")
    extra = {"pdadmm_g.json": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=extra).module()
    rows = fitted.augmentation_.propagated(digits)
    before = rows.clone()
    assert torch.equal(program(rows), fitted._logits(digits))
    assert torch.equal(rows, before)  # the program normalises a copy
    assert program(rows[:1]).shape == (1, 10)
    assert program.to(torch.float64)(rows.double()).dtype == torch.float64  # all that it holds moves with it
    assert {"mean", "scale"} <= {name.rpartition(".")[2] for name in program.state_dict()}
    assert json.loads(extra["pdadmm_g.json"])["features"] == 64


def test_the_numpy_lines_of_the_guide(
    tmp_path: Path, fitted: GAMLPClassifier, digits: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(fitted, tmp_path / "model.safetensors", "safetensors")
    lines = re.search(r"<!-- tested: numpy -->\n```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert lines is not None
    ends = digits.edge_index.numpy()
    A = scipy.sparse.csr_array((np.ones(ends.shape[1]), ends), shape=(1797, 1797))
    scope: dict[str, object] = {"x": digits.x.numpy(), "A": A}
    monkeypatch.chdir(tmp_path)
    exec(lines[1], scope)
    assert_equal_logits(scope["p"], fitted, digits)
    assert (scope["labels"] == fitted.predict(digits)).all()


@onnx
def test_eight_bits_round_the_weights_and_nothing_else(tmp_path: Path, digits: Data) -> None:
    settings = SETTINGS | {"hidden": 100, "augment": "average", "hops": 4, "teleport": 0.05, "normalize": "centered"}
    fitted = GAMLPClassifier(**settings).fit(digits)
    export(fitted, tmp_path / "whole.onnx", "onnx")
    export(fitted, tmp_path / "small.onnx", "onnx", int8=True)
    assert (tmp_path / "small.onnx").stat().st_size < 0.4 * (tmp_path / "whole.onnx").stat().st_size
    program = module.Program(fitted, int8=True)
    for ours, theirs in zip(fitted.model_.linears, program.model.linears, strict=True):
        step = ours.weight.abs().amax(1, keepdim=True) / 127
        assert bool(((ours.weight - theirs.integers * theirs.scale).abs() <= 0.501 * step).all())
        assert torch.equal(ours.bias, theirs.bias)
    rows = fitted.augmentation_.propagated(digits)
    logits, about = run_onnx(tmp_path / "small.onnx", rows)
    expected = program(rows).detach().numpy()
    assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()
    assert about["int8"] is True
    right = (logits.argmax(1) == digits.y.numpy())[digits.test_mask.numpy()].mean()
    assert right == pytest.approx(fitted.score(digits), abs=0.01)


# --------------------------------------------------------------------------------------------- nothing half-written


@onnx
@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_a_file_that_differs_is_not_written(
    tmp_path: Path, tiny: GAMLPClassifier, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("before")
    monkeypatch.setattr(module, "_read_onnx", lambda file: lambda rows: torch.full((len(rows), 2), value))
    with pytest.raises(InputError, match=r"model\.onnx: not written: its logits differ"):
        export(tiny, path, "onnx")
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_bad_requests_are_named(tmp_path: Path, tiny: GAMLPClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else real(name))
    for place, format, options, culprit in (
        ("model", "pickle", {}, "format must be one of .*, got pickle"),
        ("model", "safetensors", {"int8": True}, "int8 .* format onnx"),
        ("model", "torch-export", {}, r"\.pt2"),
        ("model.onnx", "onnx", {}, "onnxscript"),
        ("no/model", "safetensors", {}, "cannot write"),
        (".", "safetensors", {}, "is not a file"),
    ):
        with pytest.raises(InputError, match=culprit):
            export(tiny, tmp_path / place, format, **options)
    assert not list(tmp_path.iterdir())
    export(tiny, tmp_path / "\udcff.bin", "safetensors")  # any name will do


def test_the_command(
    tmp_path: Path, tiny: GAMLPClassifier, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs/mine").mkdir(parents=True)
    tiny.save("runs/mine/model.safetensors")
    with pytest.raises(SystemExit) as caught:
        main(["export", "runs/mine", "--format", "safetensors", "--json"])
    assert not caught.value.code
    out, err = capsys.readouterr()
    assert (json.loads(out)["file"], json.loads(out)["difference"], err) == ("mine.safetensors", 0.0, "")
    assert Path("mine.safetensors").read_bytes() == Path("runs/mine/model.safetensors").read_bytes()
    with pytest.raises(SystemExit) as caught:
        main(["export", "nowhere", "--format", "safetensors"])
    assert_refused(caught.value.code, *capsys.readouterr(), "nowhere: no such run folder")
