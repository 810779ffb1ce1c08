"""Which lines of the package a test goes through, also in the processes that it starts: one file of lines a process.

A folder on the path gets ``SITE`` as its sitecustomize.py, which every Python process imports before anything else.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

#: Environment variables: where lines are written, and the folder whose modules are watched.
OUT, WATCHED = "PDADMM_G_REACHED", "PDADMM_G_WATCHED"
SITE = f"import sys\nsys.path.append({str(Path(__file__).parent)!r})\nimport reached\nreached.start()\n"
#: The test that is running. A process that a test starts knows it from its environment, where pytest has it.
current = [os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]]


def start() -> None:
    """Watch this process from here on, if its environment asks for it; a line is written the first time."""
    if OUT not in os.environ:
        return
    folder = os.environ[WATCHED] + os.sep
    # Line by line, since the process may end at any moment.
    out = Path(os.environ[OUT], str(os.getpid())).open("a", buffering=1)  # noqa: SIM115
    seen = set()

    def line(frame: FrameType, event: str, _: Any) -> Any:
        where = current[0], frame.f_code, frame.f_lineno
        if event == "line" and where not in seen:
            seen.add(where)
            out.write(f"{frame.f_code.co_filename[len(folder) :]}\t{frame.f_lineno}\t{current[0]}\n")
        return line

    def call(frame: FrameType, *_: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(folder) else None

    threading.settrace(call)
    sys.settrace(call)
