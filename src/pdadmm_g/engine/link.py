"""One end of the boundary between two workers: what p and q look like as messages, and how they are exchanged.

Unquantized they travel whole, a payload of known size and nothing else. Quantized, most entries keep their level from
one epoch to the next, so that after the first message only those travel that have changed. Nothing is lost by it. A
message whose size varies has it in front, in a message of its own.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from ..admm.levels import Levels
from .team import Counted, talking_to, to_travel


class Codec:
    """Between tensors shaped ``like`` one and flat byte buffers, on whatever device the tensors are.

    One end of a connection encodes message after message, the other decodes them in that order. Without ``levels``
    numbers travel as they are; else the indices of their levels, of ceil(log2 |levels|) bits each: all in the first
    message, then those that have changed.
    """

    def __init__(self, like: Tensor, levels: Levels | None) -> None:
        self.shape, self.dtype, self.device, self.levels = like.shape, like.dtype, like.device, levels
        #: Size of a message, the most where it varies.
        self.nbytes = like.nbytes if levels is None else -(-like.numel() * levels.bits // 8)
        #: The indices of the last message.
        self._last: Tensor | None = None

    def encode(self, x: Tensor) -> Tensor:
        """The bytes of ``x``, a fresh flat uint8 tensor."""
        if self.levels is None:
            return x.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)
        last, self._last = self._last, self.levels.index(x).view(-1)
        if last is not None:
            changed = self._last != last
            # More take longer to pack than all of them, and save little.
            if int(changed.count_nonzero()) <= len(changed) // 8:
                message = changes(self._last, changed, self.levels.bits)
                if len(message) < self.nbytes:
                    return message
        return pack(self._last, self.levels.bits)

    def decode(self, buffer: Tensor) -> Tensor:
        """The tensor that ``buffer`` holds; bit for bit what was encoded, if its values are levels."""
        if self.levels is None:
            return buffer.view(self.dtype).view(self.shape)
        if len(buffer) == self.nbytes:
            self._last = unpack(buffer, self.levels.bits, self.shape.numel())
        else:
            assert self._last is not None
            apply_changes(self._last, buffer, self.levels.bits)
        return self.levels.at(self._last).view(self.shape)

    def inbox(self, size: int | None = None) -> Tensor:
        """An empty buffer for one message, of the most that it can have unless a size is given."""
        return torch.empty(self.nbytes if size is None else size, dtype=torch.uint8, device=self.device)


def changes(index: Tensor, changed: Tensor, bits: int) -> Tensor:
    """The indices that have ``changed``, as bytes.

    Which groups of eight entries have some, a bit each; which entries of these groups have, a bit each; and these
    entries.
    """
    index, changed = (pad(x, (0, -len(x) % 8)) for x in (index, changed))
    some = changed.view(torch.int64) != 0  # eight at a time
    entries = changed.view(-1, 8)[some]
    return torch.cat([pack(some, 1), pack(entries.view(-1), 1), pack(index.view(-1, 8)[some][entries], bits)])


def apply_changes(index: Tensor, message: Tensor, bits: int) -> None:
    """The inverse of :func:`changes`, in place."""
    count = -(-len(index) // 8)
    marks, rest = message.tensor_split([-(-count // 8)])
    groups = unpack(marks, 1, count).nonzero()
    marks, rest = rest.tensor_split([len(groups)])
    entries = unpack(marks, 1, 8 * len(groups)).view(-1, 8).bool()
    places = (8 * groups + torch.arange(8, device=index.device))[entries]
    index[places] = unpack(rest, bits, len(places)).to(index.dtype)


def pack(index: Tensor, bits: int) -> Tensor:
    """Non-negative integers below ``2**bits`` as ceil(len x bits / 8) bytes, little-endian; of more than a byte each,
    all low bytes before the rest.
    """
    if bits >= 8:
        low = index.to(torch.uint8)
        return low if bits == 8 else torch.cat([low, pack(index >> 8, bits - 8)])
    if 8 % bits == 0:
        parts = pad(index.to(torch.uint8), (0, -len(index) % (8 // bits))).view(-1, 8 // bits)
        packed = parts[:, 0].clone()
        for place in range(1, 8 // bits):
            packed |= parts[:, place] << (place * bits)
        return packed
    # Eight entries make one word, of which the first ``bits`` bytes are theirs.
    entries = pad(index, (0, -len(index) % 8)).view(-1, 8).long()
    words = (entries << (bits * torch.arange(8, device=index.device))).sum(1)
    return words.view(torch.uint8).view(-1, 8)[:, :bits].reshape(-1)[: -(-len(index) * bits // 8)]


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """The inverse of :func:`pack`: ``count`` indices, as bytes where they fit."""
    if bits == 8:
        return packed
    if bits > 8:
        low, high = packed.tensor_split([count])
        return low.long() | unpack(high, bits - 8, count).long() << 8
    if 8 % bits == 0:
        parts = packed.new_empty(len(packed), 8 // bits)
        for place in range(8 // bits):
            torch.bitwise_and(packed >> (place * bits), 2**bits - 1, out=parts[:, place])
        return parts.view(-1)[:count]
    groups = pad(packed, (0, -len(packed) % bits)).view(-1, bits)
    words = pad(groups, (0, 8 - bits)).view(torch.int64)
    entries = words >> (bits * torch.arange(8, device=packed.device)) & (2**bits - 1)
    return entries.view(-1)[:count].to(torch.uint8)


class Link(Counted):
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
        super().__init__()
        self._inbox: Tensor | None = None
        self._arrival: dist.Work | None = None
        # The transport reads a buffer until the work is done: it must stay alive that long.
        self._departures: list[tuple[dist.Work | None, Tensor]] = []

    @property
    def expecting(self) -> bool:
        """Is a message on its way here?"""
        return self._inbox is not None

    def expect(self) -> None:
        """Post the receive of the neighbour's next message, or of its size."""
        assert self._inbox is None
        self._post(_size_of(self.incoming) if self.incoming.levels else self.incoming.inbox())

    def receive(self) -> Tensor:
        """Wait for the message that is expected, and unpack it."""
        assert self._inbox is not None
        self._wait(self._arrival)
        if self.incoming.levels:
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
        parts = [_size_of(self.outgoing, len(message)), message] if self.outgoing.levels else [message]
        parts = [to_travel(part) for part in parts]
        self.traffic.pack_seconds += time.perf_counter() - start
        self.traffic.bytes_sent += sum(part.nbytes for part in parts)
        self.traffic.values_sent += x.numel()
        with talking_to(self.peer):
            self._departures = [(dist.isend(part, self.peer, group=self.by[0]), part) for part in parts]

    def finish(self) -> None:
        """Wait until the last message is out."""
        for departure, _ in self._departures:
            self._wait(departure)
        self._departures = []

    def _post(self, inbox: Tensor) -> None:
        self._inbox = to_travel(inbox)
        with talking_to(self.peer):
            self._arrival = dist.irecv(self._inbox, self.peer, group=self.by[1])

    def _wait(self, work: dist.Work | None) -> None:
        if work is not None:
            start = time.perf_counter()
            with talking_to(self.peer):
                work.wait()
            self.traffic.wait_seconds += time.perf_counter() - start


def _size_of(codec: Codec, size: int = 0) -> Tensor:
    """A message that says how long the next one is."""
    return torch.tensor([size], device=codec.device)
