"""The fuzz finds nothing in a few cases, finds what was planted, and repeats a case from its seed."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fuzz import __main__ as command_line
from fuzz import campaign, cases, limits
from fuzz.commands import command
from fuzz.graphs import check_data, weird_graph, write_npz
from fuzz.limits import Violation, judge
from fuzz.mutations import any_value, mutate_bytes, mutate_json, mutate_safetensors
from fuzz.readers import reader, write_corpus
from fuzz.settings import any_yaml
from fuzz.targets import READERS, TARGETS
from fuzz.valid import trained
from pdadmm_g import InputError
from pdadmm_g.utils import read_text

#: Cases have an alarm of their own, which the time limit of a test must not be.
pytestmark = pytest.mark.timeout(120, method="thread")
#: Those that train are slow.
FEW = {"cli": 3, "checkpoint": 4, "run": 4, "fit": 4}


def seen(name: str, count: int, seed: int, folder: Path) -> dict[str, Any]:
    """What the cases of a target report."""
    cases.run_target(name, count, seed, folder / "report.json")
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


@pytest.mark.parametrize("name", TARGETS)
def test_a_few_cases_find_nothing(name: str, tmp_path: Path) -> None:
    count = FEW.get(name, 15)
    here, limit = Path.cwd(), resource.getrlimit(resource.RLIMIT_AS)
    report = seen(name, count, 0, tmp_path)
    assert report["found"] == {}
    assert report["cases"] == report["accepted"] + report["refused"] == count
    assert (Path.cwd(), resource.getrlimit(resource.RLIMIT_AS)) == (here, limit)


def test_all_targets_have_a_share() -> None:
    assert campaign.SHARES.keys() == TARGETS.keys()
    assert set(READERS) | set(campaign.GUIDED) <= set(TARGETS)
    assert sum(campaign.SHARES.values()) <= 1


def planted(rng: random.Random, folder: Path) -> None:
    """A target with a bug of each kind, refusals and successes."""
    match rng.randrange(6):
        case 0:
            Path("nothing").read_bytes()
        case 1:
            raise InputError("")
        case 2:
            raise Violation("accepted nonsense")
        case 3:
            (folder / "half.tmp").write_text("")
            raise InputError("refused")
        case 4:
            raise InputError("refused")


def test_planted_violations_are_found_and_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "planted", planted)
    monkeypatch.setattr(cases, "READERS", ("planted",))
    report = seen("planted", 40, 7, tmp_path)
    kinds = sorted(what.split(" ")[0].rstrip(",") for what in report["found"])
    assert kinds == ["FileNotFoundError", "InputError", "Violation", "refused"]
    assert report["violation"] == sum(entry["times"] for entry in report["found"].values())
    assert report["accepted"] > 0
    assert report["refused"] > 0
    for what, entry in report["found"].items():
        again = seen("planted", 1, entry["seed"], tmp_path)
        assert again["found"] == {what: {"seed": entry["seed"], "times": 1}}


def test_a_case_that_hangs_or_takes_all_memory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.2)
    with limits.limits():
        assert judge(lambda: time.sleep(60)) == ("violation", "Violation at fuzz: took more than 0.2 s")
        monkeypatch.setattr(limits, "SECONDS", 30)
        ending, what = judge(lambda: len(bytes(8 << 30)) and None)
        assert (ending, what) == ("violation", "MemoryError at fuzz: ")
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_finding_names_the_line_of_the_package() -> None:
    """The fuzz is in the package too, but what is wrong is never there."""
    with limits.limits():
        ending, what = judge(lambda: check_data(read_text(3, "a number")))  # type: ignore[arg-type]
        assert ending == "violation"
        assert re.match(r"AttributeError at files.py:\d+: 'int' object has no attribute 'exists'", what)
        ending, what = judge(lambda: check_data(3))
        assert (ending, what) == ("violation", "AttributeError at fuzz: 'int' object has no attribute 'num_nodes'")


def test_manners_of_the_command_are_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(["train", "--dataset", "korra"]) == 2
    assert command(["--help"]) == 0

    def rude() -> None:
        print("error: once", file=sys.stderr)
        print("error: twice", file=sys.stderr)
        sys.exit(2)

    monkeypatch.setattr("pdadmm_g.cli.main", rude)
    with pytest.raises(Violation, match="exit code 2 with 2 error lines: \\['train'\\]"):
        command(["train"])
    assert sys.argv[0] != "pdadmm-g"


def case_digest(seed: int, folder: Path) -> str:
    """What is made from this seed, but for the time that an archive holds."""
    rng = random.Random(f"case {seed}")
    valid = trained()["run/model.safetensors"]
    made = [any_yaml(rng), mutate_safetensors(rng, valid).hex(), repr(weird_graph(rng)), repr(any_value(rng))]
    write_npz(rng, folder / "graph.npz")
    return hashlib.sha256(repr([*made, (folder / "graph.npz").stat().st_size, rng.random()]).encode()).hexdigest()


def test_the_same_seed_makes_the_same_case(tmp_path: Path) -> None:
    digests = [case_digest(seed, tmp_path) for seed in range(30)]
    assert digests == [case_digest(seed, tmp_path) for seed in range(30)]
    assert len(set(digests)) == 30


def test_a_recorded_seed_still_means_its_case() -> None:
    """What a finding of an earlier day names can be repeated: changed mutations would change all cases."""
    made: list[object] = []
    for seed in range(200):
        rng = random.Random(f"npz {seed}")
        made += [mutate_bytes(rng, bytes(range(256))), mutate_json(rng, {"a": [1, {"b": None}], "c": "d"})]
    assert hashlib.sha256(repr(made).encode()).hexdigest()[:16] == "f3feb27d826482e0"


def test_a_crash_is_a_finding_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process dies at seed 103, having told of its first three cases."""
    commands = []

    def run(line: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        options = dict(zip(line[3::2], line[4::2], strict=True))
        commands.append((options["--target"], int(options["--cases"]), int(options["--seed"])))
        report, count = Path(options["--out"]), 3 if len(commands) == 1 else int(options["--cases"])
        found = {"KeyError at x.py:1: 'a'": {"seed": 101, "times": 1}} if len(commands) == 1 else {}
        counts = {"cases": count, "accepted": count - len(found), "refused": 0, "violation": len(found)}
        report.write_text(json.dumps({**counts, "found": found}))
        report.with_suffix(".at").write_text("103")
        return subprocess.CompletedProcess(line, -11 if len(commands) == 1 else 0, "", "Segmentation fault")

    monkeypatch.setattr(campaign.subprocess, "run", run)
    total = campaign.in_a_process("npz", 10, 100, guided=False)
    assert commands == [("npz", 10, 100), ("npz", 6, 104)]
    assert total["found"] == {
        "KeyError at x.py:1: 'a'": {"seed": 101, "times": 1},
        "the process ended with -11: Segmentation fault": {"seed": "103", "times": 1},
    }
    assert {key: total[key] for key in ("cases", "accepted", "violation")} == {
        "cases": 10, "accepted": 8, "violation": 2,
    }  # fmt: skip


def test_a_campaign_is_written_with_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"KeyError at x.py:1: 'a'": {"seed": 2, "times": 1}}

    def one_violation(name: str, count: int, seed: int, *, guided: bool) -> dict[str, Any]:
        return {"cases": count, "accepted": count - 1, "refused": 0, "violation": 1, "found": found}

    monkeypatch.setattr(campaign, "in_a_process", one_violation)
    monkeypatch.setattr(campaign, "GUIDED", ())
    monkeypatch.setattr(sys, "argv", ["fuzz", "--cases", "1000", "--out", str(tmp_path / "new/fuzz.json")])
    command_line.main()
    result = json.loads((tmp_path / "new/fuzz.json").read_text())
    assert result["command"].startswith("python -m tests.fuzz --cases 1000 --out ")
    assert {"date", "hardware", "versions", "cases", "violations", "targets"} <= set(result)
    assert {"pdadmm_g", "python", "torch", "numpy", "safetensors"} <= set(result["versions"])
    assert (result["cases"], result["violations"]) == (997, len(TARGETS))
    assert set(result["targets"]) == set(TARGETS)
    assert "    KeyError at x.py:1: 'a' (seed 2, 1 times)" in capsys.readouterr().out


@pytest.mark.parametrize("name", campaign.GUIDED)
def test_readers_of_bytes_take_valid_ones_and_refuse_others(name: str, tmp_path: Path) -> None:
    """What atheris is given, without atheris."""
    (tmp_path / "corpus").mkdir()
    write_corpus(name, 0, tmp_path / "corpus")
    read = reader(name, tmp_path)
    with limits.limits():
        endings = [judge(lambda path=path: read(path.read_bytes())) for path in (tmp_path / "corpus").iterdir()]
        assert ("accepted", "") in endings
        assert {ending for ending, _ in endings} <= {"accepted", "refused"}
        assert judge(lambda: read(b"\xff\xfe not a file")) == ("refused", "")


def test_one_target_runs_as_a_command(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "tests.fuzz", "--target", "settings", "--cases", "2", "--seed", "5"]
    out = tmp_path / "fuzz.json"
    subprocess.run([*line, "--out", str(out)], check=True, timeout=110, cwd=tmp_path, env=os.environ)
    assert json.loads(out.read_text())["cases"] == 2
    assert out.with_suffix(".at").read_text() == "6"
