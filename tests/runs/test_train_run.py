"""Runs that were interrupted, runs under torchrun, and what a run writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from torch_geometric.data import Data

from helpers.faults import MEMBER, config, free_port
from pdadmm_g import InputError
from pdadmm_g.estimator import Estimator
from pdadmm_g.runs import run as run_module
from pdadmm_g.runs.folder import RunFolder
from pdadmm_g.runs.run import train_run
from pdadmm_g.training import checkpoint

# ------------------------------------------------------------------------------------------------------- resuming


def test_interrupted_before_its_first_checkpoint_a_run_starts_over(tmp_path: Path, undisturbed: bytes) -> None:
    """So that what restarts a job with --resume, whenever it was ended, gets it done."""
    out = tmp_path / "run"

    def interrupt(record) -> None:
        raise KeyboardInterrupt

    train_run(config(out), on_epoch=interrupt)
    assert checkpoint.latest(out / "checkpoints") is None
    with pytest.warns(UserWarning, match="holds no checkpoint to resume from"):
        train_run(config(out), resume=True)
    assert (out / "model.safetensors").read_bytes() == undisturbed


# ------------------------------------------------------------------------------------ trained, and not scored yet


@pytest.mark.parametrize(
    ("blow", "end", "message", "every"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt, None, None),
        (MemoryError(), InputError, "not enough memory", 5),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), InputError, "score it with --resume", None),
    ],
    ids=["interrupt", "memory", "torch's memory"],
)
def test_what_happens_while_it_is_scored_leaves_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: bytes, blow, end, message, every: int | None
) -> None:
    out, said = tmp_path / "run", []

    def struck(*_: object) -> None:
        raise blow

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "figures", struck)
        with pytest.raises(end, match=message):
            train_run(config(out, checkpoint_every=every), say=said.append)
    assert (out / "model.safetensors").read_bytes() == undisturbed
    assert not (out / "summary.json").exists()
    RunFolder(out).classifier()
    with pytest.raises(InputError, match="holds a model that was not scored yet; finish with --resume, or choose"):
        train_run(config(out, checkpoint_every=every))

    def never(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(Estimator, "_fit", never)
    summary = train_run(config(out, checkpoint_every=every), resume=True, say=said.append)
    assert said[-1] == f"{out}: holds the trained model, which is scored now"
    assert json.loads((out / "summary.json").read_text()) == summary
    assert (summary["status"], summary["epochs"], summary["times"]["training"] > 0) == ("MAX_EPOCHS", 24, True)
    assert summary["test_accuracy"] > 0.5
    assert [choice.split(":")[0] for choice in summary["choices"]] == ["kept", "probabilities"]
    assert sorted(path.name for path in out.glob("*.*")) == [
        "config.yaml", "metrics.jsonl", "model.safetensors", "summary.json",
    ]  # fmt: skip


def test_an_interrupt_while_the_model_is_written_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: bytes
) -> None:
    save = Estimator.save

    def struck(*_: object) -> None:
        monkeypatch.setattr(Estimator, "save", save)
        raise KeyboardInterrupt

    monkeypatch.setattr(Estimator, "save", struck)
    with pytest.raises(KeyboardInterrupt):
        train_run(config(tmp_path / "run"))
    assert (tmp_path / "run/model.safetensors").read_bytes() == undisturbed
    assert RunFolder(tmp_path / "run").unscored


def test_going_on_with_a_finished_run_says_so_and_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, said = tmp_path / "run", []
    first = train_run(config(out))
    monkeypatch.setattr(Estimator, "_fit", None)
    assert train_run(config(out, timeout=30.0), resume=True, say=said.append) == first
    assert said == [f"{out}: already holds this run, finished; nothing is left to train"]
    with pytest.raises(InputError, match=r"cannot resume with rho = 7.0, the run has 5.0"):
        train_run(config(out, rho=7.0), resume=True)
    with pytest.raises(InputError, match="already holds a finished run; choose another"):
        train_run(config(out))


@pytest.mark.timeout(120)
def test_nothing_of_ours_is_pickled(tmp_path: Path, tiny_graph: Data) -> None:
    """Training in two workers, checkpoint, resume in one, save and load, with every way to unpickle made to fail."""
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
        "import sys\nfrom pathlib import Path\nimport sklearn.metrics\nfrom pdadmm_g.engine import launch\n"
        "import sitecustomize\nsitecustomize.forbid()\nlaunch.main(Path(sys.argv[1]))\n"
    )
    (tmp_path / "job.py").write_text(
        "import dataclasses, sys\nimport sklearn.metrics\nfrom pdadmm_g.engine import launch\n"
        "from pdadmm_g.config import RunConfig\n"
        "from pdadmm_g.runs.folder import RunFolder\nfrom pdadmm_g.runs.run import train_run\n"
        "import sitecustomize\nsitecustomize.forbid()\n"
        "launch.WORKER = [sys.executable, 'worker.py']\n"
        "config = RunConfig(dataset='g.npz', out='run', layers=3, hidden=4, epochs=3, augment='average', workers=2,\n"
        "                   teleport=0.05, weight_decay=0.1, normalize='unit', quantize='pq', checkpoint_every=2,\n"
        "                   unlabelled=0)\n"
        "def stop(record):\n    if record['epoch'] == 5:\n        raise StopIteration\n"
        "try:\n    train_run(config, on_epoch=stop)\n    raise SystemExit('did not stop')\n"
        "except StopIteration:\n    pass\n"
        "assert train_run(dataclasses.replace(config, workers=1), resume=True)['epochs'] == 6\n"
        "RunFolder('run').classifier()\nprint('done')\n"
    )
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    result = subprocess.run(
        [sys.executable, "job.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.stdout == "done\n", result.stderr


@pytest.mark.timeout(120)
def test_all_members_end_where_a_model_that_was_found_while_choosing_is_kept(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    y = np.arange(60) % 2
    x, edges = y[:, None] + draw.normal(size=(60, 3)), draw.integers(60, size=(2, 200))
    np.savez(tmp_path / "all.npz", x=x, edge_index=edges, y=np.where(draw.random(60) < 0.6, y, -1))
    member = os.environ | MEMBER | {"WORLD_SIZE": "2", "MASTER_PORT": str(free_port())}
    command = [sys.executable, "-m", "pdadmm_g", "train", "--dataset", str(tmp_path / "all.npz")]
    command += ["--unlabelled", "0", "--out", str(tmp_path / "run")]
    members = [
        subprocess.Popen(command, env=member | {"RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE, text=True)
        for rank in ("0", "1")
    ]
    try:
        for each in members:
            _, errors = each.communicate(timeout=100)
            assert each.returncode == 0, errors
    finally:
        for each in members:
            each.kill()
    assert json.loads((tmp_path / "run/summary.json").read_text())["status"] in ("LINEAR", "MEAN")
