from __future__ import annotations

import pytest

from pdadmm_g import tasks as module
from pdadmm_g.tasks import Event, Tasks, task


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    return now


def test_seconds_add_up_and_a_task_within_another_stops_its_clock(clock: list[float]) -> None:
    heard: list[Event] = []
    with Tasks(heard.append) as tasks:
        clock[0] += 1
        with task("training") as step:
            clock[0] += 2
            with task("evaluating", 2) as inner:
                clock[0] += 3
                inner()
                clock[0] += 4
                inner()
            clock[0] += 5
            step()
        clock[0] += 6
        assert tasks.times() == {"training": 7.0, "evaluating": 7.0, "other": 7.0}
        assert tasks.total == 21
    assert heard == [
        Event("training", 0, None),
        Event("evaluating", 0, 2),
        Event("evaluating", 1, 2),
        Event("evaluating", 2, 2),
        Event("evaluating", 2, 2, 7.0),
        Event("training", 1, None),
        Event("training", 1, None, 7.0),
    ]


def test_a_task_that_comes_twice_counts_once_and_one_that_fails_counts(clock: list[float]) -> None:
    with Tasks() as tasks:
        for _ in range(2):
            with task("reading"):
                clock[0] += 2
        with pytest.raises(ZeroDivisionError), task("reading"):
            clock[0] += 1 / 0
    assert tasks.seconds == {"reading": 4.0}


def test_where_nobody_listens_nothing_happens() -> None:
    with task("training", 3) as step:
        step()
    with Tasks() as tasks:
        pass
    with task("training"):
        pass
    assert tasks.seconds == {}
