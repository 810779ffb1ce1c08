"""One end of the boundary between two workers: sends one variable of it, receives the other.

A message whose size varies has it in front, in a message of its own.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import Tensor

from .codec import Codec
from .team import PeerLostError, Traffic, to_travel


class Link:
    """Exchanges p and q with one neighbour. Receives are posted early and waited for late.

    Between two neighbours the messages alternate, p then q, and both ends post them in that order. So nothing can
    deadlock, also on NCCL, where the operations of a pair of ranks run in the order in which they were posted.
    p and q go ``by`` groups of their own, those of outgoing and incoming messages: gloo tells a sender that somebody
    waits, and on a slow connection that must not queue behind the long message that goes the same way.
    """

    def __init__(
        self,
        peer: int,
        outgoing: Codec,
        incoming: Codec,
        by: tuple[dist.ProcessGroup | None, dist.ProcessGroup | None] = (None, None),
    ) -> None:
        self.peer = peer
        self.by = by
        self.outgoing = outgoing
        self.incoming = incoming
        self.traffic = Traffic()
        self._inbox: Tensor | None = None
        self._arrival: dist.Work | None = None
        # The transport reads the buffer until the work is done: it must stay alive that long.
        self._outbox: list[Tensor] = []
        self._departures: list[dist.Work | None] = []

    @property
    def expecting(self) -> bool:
        """Is a message on its way here?"""
        return self._inbox is not None

    def expect(self) -> None:
        """Post the receive of the neighbour's next message, or of its size."""
        assert self._inbox is None
        self._post(_size_of(self.incoming) if self.incoming.varies else self.incoming.inbox())

    def receive(self) -> Tensor:
        """Wait for the message that is expected, and unpack it."""
        assert self._inbox is not None
        self._wait(self._arrival)
        if self.incoming.varies:
            self._post(self.incoming.inbox(int(self._inbox)))
            self._wait(self._arrival)
        start = time.perf_counter()
        value = self.incoming.decode(self._inbox.to(self.incoming.device))
        self.traffic.pack_seconds += time.perf_counter() - start
        self._inbox = None
        return value

    def send(self, x: Tensor) -> None:
        """Pack ``x`` and hand it to the transport."""
        self.finish()
        start = time.perf_counter()
        message = self.outgoing.encode(x)
        parts = [_size_of(self.outgoing, len(message)), message] if self.outgoing.varies else [message]
        self._outbox = [to_travel(part) for part in parts]
        self.traffic.pack_seconds += time.perf_counter() - start
        self.traffic.bytes_sent += sum(part.nbytes for part in parts)
        self.traffic.values_sent += x.numel()
        for part in self._outbox:
            self._departures.append(self._guard(lambda out: dist.isend(out, self.peer, group=self.by[0]), part))

    def take_traffic(self) -> Traffic:
        """The traffic since the last call."""
        traffic, self.traffic = self.traffic, Traffic()
        return traffic

    def finish(self) -> None:
        """Wait until the last message is out."""
        for departure in self._departures:
            self._wait(departure)
        self._departures = []

    def _post(self, inbox: Tensor) -> None:
        self._inbox = to_travel(inbox)
        self._arrival = self._guard(lambda inbox: dist.irecv(inbox, self.peer, group=self.by[1]), self._inbox)

    def _wait(self, work: dist.Work | None) -> None:
        if work is not None:
            start = time.perf_counter()
            try:
                work.wait()
            except RuntimeError as error:
                raise PeerLostError(self.peer) from error
            self.traffic.wait_seconds += time.perf_counter() - start

    def _guard(self, post, buffer: Tensor) -> dist.Work | None:  # type: ignore[no-untyped-def]
        try:
            return post(buffer)
        except RuntimeError as error:
            raise PeerLostError(self.peer) from error


def _size_of(codec: Codec, size: int = 0) -> Tensor:
    """A message that says how long the next one is."""
    return torch.tensor([size], device=codec.device)
