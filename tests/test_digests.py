"""The weights of many configurations, bit for bit as they were when the list was last written."""

from __future__ import annotations

import json
import os
import platform
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

JOB = Path(__file__).with_name("digest_job.py")
#: python tests/digest_job.py > tests/digests.json
EXPECTED = json.loads(Path(__file__).with_name("digests.json").read_text())
CASES = runpy.run_path(str(JOB))["CASES"]
#: Those that start processes take seconds, the others fractions: two lots of about the same length.
SLOW = [name for name, settings in CASES.items() if "workers" in settings or "resume" in settings]


def test_the_list_is_complete() -> None:
    assert EXPECTED["cases"].keys() == CASES.keys()
    assert len(CASES) >= 16


@pytest.mark.timeout(180)
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="other processors compute other bits")
@pytest.mark.parametrize("lot", ["in this process", "in several"])
def test_weights_and_records(lot: str) -> None:
    names = [name for name in CASES if (name in SLOW) == (lot == "in several")]
    job = subprocess.run(
        [sys.executable, str(JOB), *names], capture_output=True, text=True, timeout=170, env=os.environ
    )  # fmt: skip
    assert job.returncode == 0, job.stderr
    found = json.loads(job.stdout)
    for name, digests in found["cases"].items():
        expected = EXPECTED["cases"][name]
        # Another version of torch may sum in another order: then the weights are the same but for rounding.
        assert digests["norms"] == pytest.approx(expected["norms"], rel=2e-2), name
        if found["torch"] == EXPECTED["torch"]:
            assert digests == expected, name
