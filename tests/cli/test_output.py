from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pdadmm_g.cli.completion import DATASETS


def test_lists_and_measurements_in_a_script(run) -> None:
    rows = json.loads(run("datasets", "--json")[1])["datasets"]
    assert [row["name"] for row in rows] == list(DATASETS)
    size = ["--nodes", "20", "--features", "10", "--hidden", "8", "--layers", "3", "--seconds", "0.01"]
    code, out, _ = run("bench", "--methods", "floor", *size, "--json", "--out", "bench.json")
    assert code == 0
    assert json.loads(out) == json.loads(Path("bench.json").read_text())


def test_a_reader_that_has_enough_is_no_error() -> None:
    code = "from pdadmm_g.cli.output import Output, lasting_streams\n"
    code += "with lasting_streams():\n    Output().content('node,label\\n' * 100_000)\n"
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (process.returncode, process.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
def test_results_that_find_no_room_are_an_error_and_progress_is_not() -> None:
    code = "import sys\nfrom pdadmm_g.cli.output import lasting_streams\n"
    code += "with lasting_streams():\n    print('text', file=getattr(sys, sys.argv[1]))\n"
    for name, fails in (("stdout", True), ("stderr", False)):
        with Path("/dev/full").open("w") as full:
            streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {name: full}
            process = subprocess.run([sys.executable, "-c", code, name], **streams, check=False)
        assert (process.returncode != 0) == fails
