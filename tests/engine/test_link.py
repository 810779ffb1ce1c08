"""What a link says of its traffic: seconds packing and waiting, bytes and values."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from pdadmm_g.engine import link as link_module
from pdadmm_g.engine.link import Codec, Link


class Work:
    def __init__(self, clock: list[float]) -> None:
        self.clock = clock

    def wait(self) -> None:
        self.clock[0] += 5.0


def test_seconds_bytes_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes a second, each message five to arrive or depart."""
    clock = [100.0]
    posted: list[tuple[str, int, int]] = []

    def tick() -> float:
        clock[0] += 1.0
        return clock[0]

    def post(kind: str, message: torch.Tensor, peer: int) -> Work:
        posted.append((kind, message.nbytes, peer))
        return Work(clock)

    monkeypatch.setattr(link_module, "time", SimpleNamespace(perf_counter=tick))
    monkeypatch.setattr(link_module.dist, "isend", lambda message, peer, group: post("out", message, peer))
    monkeypatch.setattr(link_module.dist, "irecv", lambda message, peer, group: post("in", message, peer))
    codecs: list[Codec] = [Codec((4, 3), torch.zeros(()), None) for _ in range(2)]
    link = Link(7, *codecs)
    link.send(torch.ones(4, 3))
    link.expect()
    assert link.expecting
    link.receive()
    link.finish()
    assert not link.expecting
    assert posted == [("out", 48, 7), ("in", 48, 7)]
    traffic = link.take_traffic()
    # Packed once and unpacked once; one look after another, six with a message between them.
    assert (traffic.pack_seconds, traffic.wait_seconds) == (2.0, 12.0)
    assert (traffic.bytes_sent, traffic.values_sent) == (48, 12)
    assert link.take_traffic().bytes_sent == 0
