"""A worker that dies or hangs ends the job in time, leaves no process and no broken checkpoint, and can be resumed."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import torch

from pdadmm_g import InputError
from pdadmm_g.cli import main
from pdadmm_g.config import RunConfig
from pdadmm_g.engine.launch import join, run_workers
from pdadmm_g.engine.watchdog import WorkerLostError
from pdadmm_g.runs import folder as runs
from pdadmm_g.runs.folder import RunFolder
from pdadmm_g.runs.train_run import train_run
from pdadmm_g.training import checkpoint
from pdadmm_g.training import local_workers as parallel

SETTINGS = {
    "augment": "average",
    "weight_decay": 0.1,
    "rho": 5.0,
    "layers": 6,
    "stages": (3, 6),
    "hidden": 10,
    "epochs": 12,
    "quantize": "pq",
    "checkpoint_every": 5,
}
FAULTY = Path(__file__).with_name("faulty_child.py")


def config(out: Path, **changes: object) -> RunConfig:
    return RunConfig(**SETTINGS | {"out": str(out), "timeout": 20.0} | changes)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model of a run that nothing happened to."""
    out = tmp_path_factory.mktemp("runs") / "undisturbed"
    train_run(config(out))
    return (out / "model.safetensors").read_bytes()


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are told of a folder in here, by which those of this test are known."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def descendants(tmp_path: Path) -> list[str]:
    """Worker processes of this test that are still alive."""
    listing = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listing.splitlines() if f"{tmp_path}/pdadmm-g-" in line]


@pytest.mark.timeout(90)
@pytest.mark.parametrize("moment", ["compute", "transfer", "checkpoint"])
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_killed_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: bytes, victim: int, moment: str
) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr(parallel, "WORKER", [sys.executable, str(FAULTY)])
    # Epoch 17 is in the second stage, after the checkpoint of epoch 15; the checkpoint of epoch 20 is cut in half.
    monkeypatch.setenv("FAULT", f"{victim}:{moment}:17:SIGKILL")
    message = rf"worker {victim} \(layers? [\d-]+\), last seen in epoch \d+, was killed by SIGKILL"
    with pytest.raises(WorkerLostError, match=message):
        train_run(config(out, workers=3))
    assert descendants(tmp_path) == []
    assert json.loads((out / "summary.json").read_text())["status"] == "PEER_LOST"
    saved = checkpoint.latest(out / "checkpoints")
    assert saved is not None
    assert saved.meta.total_epochs == 15

    # Alone or with fewer workers, the run goes on to the same model, byte for byte.
    monkeypatch.undo()
    summary = train_run(config(out, workers=2 if (victim, moment) == (1, "transfer") else 1), resume=True)
    assert summary["epochs"] == 24
    assert (out / "model.safetensors").read_bytes() == undisturbed
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in metrics] == list(range(1, 25))
    assert not (out / "checkpoints").exists()


@pytest.mark.timeout(60)
def test_hanging_worker_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(parallel, "WORKER", [sys.executable, str(FAULTY)])
    monkeypatch.setenv("FAULT", "1:compute:6:SIGSTOP")
    Path(tmp_path / "run.yaml").write_text(config(tmp_path / "run", workers=2, timeout=3.0).to_yaml())
    with pytest.raises(SystemExit) as caught:
        main(["train", "--config", str(tmp_path / "run.yaml")])
    assert caught.value.code == 4
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: PEER_LOST: worker 1 (layer")
    assert re.search(r"last seen in epoch \d+, has not answered for 3 s", error)
    assert descendants(tmp_path) == []
    assert checkpoint.latest(tmp_path / "run/checkpoints").meta.total_epochs == 5


@pytest.mark.timeout(60)
@pytest.mark.parametrize("victim", [0, 1])
def test_worker_that_hangs_when_others_have_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: int) -> None:
    script = tmp_path / "stopping.py"
    script.write_text(
        "import os, signal, sys\nfrom pathlib import Path\nfrom pdadmm_g.training import worker_process as child\n"
        "child.main(Path(sys.argv[1]))\n"
        f"if os.environ['RANK'] == '{victim}':\n    os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    monkeypatch.setattr(parallel, "WORKER", [sys.executable, str(script)])
    with pytest.raises(WorkerLostError, match=rf"worker {victim} .* has not answered for 3 s"):
        train_run(config(tmp_path / "run", workers=2, timeout=3.0))
    assert descendants(tmp_path) == []


@pytest.mark.timeout(60)
def test_worker_that_raises_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "raising.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nfrom pdadmm_g.training import worker_process as child\n"
        "from pdadmm_g.engine.worker import Worker\n"
        "def epoch(self):\n    raise MemoryError('no room left')\n"
        "if __import__('os').environ['RANK'] == '1':\n    Worker.epoch = epoch\nchild.main(Path(sys.argv[1]))\n"
    )
    monkeypatch.setattr(parallel, "WORKER", [sys.executable, str(script)])
    with pytest.raises(WorkerLostError, match=r"worker 1.* failed: .*MemoryError: no room left"):
        train_run(config(tmp_path / "run", workers=2))
    assert descendants(tmp_path) == []


