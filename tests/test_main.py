from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_early_interrupt_has_no_traceback(tmp_path: Path) -> None:
    """While libraries are imported."""
    script = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); print('up', flush=True)\n"
    script += "sys.argv = ['pdadmm-g', 'train', '--out', 'run', '--epochs', '100000']\n"
    script += "from pdadmm_g.__main__ import main\n"
    script += "import threading, os; threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
    script += "main()\n"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False
    )
    assert result.returncode == 130, result.stderr
    assert "Traceback" not in result.stderr
