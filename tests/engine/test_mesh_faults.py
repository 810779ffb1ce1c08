"""A worker that dies or hangs, in a chain or a mesh, is named and ends the job in time, and the run can go on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from helpers.commands import FIXED
from helpers.faults import FAULTY, config, descendants, torchrun, wait_for
from helpers.run_files import epochs_of
from pdadmm_g.cli import main
from pdadmm_g.engine.watchdog import WorkerLostError
from pdadmm_g.runs.run import train_run
from pdadmm_g.training import checkpoint
from pdadmm_g.training import fit as training_fit

pytestmark = pytest.mark.usefixtures("own_temporary_folder")
CHAIN, MESH = {"workers": 3}, {"workers": 2, "shards": 2}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model of the run on two shards that nothing happens to."""
    out = tmp_path_factory.mktemp("whole") / "run"
    train_run(config(out, shards=2))
    return (out / "model.safetensors").read_bytes()


def named(mesh: dict[str, int], victim: int) -> str:
    """A process of the mesh, as messages name it."""
    place, shard = victim // 2 + 1, victim % 2 + 1
    where = rf", place {place} of 2 in the chain, shard {shard} of 2" if mesh == MESH else ""
    return rf"worker {victim} \(layers? [\d-]+{where}\), last seen in epoch \d+"


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    ("mesh", "victim", "moment", "after"),
    [
        (CHAIN, 0, "checkpoint", {"workers": 1}), (CHAIN, 1, "transfer", {"workers": 2}),
        (CHAIN, 2, "compute", {"workers": 1}), (MESH, 2, "checkpoint", {"workers": 3, "shards": 2}),
        (MESH, 3, "transfer", {"workers": 1, "shards": 2}),
    ],
)  # fmt: skip
def test_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: bytes, whole: bytes, mesh, victim, moment, after
) -> None:
    """It is named, no process is left and no broken checkpoint, and the run goes on to the same model by others."""
    out = tmp_path / "run"
    with monkeypatch.context() as faulty:
        faulty.setattr(training_fit, "WORKER", [sys.executable, str(FAULTY)])
        # Epoch 17 is in the second stage, after the checkpoint of epoch 15; the checkpoint of epoch 20 is cut in half.
        faulty.setenv("FAULT", f"{victim}:{moment}:17:SIGKILL")
        with pytest.raises(WorkerLostError, match=named(mesh, victim) + ", was killed by SIGKILL"):
            train_run(config(out, **mesh))
    assert descendants(tmp_path) == []
    assert json.loads((out / "summary.json").read_text())["status"] == "PEER_LOST"
    assert checkpoint.latest(out / "checkpoints").meta.total_epochs == 15
    assert train_run(config(out, **after), resume=True)["epochs"] == 24
    assert (out / "model.safetensors").read_bytes() == (whole if mesh == MESH else undisturbed)
    assert [record["epoch"] for record in epochs_of(out)] == list(range(1, 25))
    assert len(checkpoint.valid(out / "checkpoints")) == 1  # with more epochs the run would go on from it


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("mesh", "victim", "moment"), [(CHAIN, 1, "compute"), (MESH, 3, "transfer")])
def test_hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, mesh, victim: int, moment: str) -> None:
    monkeypatch.setattr(training_fit, "WORKER", [sys.executable, str(FAULTY)])
    monkeypatch.setenv("FAULT", f"{victim}:{moment}:6:SIGSTOP")
    (tmp_path / "run.yaml").write_text(config(tmp_path / "run", **mesh, timeout=3.0).to_yaml())
    with pytest.raises(SystemExit) as caught:
        main(["train", "--config", str(tmp_path / "run.yaml")])
    assert caught.value.code == 4
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.match(f"error: PEER_LOST: {named(mesh, victim)}, has not answered for 3 s", error)
    assert descendants(tmp_path) == []
    assert checkpoint.latest(tmp_path / "run/checkpoints").meta.total_epochs == 5


@pytest.mark.timeout(60)
def test_hanging_when_others_have_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "stopping.py"
    script.write_text(
        "import os, signal, sys\nfrom pathlib import Path\nfrom pdadmm_g.training import fit\n"
        "fit.main(Path(sys.argv[1]))\n"
        "if os.environ['RANK'] == '2':\n    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "os._exit(0)\n"
    )
    monkeypatch.setattr(training_fit, "WORKER", [sys.executable, str(script)])
    with pytest.raises(WorkerLostError, match=named(MESH, 2) + r", has not answered for 3 s"):
        train_run(config(tmp_path / "run", **MESH, timeout=3.0))
    assert descendants(tmp_path) == []


