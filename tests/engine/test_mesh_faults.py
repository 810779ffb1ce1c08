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
from helpers.faults import FAULTY, MEMBER, config, descendants, free_port, torchrun, wait_for
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


KILLED, HANGING = ("SIGKILL", "was killed by SIGKILL"), ("SIGSTOP", "has not answered for 3 s")


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    ("mesh", "victim", "moment", "epoch", "fault", "after"),
    [
        # Epoch 17 is in the second stage, after the checkpoint of epoch 15; the checkpoint of epoch 20 is cut in half.
        (CHAIN, 0, "checkpoint", 17, KILLED, {"workers": 1}),
        (CHAIN, 2, "transfer", 17, KILLED, {"workers": 1}),
        (MESH, 2, "compute", 17, KILLED, {"shards": 2}),
        (CHAIN, 1, "compute", 6, HANGING, None),
    ],
)
def test_lost(
    tmp_path: Path, monkeypatch, capsys, undisturbed: bytes, whole: bytes, mesh, victim, moment, epoch, fault, after
) -> None:
    """It is named, no process is left and no broken checkpoint, and the run goes on to the same model by others."""
    out = tmp_path / "run"
    (tmp_path / "run.yaml").write_text(config(out, **mesh, timeout=3.0 if fault == HANGING else 20.0).to_yaml())
    with monkeypatch.context() as faulty:
        faulty.setattr(training_fit, "WORKER", [sys.executable, str(FAULTY)])
        faulty.setenv("FAULT", f"{victim}:{moment}:{epoch}:{fault[0]}")
        with pytest.raises(SystemExit) as caught:
            main(["train", "--config", str(tmp_path / "run.yaml")])
    assert caught.value.code == 4
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.match(f"error: PEER_LOST: {named(mesh, victim)}, {fault[1]}", error)
    assert descendants(tmp_path) == []
    assert json.loads((out / "summary.json").read_text())["status"] == "PEER_LOST"
    assert len(checkpoint.latest(out / "checkpoints").history) == epoch // 5 * 5
    if after is not None:
        assert train_run(config(out, **after), resume=True)["epochs"] == 24
        assert (out / "model.safetensors").read_bytes() == (whole if mesh == MESH else undisturbed)
        assert [record["epoch"] for record in epochs_of(out)] == list(range(1, 25))
        assert len(checkpoint.valid(out / "checkpoints")) == 1  # with more epochs the run would go on from it


@pytest.mark.timeout(60)
def test_hanging_when_others_have_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "stopping.py"
    script.write_text(
        "import os, signal, sys\nfrom pathlib import Path\nfrom pdadmm_g.training import fit\n"
        "fit.main(Path(sys.argv[1]))\n"
        "if os.environ['RANK'] == '1':\n    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "os._exit(0)\n"
    )
    monkeypatch.setattr(training_fit, "WORKER", [sys.executable, str(script)])
    with pytest.raises(WorkerLostError, match=named(CHAIN, 1) + r", has not answered for 3 s"):
        train_run(config(tmp_path / "run", workers=2, timeout=3.0))
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
            threading.Timer(2.0, wake).start()
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as waiting:
        # The first worker waits in epoch 12, so that the run cannot end before the interrupt is heard.
        waiting.setattr(training_fit, "WORKER", [sys.executable, str(FAULTY)])
        waiting.setenv("FAULT", "0:compute:12:SIGSTOP")
        assert train_run(config(out, **MESH), on_epoch=interrupt)["status"] == "INTERRUPTED"
    assert 7 <= len(epochs) < 24
    assert descendants(tmp_path) == []
    train_run(config(out, shards=2), resume=True)
    assert (out / "model.safetensors").read_bytes() == whole


@pytest.mark.timeout(60)
def test_none_outlives_the_process_that_started_them(tmp_path: Path, graph_file: Path) -> None:
    command = [sys.executable, "-m", "pdadmm_g", "train", "--epochs", "100000", "--patience", "none", "--workers", "2"]
    command += ["--dataset", str(graph_file), "--tolerance", "0", "--unlabelled", "0", *FIXED]
    process = subprocess.Popen(
        [*command, "--out", "run", "--timeout", "5"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: (tmp_path / "run/metrics.jsonl").exists(), 45)
        assert len(descendants(tmp_path)) == 2
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not descendants(tmp_path), 10)
    assert list(tmp_path.glob("pdadmm-g-*/data*")) == []


# ------------------------------------------------------------------------------------------------------- torchrun


@pytest.mark.timeout(120)
def test_torchrun_goes_on_by_itself_and_ends_well(tmp_path: Path, whole: bytes) -> None:
    out = tmp_path / "run"
    (tmp_path / "run.yaml").write_text(config(out, shards=2).to_yaml())
    agent = torchrun(
        "--standalone", "--nproc-per-node", "2", "--max-restarts", "1", str(FAULTY), "train", "--config",
        str(tmp_path / "run.yaml"), env={"FAULT": "1:compute:17:SIGKILL"},
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
    """Without the agent, which would wait half a minute for the process that is stopped."""
    out = tmp_path / "run"
    (tmp_path / "run.yaml").write_text(config(out, shards=2, timeout=3.0).to_yaml())
    command = [sys.executable, str(FAULTY), "train", "--config", str(tmp_path / "run.yaml")]
    member = os.environ | MEMBER | {"WORLD_SIZE": "2", "MASTER_PORT": str(free_port()), "FAULT": "1:compute:6:SIGSTOP"}
    processes = [
        subprocess.Popen(command, env=member | {"RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE, text=True)
        for rank in ("0", "1")
    ]
    error = processes[0].communicate(timeout=110)[1]
    processes[1].kill()
    processes[1].communicate()
    assert processes[0].returncode == 4, error
    assert re.search(r"worker 1 .*last seen in epoch \d+, has not answered for 3 s", error)
    assert len(checkpoint.latest(out / "checkpoints").history) == 5
