"""The weights of many configurations, bit for bit as they were when the list was last written."""

from __future__ import annotations

import json
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
LOTS = 2


def test_the_list_is_complete() -> None:
    assert EXPECTED["cases"].keys() == CASES.keys()
    assert len(CASES) >= 70


@pytest.mark.timeout(280)
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="other processors compute other bits")
@pytest.mark.parametrize("lot", range(LOTS))
def test_weights_and_records(lot: int) -> None:
    job = subprocess.run(
        [sys.executable, str(JOB), *list(CASES)[lot::LOTS]], capture_output=True, text=True, timeout=270
    )  # fmt: skip
    assert job.returncode == 0, job.stderr
    found = json.loads(job.stdout)
    for name, digests in found["cases"].items():
        expected = EXPECTED["cases"][name]
        # Another version of torch may sum in another order: then the weights are the same but for rounding.
        assert digests.get("norms", []) == pytest.approx(expected.get("norms", []), rel=2e-2), name
        # Where processes add up what each has of the rows, so may they.
        assert digests.pop("rounded", []) == pytest.approx(expected.pop("rounded", []), rel=1e-4, abs=1e-5), name
        if found["torch"] == EXPECTED["torch"]:
            assert digests == expected, name