@pytest.mark.timeout(90)
def test_stopped_early_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bytes) -> None:
    """One interrupt: all finish their epoch, the best model is kept, and the run goes on to the same one."""
    out, epochs = tmp_path / "run", []

    def wake() -> None:
        for pid in descendants(tmp_path):
            os.kill(pid, signal.SIGCONT)

    def interrupt(record) -> None:
        epochs.append(record["epoch"])
        if record["epoch"] == 7:
            threading.Timer(6.0, wake).start()
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as waiting:
        # The first worker waits in epoch 12, so that the run cannot end before the interrupt is heard.
        waiting.setattr(training_fit, "WORKER", [sys.executable, str(FAULTY)])
        waiting.setenv("FAULT", "0:compute:12:SIGSTOP")
        assert train_run(config(out, **MESH), on_epoch=interrupt)["status"] == "INTERRUPTED"
    assert 7 <= len(epochs) < 24
    assert descendants(tmp_path) == []
    train_run(config(out, **MESH), resume=True)
    assert (out / "model.safetensors").read_bytes() == whole


@pytest.mark.timeout(60)
def test_none_outlives_the_process_that_started_them(tmp_path: Path, graph_file: Path) -> None:
    command = [sys.executable, "-m", "pdadmm_g", "train", "--epochs", "100000", "--patience", "none", "--workers", "2"]
    command += ["--dataset", str(graph_file), "--tolerance", "0", "--shards", "2", "--unlabelled", "0", *FIXED]
    process = subprocess.Popen(
        [*command, "--out", "run", "--timeout", "5"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: (tmp_path / "run/metrics.jsonl").exists(), 45)
        assert len(descendants(tmp_path)) == 4
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not descendants(tmp_path), 10)
    assert list(tmp_path.glob("pdadmm-g-*/data*")) == []


@pytest.mark.timeout(60)
def test_by_way_of_the_host_all_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bytes) -> None:
    """What travels as copies, as from a GPU that processes share, gives the same model."""
    script = tmp_path / "copying.py"
    script.write_text(
        "import os, sys\nfrom pathlib import Path\nfrom pdadmm_g.engine import team\n"
        "from pdadmm_g.training import fit\n"
        "team.by_way_of_the_host = lambda x: True\n"
        "fit.main(Path(sys.argv[1]))\nos._exit(0)\n"
    )
    monkeypatch.setattr(training_fit, "WORKER", [sys.executable, str(script)])
    train_run(config(tmp_path / "run", **MESH))
    assert (tmp_path / "run/model.safetensors").read_bytes() == whole


# ------------------------------------------------------------------------------------------------------- torchrun


@pytest.mark.timeout(120)
def test_torchrun_goes_on_by_itself_and_ends_well(tmp_path: Path, whole: bytes) -> None:
    out = tmp_path / "run"
    (tmp_path / "run.yaml").write_text(config(out, shards=2).to_yaml())
    agent = torchrun(
        "--standalone", "--nproc-per-node", "4", "--max-restarts", "1", str(FAULTY), "train", "--config",
        str(tmp_path / "run.yaml"), env={"FAULT": "3:compute:17:SIGKILL"},
    )  # fmt: skip
    output = agent.communicate(timeout=110)[0]
    assert agent.returncode == 0, output
    assert (out / "model.safetensors").read_bytes() == whole
    assert "accuracy: train" in output  # flushed by a process that ends without exit handlers
    assert json.loads((out / "summary.json").read_text())["epochs"] == 24
    assert len(checkpoint.valid(out / "checkpoints")) == 1  # with more epochs the run would go on from it
    assert "terminate called" not in output


@pytest.mark.timeout(120)
def test_killed_under_torchrun(tmp_path: Path) -> None:
    """The agent ends the others of one that died; they say first which one it was, and name no other."""
    (tmp_path / "run.yaml").write_text(config(tmp_path / "run", workers=3).to_yaml())
    agent = torchrun(
        "--standalone", "--nproc-per-node", "3", str(FAULTY), "train", "--config", str(tmp_path / "run.yaml"),
        env={"FAULT": "1:compute:17:SIGKILL"},
    )  # fmt: skip
    output = agent.communicate(timeout=110)[0]
    assert agent.returncode == 1, output
    lost = re.findall(r"error: PEER_LOST: (worker \d.*) was lost", output)
    assert len(lost) == 2, output
    assert all(re.match(r"worker 1 \(layers? [\d-]+\), last seen in epoch \d+,", line) for line in lost)


@pytest.mark.timeout(120)
def test_hanging_under_torchrun(tmp_path: Path) -> None:
    out = tmp_path / "run"
    (tmp_path / "run.yaml").write_text(config(out, shards=2, timeout=3.0).to_yaml())
    agent = torchrun(
        "--standalone", "--nproc-per-node", "4", str(FAULTY), "train", "--config", str(tmp_path / "run.yaml"),
        env={"FAULT": "1:compute:6:SIGSTOP"},
    )  # fmt: skip
    # The agent asks its processes to end half a minute before it kills them, and one that is stopped does not hear it.
    timer = threading.Timer(110, agent.kill)
    timer.start()
    output = agent.communicate()[0]
    timer.cancel()
    assert agent.returncode == 1, output
    assert re.search(named(MESH, 1) + r", has not answered for 3 s", output)
    assert re.search(r"exitcode\s*: 4\b", output)
    assert checkpoint.latest(out / "checkpoints").meta.total_epochs == 5
