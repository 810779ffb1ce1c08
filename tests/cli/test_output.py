from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from pdadmm_g.cli.completion import DATASETS


def test_lists_and_measurements_in_a_script(run) -> None:
    rows = json.loads(run("datasets", "--json")[1])["datasets"]
    assert [row["name"] for row in rows] == list(DATASETS)
    size = ["--nodes", "20", "--features", "10", "--hidden", "8", "--layers", "3", "--seconds", "0.01"]
    code, out, _ = run("bench", "--methods", "floor", *size, "--json", "--out", "bench.json")
    assert code == 0
    assert json.loads(out) == json.loads(Path("bench.json").read_text())


def test_a_reader_that_has_enough_is_no_error() -> None:
    code = "from pdadmm_g.cli.output import Output\nOutput().content('node,label\\n' * 100_000)\n"
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (process.returncode, process.stderr) == (0, b"")
