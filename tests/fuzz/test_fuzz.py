"""A few cases of every door find nothing; what is planted is found."""

from __future__ import annotations

import resource
import signal
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from experiments.results import read
from fuzz import __main__ as campaign
from fuzz import limits
from fuzz.doors import DOORS
from fuzz.limits import command, ending
from pdadmm_g import InputError

#: Cases have an alarm of their own, which the time limit of a test must not be.
pytestmark = pytest.mark.timeout(120, method="thread")
#: Those that train are slow.
FEW = {"cli": 3, "run": 6, "fit": 4}


def suite(cases: int) -> settings:
    return settings(settings.get_profile("suite"), max_examples=cases, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", DOORS)
def test_a_few_cases_find_nothing(name: str) -> None:
    here, limit = Path.cwd(), resource.getrlimit(resource.RLIMIT_AS)
    endings = campaign.run_door(DOORS[name], suite(FEW.get(name, 15)))
    assert set(endings) <= {"accepted", "refused"}
    assert sum(endings.values()) > 0
    assert (Path.cwd(), resource.getrlimit(resource.RLIMIT_AS)) == (here, limit)


def refuse(folder: Path, message: str) -> None:
    (folder / "half.tmp").write_text("")
    raise InputError(message)


@pytest.mark.parametrize(
    ("door", "what"),
    [
        (lambda draw, _: Path("nothing").read_bytes() if draw(st.integers()) > 5 else None, FileNotFoundError),
        (lambda draw, folder: refuse(folder, "one\ntwo") if draw(st.integers(0, 3)) > 2 else None, AssertionError),
        (lambda _, folder: refuse(folder, ""), AssertionError),
        (lambda _, folder: refuse(folder, "and left a file"), AssertionError),
    ],
    ids=["traceback", "two-lines", "says-nothing", "leaves-a-file"],
)
def test_a_planted_violation_is_found(door, what: type[BaseException]) -> None:
    with pytest.raises(what):
        campaign.run_door(door, suite(60))


def test_a_case_that_hangs_or_takes_all_memory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.2)
    with limits.limits():
        with pytest.raises(AssertionError, match="took more than"):
            ending(lambda: time.sleep(60))
        monkeypatch.setattr(limits, "SECONDS", 30)
        with pytest.raises(MemoryError):
            ending(lambda: bytes(8 << 30) and None)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_manners_of_the_command_are_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(["--help"]) == 0
    monkeypatch.setattr("pdadmm_g.cli.main", lambda: sys.exit("error: once\nerror: twice"))
    with pytest.raises(AssertionError, match="exit code"):
        command(["train"])


def test_a_campaign_counts_a_violation_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doors = {"broken": lambda *_: Path("nothing").read_bytes(), "settings": DOORS["settings"]}
    monkeypatch.setattr(campaign, "DOORS", doors)
    with pytest.raises(SystemExit, match="True"):
        campaign.main(["--cases", "6", "--out", str(tmp_path / "fuzz")])
    result = read(tmp_path / "fuzz")
    assert (result["violation"], result["targets"]["settings"]["cases"]) == (1, 3)
