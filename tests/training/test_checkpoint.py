"""A run goes on from its checkpoint to the same model, and only from one that is sound and its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch_geometric.data import Data

from helpers.faults import config, interrupted_run
from helpers.run_files import epochs_of
from pdadmm_g import InputError
from pdadmm_g.config import RunConfig
from pdadmm_g.engine.worker import Worker
from pdadmm_g.runs.run import train_run
from pdadmm_g.training import checkpoint, choose


def test_resume_needs_nothing_but_the_checkpoint(tmp_path: Path, undisturbed: bytes) -> None:
    """The workers may have written a checkpoint when whoever notes the epochs is killed before noting even one."""
    out = tmp_path / "run"
    interrupted_run(out)
    for path in out.glob("*.*"):
        path.unlink()
    with pytest.raises(InputError, match=r"cannot resume with rho = 0.5, the run has 5.0"):
        train_run(config(out, rho=0.5), resume=True)
    train_run(config(out), resume=True)
    assert (out / "model.safetensors").read_bytes() == undisturbed
    metrics = epochs_of(out)
    assert [record["epoch"] for record in metrics] == list(range(1, 25))


def test_inverses_of_earlier_epochs_come_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large layers are inverted every few epochs: a run that goes on in between needs what was inverted before."""
    monkeypatch.setattr(Worker, "large", 64)
    monkeypatch.setattr(Worker, "invert_every", 4)
    large = {"quantize": "none", "solver": "exact"}
    train_run(config(tmp_path / "whole", **large))
    interrupted_run(tmp_path / "run", **large)
    files = [load_file(path) for path in (tmp_path / "run").rglob("*.safetensors")]
    assert any("p_inverse" in tensors and "W_inverse" in tensors for tensors in files)
    train_run(config(tmp_path / "run", **large), resume=True)
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert models[0] == models[1]


def test_what_was_left_to_the_data_is_chosen_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undecided = {"augment": "auto", "hops": None, "normalize": "auto", "weight_decay": None, "label_hops": None}
    # Few are enough to choose from.
    monkeypatch.setattr("pdadmm_g.graph.candidates.AVERAGES", ((2, 0.25),))
    for name, number in (("FEATURES", 1), ("SHORT", 5)):
        monkeypatch.setattr(choose, name, number)
    whole = train_run(config(tmp_path / "whole", **undecided))
    interrupted_run(tmp_path / "run", **undecided)

    def again(*_: object, **__: object) -> None:
        raise AssertionError("chosen again")

    monkeypatch.setattr("pdadmm_g.training.linear.fitted", again)
    monkeypatch.setattr(choose, "train", again)
    resumed = train_run(config(tmp_path / "run", **undecided), resume=True)
    assert any(choice.startswith("features: ") for choice in whole["choices"])
    assert resumed["choices"] == whole["choices"]
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert models[0] == models[1]


def test_checkpoint_on_a_disk_that_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere somebody else's layer was written, but not here: the checkpoint before it stays."""
    write = checkpoint.write_safely

    def elsewhere(path: Path, tensors: dict) -> None:
        if path.parent.name < "epoch-00000010" or path.name != "layer-002.safetensors":
            write(path, tensors)

    monkeypatch.setattr(checkpoint, "write_safely", elsewhere)
    with pytest.raises(InputError, match=r"no layer-002.safetensors: --out must be a folder that all machines share"):
        train_run(config(tmp_path / "run"))
    assert checkpoint.latest(tmp_path / "run/checkpoints").history[-1]["epoch"] == 5
    with pytest.raises(InputError, match="no checkpoint here"):
        checkpoint.Checkpointing.joined(tmp_path, resume=True, settings={})


@pytest.fixture
def stopped(tmp_path: Path, tiny_graph: Data) -> RunConfig:
    """A run that was stopped after the checkpoint of its second epoch."""
    torch.save(tiny_graph, tmp_path / "g.pt")
    config = RunConfig(
        dataset=str(tmp_path / "g.pt"), out=str(tmp_path / "run"), layers=2, hidden=4, epochs=4, augment="average",
        teleport=0.05, weight_decay=0.1, quantize="p", checkpoint_every=1, normalize="unit",
    )  # fmt: skip

    def stop(record: dict) -> None:
        if record["epoch"] == 3:
            raise StopIteration

    with pytest.raises(StopIteration):
        train_run(config, on_epoch=stop)
    return config


def test_checkpoints_that_do_not_fit(stopped: RunConfig) -> None:
    path = checkpoint.latest(Path(stopped.out) / "checkpoints").folder / "meta.json"
    sound = path.read_text()
    for broken, culprit in (
        ({"format": 3}, "another version"),
        ({"history": None}, "history"),
        ({"scale": None}, "scale"),
        ({"data": "another digest"}, "other data"),
        (Path(__file__).with_name("written_by_0_2_0").joinpath("meta.json").read_text(), "another version"),
        ("{", "meta.json: cannot read the checkpoint"),
    ):
        path.write_text(broken if isinstance(broken, str) else json.dumps(json.loads(sound) | broken))
        before = sorted(Path(stopped.out).rglob("*"))
        with pytest.raises(InputError, match=culprit):
            train_run(stopped, resume=True)
        assert sorted(Path(stopped.out).rglob("*")) == before
    path.write_text(sound)
    assert train_run(stopped, resume=True)["epochs"] == 4


def test_a_layer_that_cannot_be_read_is_named(stopped: RunConfig) -> None:
    folder = checkpoint.latest(Path(stopped.out) / "checkpoints").folder
    (folder / "layer-002.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match="layer-002.safetensors: cannot read the checkpoint"):
        train_run(stopped, resume=True)
