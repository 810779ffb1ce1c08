"""A few cases of every door find nothing; what is planted is found."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from fuzz import __main__ as campaign
from fuzz.doors import DOORS
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
