"""Processes that share a GPU train the same network as one: over gloo, by way of the host, as NCCL refuses to."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from helpers.faults import config, descendants
from pdadmm_g.runs.run import train_run

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    pytest.mark.usefixtures("own_temporary_folder"),
]
#: No levels, between which rounding would choose, and no choice of an epoch.
SETTINGS = {"device": "cuda:0", "quantize": "none", "patience": None, "timeout": 60.0}


def weights(out: Path) -> torch.Tensor:
    tensors = load_file(str(out / "model.safetensors"))
    return torch.cat([tensor.double().flatten() for _, tensor in sorted(tensors.items())])


@pytest.fixture(scope="module", params=["linearized", "exact"])
def alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, torch.Tensor]:
    """A solver, and the weights of one process on the GPU."""
    out = tmp_path_factory.mktemp("alone") / "run"
    train_run(config(out, **SETTINGS, solver=request.param))
    return request.param, weights(out)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("workers", "shards"), [(2, 1), (1, 2), (2, 2)])
def test_processes_that_share_a_gpu(tmp_path: Path, alone, workers: int, shards: int) -> None:
    solver, expected = alone
    summary = train_run(config(tmp_path / "run", **SETTINGS, solver=solver, workers=workers, shards=shards))
    assert summary["epochs"] == 24
    assert float((weights(tmp_path / "run") - expected).norm() / expected.norm()) < 1e-4
    assert descendants(tmp_path) == []


@pytest.mark.timeout(300)
def test_quantized_and_resumed(tmp_path: Path) -> None:
    """Packed levels travel by way of the host too, and a checkpoint is read to the GPU."""
    settings = SETTINGS | {"quantize": "pq", "bits": 5}

    def interrupt(record) -> None:
        if record["epoch"] == 17:
            raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        train_run(config(tmp_path / "run", **settings, workers=2, shards=2), on_epoch=interrupt)
    summary = train_run(config(tmp_path / "run", **settings, workers=1, shards=2), resume=True)
    assert summary["epochs"] == 24
    assert summary["status"] == "MAX_EPOCHS"
    undisturbed = train_run(config(tmp_path / "undisturbed", **settings, workers=1, shards=2))
    assert abs(summary["train_accuracy"] - undisturbed["train_accuracy"]) <= 0.05  # rounding chooses between levels


@pytest.mark.timeout(300)
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two GPUs")
@pytest.mark.parametrize(("workers", "shards"), [(2, 1), (1, 2)])
def test_a_gpu_for_each(tmp_path: Path, alone, workers: int, shards: int) -> None:
    solver, expected = alone
    settings = SETTINGS | {"device": "cuda", "solver": solver}
    train_run(config(tmp_path / "run", **settings, workers=workers, shards=shards))
    assert float((weights(tmp_path / "run") - expected).norm() / expected.norm()) < 1e-4