@pytest.mark.timeout(60)
def test_workers_do_not_outlive_the_process_that_started_them(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pdadmm_g", "train", "--epochs", "100000", "--patience", "none", "--workers", "2"]
    command += ["--weight-decay", "0.1", "--augment", "average"]
    process = subprocess.Popen(
        [*command, "--out", "run", "--timeout", "5"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for(lambda: (tmp_path / "run/metrics.jsonl").exists(), 45)
    process.kill()
    process.wait()
    wait_for(lambda: not descendants(tmp_path), 10)


def wait_for(condition, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.1)


# ------------------------------------------------------------------------------------------------------- resuming


def interrupted_run(out: Path, epoch: int = 7, *, overwrite: bool = False, **changes: object) -> None:
    """A run that ended without a word while it noted this epoch."""

    def interrupt(record) -> None:
        if record["epoch"] == epoch:
            raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        train_run(config(out, **changes), on_epoch=interrupt, overwrite=overwrite)


def test_resume_refuses_other_settings(tmp_path: Path) -> None:
    interrupted_run(tmp_path / "run")
    with pytest.raises(InputError, match=r"cannot resume with rho = 0.5, the run has 5.0"):
        train_run(config(tmp_path / "run", rho=0.5), resume=True)


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
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in metrics] == list(range(1, 25))


def test_interrupted_run_goes_on(tmp_path: Path, undisturbed: bytes) -> None:
    """It has a model, which is not replaced unasked, and its checkpoint."""
    out = tmp_path / "run"

    def interrupt(record) -> None:
        if record["epoch"] == 8:
            raise KeyboardInterrupt

    assert train_run(config(out), on_epoch=interrupt)["status"] == "INTERRUPTED"
    with pytest.raises(InputError, match=r"holds a run that did not finish; go on with --resume, or .* --overwrite$"):
        train_run(config(out))
    train_run(config(out), resume=True)
    assert (out / "model.safetensors").read_bytes() == undisturbed
    assert not (out / "checkpoints").exists()


def test_interrupted_run_without_a_checkpoint_keeps_its_model(tmp_path: Path) -> None:
    out = tmp_path / "run"

    def interrupt(record) -> None:
        if record["epoch"] == 8:
            raise KeyboardInterrupt

    train_run(config(out, checkpoint_every=None), on_epoch=interrupt)
    model = (out / "model.safetensors").read_bytes()
    with pytest.raises(InputError, match="already holds a finished run"):
        train_run(config(out, checkpoint_every=None), resume=True)
    assert (out / "model.safetensors").read_bytes() == model


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


def test_what_was_left_to_the_data_is_chosen_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undecided = {"augment": "auto", "normalize": "auto", "weight_decay": None}
    train_run(config(tmp_path / "whole", **undecided))
    interrupted_run(tmp_path / "run", **undecided)

    def again(*_: object, **__: object) -> None:
        raise AssertionError("chosen again")

    monkeypatch.setattr("pdadmm_g.data.augmentation_choice._linear_score", again)
    monkeypatch.setattr("pdadmm_g.training.weight_decay.train", again)
    train_run(config(tmp_path / "run", **undecided), resume=True)
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert models[0] == models[1]


def test_other_data_of_the_same_shape_are_refused(tmp_path: Path, tiny_graph) -> None:
    path = str(tmp_path / "graph.pt")
    torch.save(tiny_graph, path)
    interrupted_run(tmp_path / "run", dataset=path, hidden=4)
    tiny_graph.x[3, 1] += 1
    torch.save(tiny_graph, path)
    with pytest.raises(InputError, match="was written for other data than"):
        train_run(config(tmp_path / "run", dataset=path, hidden=4), resume=True)


def test_checkpoints_in_stages_that_are_no_multiple_of_eval_every(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records come at 4, 8, 10 and 14, 18, 20: a checkpoint at the first of them after every fourth epoch."""
    written = []
    commit = checkpoint.Checkpointing._commit

    def note(self, meta, history) -> None:
        commit(self, meta, history)
        written.append(len(history))

    monkeypatch.setattr(checkpoint.Checkpointing, "_commit", note)
    train_run(config(tmp_path / "run", epochs=10, eval_every=4, checkpoint_every=4))
    assert written == [4, 8, 14, 18, 20]


def test_checkpoint_on_a_disk_that_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere somebody else's layer was written, but not here: the checkpoint before it stays."""
    write = checkpoint.write_layer

    def elsewhere(folder: Path, epoch: int, index: int, tensors: dict) -> None:
        if epoch < 10 or index != 1:
            write(folder, epoch, index, tensors)

    monkeypatch.setattr(checkpoint, "write_layer", elsewhere)
    with pytest.raises(InputError, match=r"no layer-002.safetensors: --out must be a folder that all machines share"):
        train_run(config(tmp_path / "run"))
    assert checkpoint.latest(tmp_path / "run/checkpoints").meta.total_epochs == 5
    with pytest.raises(InputError, match="no checkpoint here"):
        checkpoint.to_go_on_from(tmp_path)


@pytest.mark.timeout(60)
def test_resume_with_more_workers(tmp_path: Path, undisturbed: bytes) -> None:
    interrupted_run(tmp_path / "run")
    summary = train_run(config(tmp_path / "run", workers=2), resume=True)
    assert (tmp_path / "run/model.safetensors").read_bytes() == undisturbed
    assert len(summary["workers"]) == 2
    assert all(worker["compute_seconds"] > 0 for worker in summary["workers"])


def test_checkpoints_of_an_abandoned_run_are_not_resumed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    interrupted_run(out)
    assert checkpoint.latest(out / "checkpoints") is not None
    with pytest.raises(InputError, match="did not finish"):
        train_run(config(out, rho=6.0))
    assert checkpoint.latest(out / "checkpoints") is not None
    interrupted_run(out, epoch=3, overwrite=True, rho=6.0)
    assert checkpoint.latest(out / "checkpoints") is None


def test_run_is_finished_before_its_checkpoints_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half removed, a checkpoint could not be resumed from."""
    out = tmp_path / "run"

    def killed(path: Path, **_: object) -> None:
        raise RuntimeError(f"killed at {path.name}")

    monkeypatch.setattr(runs.shutil, "rmtree", killed)
    with pytest.raises(RuntimeError, match="killed at checkpoints"):
        train_run(config(out, checkpoint_every=None))
    assert RunFolder(out).finished


def test_folder_killed_while_it_is_made_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(path: Path, _: str) -> None:
        raise RuntimeError(f"killed at {path.name}")

    monkeypatch.setattr(runs, "write_atomically", killed)
    with pytest.raises(RuntimeError, match=r"killed at config\.yaml"):
        RunFolder(tmp_path / "run").start(config(tmp_path / "run"))
    assert (tmp_path / "run/metrics.jsonl").exists()
    RunFolder(tmp_path / "run").check_free(overwrite=False)


@pytest.mark.timeout(60)
def test_an_interrupt_at_the_terminal_is_not_for_the_workers(tmp_path: Path) -> None:
    """While they start they could not ignore it, and one that it killed would count as lost."""
    sessions = []
    script = "import json, os; print(json.dumps({'session': os.getsid(0)}), flush=True)"
    run_workers(
        [sys.executable, "-c", script], 2, threads=1, timeout=20, folder=tmp_path,
        on_note=lambda _, event: sessions.append(event["session"]),
    )  # fmt: skip
    assert len(sessions) == 2
    assert os.getsid(0) not in sessions


@pytest.mark.timeout(60)
def test_workers_of_a_restarted_job(tmp_path: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own workers in an attempt of torchrun's that is not the first have a first attempt of their own."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    monkeypatch.setattr("pdadmm_g.engine.watchdog.START_SECONDS", 20.0)
    train_run(config(tmp_path / "run", workers=2))
    assert (tmp_path / "run/model.safetensors").read_bytes() == undisturbed


@pytest.mark.timeout(60)
def test_worker_ends_with_its_parent_before_it_has_joined(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"config": {}}))
    environment = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    environment["TORCHELASTIC_USE_AGENT_STORE"] = "True"
    worker = subprocess.Popen(
        [*parallel.WORKER, str(tmp_path)], env=os.environ | environment, stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert worker.stdin is not None
        worker.stdin.close()
        assert worker.wait(timeout=45) == 4
    finally:
        worker.kill()
        worker.wait()


def test_resume_without_a_checkpoint_starts_over(tmp_path: Path, undisturbed: bytes) -> None:
    with pytest.warns(UserWarning, match="no checkpoint to resume from"):
        train_run(config(tmp_path / "run"), resume=True)
    assert (tmp_path / "run/model.safetensors").read_bytes() == undisturbed


@pytest.mark.timeout(60)
@pytest.mark.parametrize("workers", [1, 2])
def test_full_disk_ends_in_one_line_and_loses_nothing(tmp_path: Path, workers: int) -> None:
    """The limit on the size of files stands for the disk: the second stage has a layer that no longer fits."""
    out, before = tmp_path / "run", resource.getrlimit(resource.RLIMIT_FSIZE)
    wide = config(out, workers=workers, layers=3, stages=(2, 3), hidden=150, epochs=8, quantize="none")
    resource.setrlimit(resource.RLIMIT_FSIZE, (250_000, before[1]))
    try:
        with pytest.raises(InputError, match=r"layer-00\d.safetensors: cannot write: .*File too large.*--resume$"):
            train_run(wide)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert checkpoint.latest(out / "checkpoints").meta.total_epochs == 5
    assert train_run(wide, resume=True)["epochs"] == 16


def test_history_grows_and_what_a_killed_attempt_left_behind_it_does_not_count(
    tmp_path: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    interrupted_run(out, epoch=12)
    history = out / "checkpoints/history.jsonl"
    before = history.read_bytes()
    assert before.count(b"\n") == 10
    history.write_bytes(before + b'{"stage": 1, "epoch": 11, "obj')
    written = []

    def keep(*_: object, **__: object) -> None:
        """Called where the checkpoints of a finished run, or older ones, are removed."""
        written.append(history.read_bytes())

    monkeypatch.setattr(checkpoint.shutil, "rmtree", keep)
    train_run(config(out), resume=True)
    assert (out / "model.safetensors").read_bytes() == undisturbed
    assert written[-1].startswith(before)
    assert [json.loads(line)["epoch"] for line in written[-1].splitlines()] == list(range(1, 21))


def test_broken_checkpoint_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "epoch-00000005"
    folder.mkdir()
    assert checkpoint.latest(tmp_path) is None
    (folder / "meta.json").write_text("{")
    with pytest.raises(InputError, match="meta.json: cannot read the checkpoint"):
        checkpoint.latest(tmp_path)


# ------------------------------------------------------------------------------------------------------- torchrun


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def torchrun(*arguments: str, **options) -> subprocess.Popen[str]:
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"} | options.pop("env", {})
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *arguments],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options,
    )  # fmt: skip


@pytest.mark.timeout(120)
def test_two_machines_under_torchrun(tmp_path: Path, undisturbed: bytes) -> None:
    """Two torchrun agents on loopback, two workers each."""
    out = tmp_path / "run"
    (tmp_path / "run.yaml").write_text(config(out).to_yaml())
    port = str(free_port())
    agents = [
        torchrun(
            "--nnodes", "2", "--nproc-per-node", "2", "--node-rank", str(node), "--master-addr", "127.0.0.1",
            "--master-port", port, "-m", "pdadmm_g", "train", "--config", str(tmp_path / "run.yaml"),
        )
        for node in range(2)
    ]  # fmt: skip
    outputs = [agent.communicate(timeout=110)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], outputs
    assert (out / "model.safetensors").read_bytes() == undisturbed
    assert len(json.loads((out / "summary.json").read_text())["workers"]) == 4


@pytest.mark.timeout(120)
def test_torchrun_restarts_and_resumes_by_itself(tmp_path: Path, undisturbed: bytes) -> None:
    out = tmp_path / "run"
    (tmp_path / "run.yaml").write_text(config(out).to_yaml())
    agent = torchrun(
        "--standalone", "--nproc-per-node", "2", "--max-restarts", "1", str(FAULTY), "train", "--config",
        str(tmp_path / "run.yaml"), env={"FAULT": "1:compute:17:SIGKILL"},
    )  # fmt: skip
    output = agent.communicate(timeout=110)[0]
    assert agent.returncode == 0, output
    assert (out / "model.safetensors").read_bytes() == undisturbed


def test_nothing_beats_after_the_team_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    before = threading.active_count()
    team = join("cpu", 60.0, watch=True)
    assert threading.active_count() > before
    team.leave()
    assert threading.active_count() == before


@pytest.mark.timeout(60)
def test_bad_input_under_torchrun_ends_everyone(tmp_path: Path) -> None:
    agent = torchrun(
        "--standalone", "--nproc-per-node", "2", "-m", "pdadmm_g", "train", "--dataset", "korra", "--out", "run",
        cwd=tmp_path,
    )  # fmt: skip
    output = agent.communicate(timeout=55)[0]
    assert agent.returncode != 0
    assert output.count("error: unknown data set 'korra'") == 1
    assert "PEER_LOST" not in output
    assert re.search(r"exitcode\s*: 2\b", output)
    assert not (tmp_path / "run").exists()
