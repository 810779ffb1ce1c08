"""What a line of processes says of those that it loses, in one process."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from pdadmm_g.engine.team import PeerLostError, ProcessLine


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
        lambda: line.start_gather(x)(),
        lambda: line.concat(x, [1] * size),
        lambda: line.broadcast(x, 0),
    ):
        with pytest.raises(PeerLostError) as caught:
            call()
        assert caught.value.peer == peer
