"""A process that was forked from one with torch is, but for that, as if it had been executed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, os, sys
known = "torch" in sys.modules
from beside import NAME
print(json.dumps({
    "argv": sys.argv, "name": __name__, "beside": NAME, "folder": os.getcwd(), "parent": os.getppid(), "known": known,
    "session": os.getsid(0) == os.getpid(), "variable": os.environ.get("GIVEN"), "home": os.environ.get("HOME"),
    "input": sys.stdin.read(),
}), flush=True)
print("to the other", file=sys.stderr)
sys.exit(7)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("NAME = 'here'")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path / "script.py"


def outcome(script: Path) -> tuple[int, dict, str]:
    variables = {name: value for name, value in os.environ.items() if name != "HOME"} | {"GIVEN": "a = b"}
    done = subprocess.run(
        [sys.executable, str(script), "one", "two words"], input="said", capture_output=True, text=True, env=variables,
        cwd=script.parent / "elsewhere", start_new_session=True,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout), done.stderr


def expected(script: Path, *, known: bool) -> tuple[int, dict, str]:
    said = {
        "argv": [str(script), "one", "two words"], "name": "__main__", "beside": "here", "parent": os.getpid(),
        "folder": str(script.parent / "elsewhere"), "known": known, "session": True, "variable": "a = b",
        "home": None, "input": "said",
    }  # fmt: skip
    return 7, said, "to the other\n"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere all are executed")
def test_a_forked_process_is_as_an_executed_one(script: Path) -> None:
    assert outcome(script) == expected(script, known=True)


@pytest.mark.usefixtures("afresh")
def test_afresh_it_is_executed(script: Path) -> None:
    assert outcome(script) == expected(script, known=False)


def test_it_is_killed_and_its_failures_are_told(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys\nif sys.stdin.read():\n    raise KeyError('broken')\n")
    command = [sys.executable, str(tmp_path / "script.py")]
    failed = subprocess.run(command, input="go", capture_output=True, text=True, timeout=60)
    assert failed.returncode == 1
    assert failed.stderr.endswith("KeyError: 'broken'\n")
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.poll() is None
        process.kill()
        assert process.wait(timeout=60) == -signal.SIGKILL
