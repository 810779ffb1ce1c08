"""What stands in the store, where anybody may have written it, and what is said of those who are silent."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from torch.distributed import HashStore

from pdadmm_g.engine import watchdog
from pdadmm_g.engine.watchdog import (
    EXIT_INPUT,
    EXIT_PEER_LOST,
    FolderStore,
    Heartbeat,
    Heartbeats,
)  # fmt: skip

BEAT = "(layers 5-7), last seen in epoch 13,"


def test_silence_is_told_with_the_seconds_that_it_lasted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that never was there has had the time that starting may take, not the timeout of the others."""
    store, now = HashStore(), [0.0]
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: now[0])
    store.set("beat/1", f"1 {BEAT}")
    heartbeats = Heartbeats(store, 2)
    heartbeats.look()
    now[0] = 4.0
    assert heartbeats.silent(3.0) == {1: "worker 1 (layers 5-7), last seen in epoch 13, has not answered for 3 s"}
    assert (heartbeats.longest_silent(3.5), heartbeats.longest_silent(4.5)) == (0, -1)
    store.set("beat/1", f"2 {BEAT}")
    now[0] = 121.0
    heartbeats.look()
    assert heartbeats.silent(3.0) == {0: "worker 0, not yet in an epoch, has not answered for 120 s"}


class Gone:
    """A store in which nothing can be written."""

    def set(self, key: str, value: str) -> None:
        raise RuntimeError(f"no {key}")


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes with which a thread wanted to end the process."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    return codes


@pytest.mark.timeout(60)
def test_a_worker_whose_store_is_gone_ends(exits: list[int]) -> None:
    store = Gone()
    heartbeat = Heartbeat(store, 0, 1, 60.0, watch=False)  # type: ignore[arg-type]
    while not exits:
        time.sleep(0.01)
    heartbeat.stop()
    assert exits == [EXIT_PEER_LOST]


@pytest.mark.timeout(60)
def test_of_those_that_watch_each_other_one_says_why_and_all_end_alike(
    exits: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    store = HashStore()
    members = [Heartbeat(store, rank, 2, 5.0, watch=True, remedy="; do it again") for rank in (1, 0)]
    members[0].end(EXIT_INPUT, "x is wrong")
    while len(exits) < 2:  # the other one hears of it
        time.sleep(0.01)
    assert exits == [EXIT_INPUT] * 2
    assert capsys.readouterr().err == "error: x is wrong\n"
    for member in reversed(members):
        member.stop()


@pytest.mark.timeout(60)
def test_an_interrupt_is_one_of_the_first_process_once_but_not_in_epochs(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    store, outcomes = FolderStore(tmp_path), []
    store.set("stop", "2")
    heartbeat = Heartbeat(store, 0, 1, 0.2, watch=False)
    try:
        for interruptible in (False, True, True):
            try:
                heartbeat.interruptible = interruptible
                time.sleep(0.3)
                outcomes.append("left alone")
            except KeyboardInterrupt:
                outcomes.append("interrupted")
    finally:
        heartbeat.stop()
        signal.signal(signal.SIGINT, before)
    assert outcomes == ["left alone", "interrupted", "left alone"]
