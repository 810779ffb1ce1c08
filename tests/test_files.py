from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_output_to_a_stream_keeps_what_is_there(tmp_path: Path) -> None:
    script = "from pathlib import Path; from pdadmm_g.files import write_atomically\n"
    script += "print('before', flush=True); write_atomically(Path('/dev/stdout'), 'rows\\n'); print('after')"
    with (tmp_path / "log").open("w") as log:
        subprocess.run([sys.executable, "-c", script], stdout=log, check=True, timeout=60)
    assert (tmp_path / "log").read_text() == "before\nrows\nafter\n"
    piped = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert piped.stdout == "before\nrows\nafter\n"
