"""How workers are started and watched: what they meet in, what they print, how they end. Kills: test_mesh_faults."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from helpers.faults import descendants
from pdadmm_g.engine.launch import TEAM, run_workers
from pdadmm_g.engine.watchdog import WorkerLostError

pytestmark = pytest.mark.usefixtures("own_temporary_folder")


@pytest.mark.timeout(60)
def test_worker_that_raises_is_quoted(tmp_path: Path) -> None:
    script = "import os\nif os.environ['RANK'] == '1':\n    raise LookupError('no such thing')\ninput()"
    with pytest.raises(WorkerLostError, match=r"worker 1.* failed: .*LookupError: no such thing"):
        run_workers([sys.executable, "-c", script], 2, threads=1, timeout=20, folder=tmp_path, on_note=lambda *_: None)
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
