"""What stands on a board, where anybody may have written it, and what is said of those who are silent."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from torch.distributed import HashStore

from pdadmm_g.engine import watchdog
from pdadmm_g.engine.team import Stop
from pdadmm_g.engine.watchdog import Beats, WatchedTeam

BEAT = {"epoch": 13, "layers": [4, 7], "chain": [1, 2], "shard": [0, 1]}


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe",
        b"",
        b"{",
        b"[" * 100_000,
        b"[1, 2]",
        b'{"epoch": 3}',
        json.dumps(BEAT | {"layers": [1]}).encode(),
        json.dumps(BEAT | {"epoch": "13"}).encode(),
        json.dumps(BEAT | {"shard": [0, 10**30]}).encode(),
    ],
)
def test_a_beat_that_no_worker_wrote_says_nothing(text: bytes) -> None:
    board = HashStore()
    board.set("beat/0", text)
    beats = Beats(board, 1)
    beats.look()
    assert beats.describe(0) == "worker 0, not yet in an epoch,"


@pytest.mark.parametrize(
    ("text", "stop"), [(b"2", Stop.INTERRUPT), (b"", Stop.NOBODY), (b"7", Stop.NOBODY), (b"\xff", Stop.NOBODY)]
)
def test_a_request_that_nobody_here_makes_is_none(text: bytes, stop: Stop) -> None:
    board = HashStore()
    board.set("stop", text)
    member = SimpleNamespace(rank=0, _board=board)
    assert WatchedTeam.stop_requested(member) is stop  # type: ignore[arg-type]


def test_silence_is_told_with_the_seconds_that_it_lasted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that never was there has had the time that starting may take, not the timeout of the others."""
    board, now = HashStore(), [0.0]
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: now[0])
    board.set("beat/1", json.dumps(BEAT))
    beats = Beats(board, 2)
    beats.look()
    now[0] = 4.0
    assert beats.silent(3.0) == {1: "worker 1 (layers 5-7), last seen in epoch 13, has not answered for 3 s"}
    board.set("beat/1", json.dumps(BEAT | {"epoch": 14}))
    now[0] = 121.0
    beats.look()
    assert beats.silent(3.0) == {0: "worker 0, not yet in an epoch, has not answered for 120 s"}
    assert beats.longest_silent(1.0) == 0
