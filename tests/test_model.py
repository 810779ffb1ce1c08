from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pdadmm_g import GAMLP, InputError


def test_forward_by_hand() -> None:
    W1, b1 = torch.tensor([[1.0, -1.0]]), torch.tensor([0.5])
    W2, b2 = torch.tensor([[2.0], [-1.0]]), torch.tensor([0.0, 1.0])
    model = GAMLP.from_parameters([(W1, b1), (W2, b2)], "relu")
    x = torch.tensor([[3.0, 1.0], [0.0, 4.0]])
    assert model(x).tolist() == [[5.0, -1.5], [0.0, 1.0]]
    assert model.widths == (2, 1, 2)


@pytest.mark.parametrize("widths", [[(4, 3, 2), (5, 6, 2), (3, 2)], [(4, 3, 3, 2), (3, 2)], [(4, 2), (1, 2)]])
def test_a_mean_of_models_has_the_mean_of_their_logits(widths: list[tuple[int, ...]]) -> None:
    models = [GAMLP(own).double() for own in widths]
    inputs = [torch.randn(7, own[0], dtype=torch.float64) for own in widths]
    mean = torch.stack([model(x) for model, x in zip(models, inputs, strict=True)]).mean(0)
    torch.testing.assert_close(GAMLP.mean(models)(torch.cat(inputs, dim=1)), mean)


def test_save_and_load(tmp_path: Path) -> None:
    model = GAMLP([4, 3, 3, 2], "leaky-relu")
    model.save(tmp_path / "model.safetensors", {"note": [1, "two"]}, {"mean": torch.arange(3.0)})
    again, extra, tensors = GAMLP.load(tmp_path / "model.safetensors")
    assert torch.equal(tensors.pop("mean"), torch.arange(3.0))
    assert not tensors
    x = torch.randn(7, 4)
    assert torch.equal(model(x), again(x))
    assert extra == {"note": [1, "two"]}


def test_a_loaded_model_is_its_own(tmp_path: Path) -> None:
    """Whatever becomes of the file: what safetensors give is a window on it."""
    path = tmp_path / "model.safetensors"
    GAMLP([4, 3, 2], "relu").save(path, {}, {"mean": torch.ones(3)})
    model, _, tensors = GAMLP.load(path)
    before = [parameter.tolist() for parameter in model.parameters()]
    path.write_bytes(bytes(path.stat().st_size))
    assert [parameter.tolist() for parameter in model.parameters()] == before
    assert tensors["mean"].tolist() == [1, 1, 1]


HEADER = json.dumps({"widths": [4, 3, 2], "activation": "relu", "extra": {}})


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"pdadmm_g": "not json"},
        {"pdadmm_g": HEADER},
        {"pdadmm_g": HEADER.replace("relu", "swish")},
        {"pdadmm_g": HEADER.replace("[4, 3, 2]", "[4, -3, 2]")},
    ],
)
def test_foreign_files_are_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"stray": torch.zeros(2)}, str(path), metadata=metadata)
    with pytest.raises(InputError, match="not a pdadmm-g model file") as caught:
        GAMLP.load(path)
    assert "\n" not in str(caught.value)


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such model file"):
        GAMLP.load(tmp_path / "none.safetensors")
    for content in (b"", b"\xff" * 20):
        (tmp_path / "broken.safetensors").write_bytes(content)
        with pytest.raises(InputError, match="not a pdadmm-g model file"):
            GAMLP.load(tmp_path / "broken.safetensors")
