"""How workers are started and watched: what they meet in, what they print, how they end. Kills: test_mesh_faults."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from torch.distributed import HashStore

from helpers.faults import config, descendants
from pdadmm_g.engine import launch
from pdadmm_g.engine.launch import TEAM, _backend, run_workers
from pdadmm_g.engine.watchdog import WorkerLostError
from pdadmm_g.runs.run import train_run

pytestmark = pytest.mark.usefixtures("own_temporary_folder")


@pytest.mark.timeout(60)
def test_worker_that_raises_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "raising.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nfrom pdadmm_g.engine import launch\n"
        "from pdadmm_g.engine.worker import Worker\n"
        "def epoch(self):\n    raise LookupError('no such thing')\n"
        "if __import__('os').environ['RANK'] == '1':\n    Worker.epoch = epoch\n"
        "launch.main(Path(sys.argv[1]))\n"
    )
    monkeypatch.setattr(launch, "WORKER", [sys.executable, str(script)])
    with pytest.raises(WorkerLostError, match=r"worker 1.* failed: .*LookupError: no such thing"):
        train_run(config(tmp_path / "run", workers=2))
    assert descendants(tmp_path) == []


def sockets() -> int:
    """How many of the files that this process has open are sockets."""
    return sum(
        entry.readlink().name.startswith("socket:") for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()
    )


@pytest.mark.timeout(60)
def test_workers_are_among_themselves(tmp_path: Path) -> None:
    """They meet in a folder that only its owner can open, and the process that starts them listens to nobody.

    An interrupt at the terminal, which they could not ignore while they start, is not for them; what a library prints
    is no note.
    """
    found: list[tuple[int, int]] = []
    before = sockets()
    script = f"""
import json, os, sys
sys.stdout.buffer.write(b'{{not a note\\n\\xff\\xfe\\n[1]\\n')
sys.stdout.flush()
print(json.dumps({{'mode': os.stat(os.environ['{TEAM}']).st_mode & 0o777, 'session': os.getsid(0)}}), flush=True)
input()
"""

    def on_note(_: int, note: dict[str, int]) -> None:
        assert note["session"] != os.getsid(0)
        found.append((note["mode"], sockets()))
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        run_workers([sys.executable, "-c", script], 2, threads=1, timeout=20, folder=tmp_path, on_note=on_note)
    assert found == [(0o700, before)]
    assert not list(tmp_path.glob("team-*"))


# ----------------------------------------------------------------------------------------------------------- GPUs


@pytest.mark.parametrize(
    ("device", "gpus", "local", "elsewhere", "backend"),
    [
        ("cpu", 2, 4, "0", "gloo"),
        ("cuda", 2, 2, "0", "cpu:gloo,cuda:nccl"),
        ("cuda", 1, 2, "0", "gloo"),
        ("cuda", 2, 2, "1", "gloo"),  # all must do as the machine with too few
        ("cuda:1", 2, 2, "0", "gloo"),
        ("cuda:1", 2, 1, "0", "cpu:gloo,cuda:nccl"),
    ],
)
def test_processes_that_share_a_gpu_do_without_nccl(
    monkeypatch: pytest.MonkeyPatch, device: str, gpus: int, local: int, elsewhere: str, backend: str
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: True)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local))
    store = HashStore()
    store.set("shares-gpu/1", elsewhere)
    assert _backend(device, store, 0, 2) == backend
