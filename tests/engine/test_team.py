"""What processes tell each other: errors that all raise, sums over rows, and whom a line has lost."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from helpers.threads import ThreadLine, on_threads
from pdadmm_g.engine.team import SHORT, PeerLostError, ProcessLine, RowSums, agreed, same
from pdadmm_g.errors import InputError


@pytest.mark.parametrize(("rank", "size", "peer"), [(0, 2, 1), (1, 2, 0), (1, 3, -1)])
def test_of_two_the_other_one_is_lost(monkeypatch: pytest.MonkeyPatch, rank: int, size: int, peer: int) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("connection closed by peer")

    monkeypatch.setattr(dist, "get_rank", lambda group: rank)
    monkeypatch.setattr(dist, "get_world_size", lambda group: size)
    for name in ("all_reduce", "all_gather", "broadcast"):
        monkeypatch.setattr(dist, name, fail)
    line, x = ProcessLine(), torch.zeros(1)
    for call in (
        lambda: line.sum(x),
        lambda: line.gather(x),
        lambda: line.concat(x, [1] * size),
        lambda: line.broadcast(x, 0),
    ):
        with pytest.raises(PeerLostError) as caught:
            call()
        assert caught.value.peer == peer


def test_all_raise_what_the_first_to_fail_found() -> None:
    def check(line: ThreadLine) -> str:
        def action() -> int:
            if line.rank in (1, 2):
                raise InputError(f"shard-{line.rank + 1}-of-4: is missing é" + "." * 600)
            return line.rank

        with pytest.raises(InputError) as caught:
            agreed(line, action)
        return str(caught.value)

    messages = on_threads(4, check)
    assert messages == [messages[0]] * 4
    assert messages[0].startswith("shard-2-of-4: is missing é...")


def test_a_process_that_sees_another_file_is_named_by_all() -> None:
    def check(line: ThreadLine) -> str:
        same(line, "00ff", "F/description.json")
        with pytest.raises(InputError) as caught:
            same(line, "00ff" if line.rank != 2 else "00fe", "F/description.json")
        return str(caught.value)

    expected = "F/description.json: process 2 sees another file than process 0: give all the same folder"
    assert on_threads(3, check) == [expected] * 3


@pytest.mark.parametrize("size", [SHORT, SHORT + 2])
def test_short_sums_are_gathered_and_long_ones_go_round(size: int) -> None:
    """To two others, or twice two thirds of it around a ring."""

    def check(line: ThreadLine) -> int:
        part = torch.arange(size, dtype=torch.float32)
        assert torch.equal(RowSums(line).sum(part.clone()), 3 * part)  # type: ignore[arg-type]
        assert line.traffic.wait_seconds > 0
        return line.traffic.bytes_sent

    assert on_threads(3, check) == [2 * 4 * size if size == SHORT else 2 * 4 * size * 2 // 3] * 3
