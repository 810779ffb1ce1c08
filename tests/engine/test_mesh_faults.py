"""Rows of the table of faults, without their own start and end: all rows by ``python -m tests.soak.table``."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.faults import FAULTY, config, descendants, torchrun, wait_for
from helpers.run_files import epochs_of
from pdadmm_g.cli import main
from pdadmm_g.engine import launch
from pdadmm_g.runs.run import train_run
from pdadmm_g.training import checkpoint
from soak.table import MESHES, MOMENTS, Row, command, judge, rows

pytestmark = [
    pytest.mark.usefixtures("own_temporary_folder"),
    pytest.mark.filterwarnings("ignore:.*starting from the beginning"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model of the run on two shards that nothing happens to."""
    out = tmp_path_factory.mktemp("whole") / "run"
    train_run(config(out, shards=2, workers=1))
    return (out / "model.safetensors").read_bytes()


def test_the_table_has_every_fault_at_every_moment() -> None:
    found = list(rows())
    assert len(found) == len({*found}) > 100
    for mesh in ("3x1", "2x2", "torchrun"):
        last = MESHES[mesh][0] * MESHES[mesh][1] - 1
        for kind in ("kill", "stop", "hang", "disk"):
            for moment in MOMENTS:
                assert {Row(kind, mesh, 0, moment), Row(kind, mesh, last, moment)} <= {*found}


@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    "row",
    [
        Row("kill", "3x1", 0, "writing"), Row("kill", "2x2", 3, "epoch"), Row("stop", "3x1", 2, "choosing"),
        Row("hang", "3x1", 2, "epoch"), Row("interrupt", "3x1", 0, "epoch"), Row("disk", "3x1", 2, "epoch"),
    ],
    ids=str,
)  # fmt: skip
def test_fault(row: Row, tmp_path: Path, monkeypatch, capsys, undisturbed: bytes, whole: bytes) -> None:
    """It ends as documented, no process is left and no broken checkpoint, and others go on to the same model."""
    out, (_, shards) = tmp_path / "run", MESHES[row.mesh]
    with monkeypatch.context() as faulty:
        faulty.setattr(launch, "WORKER", [sys.executable, str(FAULTY)])
        faulty.setenv("FAULT", f"{row.rank}:{row.kind}:{row.moment}:{MOMENTS[row.moment]}")
        faulty.setenv("FAULT_ONCE", str(tmp_path / "struck"))
        with pytest.raises(SystemExit) as caught:
            main(command(row, out)[0][2:])
    assert (tmp_path / "struck").exists()
    assert judge(row, [caught.value.code], "".join(capsys.readouterr())) == ""
    assert descendants(tmp_path) == []
    train_run(config(out, shards=shards, workers=1), resume=True)
    assert (out / "model.safetensors").read_bytes() == (undisturbed if shards == 1 else whole)
    assert [record["epoch"] for record in epochs_of(out)] == list(range(1, 25))
    assert len(checkpoint.valid(out / "checkpoints")) == 1  # with more epochs the run would go on from it


@pytest.mark.timeout(60)
def test_none_outlives_the_process_that_started_them(tmp_path: Path) -> None:
    row = Row("none", "3x1", 0, "epoch")
    arguments = command(row, tmp_path / "run", "--epochs", "100000", "--patience", "none", "--tolerance", "0")[0][2:]
    process = subprocess.Popen(
        [sys.executable, "-m", "pdadmm_g", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: (tmp_path / "run/metrics.jsonl").exists(), 45)
        assert len(descendants(tmp_path)) == 3
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not descendants(tmp_path), 10)


# ------------------------------------------------------------------------------------------------------- torchrun


@pytest.mark.timeout(120)
def test_torchrun_goes_on_by_itself_and_ends_well(tmp_path: Path, whole: bytes) -> None:
    out = tmp_path / "run"
    (tmp_path / "run.yaml").write_text(config(out, shards=2).to_yaml())
    agent = torchrun(
        "--standalone", "--nproc-per-node", "2", "--max-restarts", "1", str(FAULTY), "train", "--config",
        str(tmp_path / "run.yaml"), env={"FAULT": "1:kill:epoch:17", "FAULT_ONCE": str(tmp_path / "struck")},
    )  # fmt: skip
    output = agent.communicate(timeout=110)[0]
    assert agent.returncode == 0, output
    assert re.findall(r"error: PEER_LOST: (worker \d) \(layers? .*, last seen in epoch \d+, was lost", output) == [
        "worker 1"
    ]
    assert (out / "model.safetensors").read_bytes() == whole
    assert "accuracy: train" in output  # flushed by a process that ends without exit handlers
    assert json.loads((out / "summary.json").read_text())["epochs"] == 24
    assert "terminate called" not in output
