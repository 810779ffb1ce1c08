"""What p and q look like on the wire.

Unquantized they travel whole, a payload of known size and nothing else. Quantized, most entries keep their level from
one epoch to the next, so that after the first message only those travel that have changed. Nothing is lost by it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ..admm.levels import Levels


class Codec(ABC):
    """Between tensors of one shape and flat byte buffers, on whatever device the tensors are.

    One end of a connection encodes message after message, the other decodes them in that order.
    """

    #: Does the size of a message depend on what is in it?
    varies = False

    def __init__(self, shape: torch.Size | tuple[int, ...], like: Tensor) -> None:
        self.shape = torch.Size(shape)
        self.dtype = like.dtype
        self.device = like.device

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Size of a message, the most where it varies."""

    @abstractmethod
    def encode(self, x: Tensor) -> Tensor:
        """The bytes of ``x``, a fresh flat uint8 tensor."""

    @abstractmethod
    def decode(self, buffer: Tensor) -> Tensor:
        """The tensor that ``buffer`` holds; bit for bit what was encoded, if the codec's value set contains it."""

    def inbox(self, size: int | None = None) -> Tensor:
        """An empty buffer for one message, of the most that it can have unless a size is given."""
        return torch.empty(self.nbytes if size is None else size, dtype=torch.uint8, device=self.device)


class FloatCodec(Codec):
    """Floating-point numbers as they are."""

    @property
    def nbytes(self) -> int:
        return self.shape.numel() * self.dtype.itemsize

    def encode(self, x: Tensor) -> Tensor:
        return x.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)

    def decode(self, buffer: Tensor) -> Tensor:
        return buffer.view(self.dtype).view(self.shape)


class IndexCodec(Codec):
    """Level indices of ceil(log2 |levels|) bits each: all in the first message, then those that have changed."""

    varies = True

    def __init__(self, shape: torch.Size | tuple[int, ...], like: Tensor, levels: Levels) -> None:
        super().__init__(shape, like)
        self.levels = levels
        #: The indices of the last message.
        self._last: Tensor | None = None

    @property
    def nbytes(self) -> int:
        return -(-self.shape.numel() * self.levels.bits // 8)

    def encode(self, x: Tensor) -> Tensor:
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
        if len(buffer) == self.nbytes:
            self._last = unpack(buffer, self.levels.bits, self.shape.numel())
        else:
            assert self._last is not None
            apply_changes(self._last, buffer, self.levels.bits)
        return self.levels.at(self._last).view(self.shape)


def codec_for(shape: torch.Size | tuple[int, ...], like: Tensor, levels: Levels | None) -> Codec:
    """The codec of a variable with these levels (None: not quantized)."""
    return FloatCodec(shape, like) if levels is None else IndexCodec(shape, like, levels)


def changes(index: Tensor, changed: Tensor, bits: int) -> Tensor:
    """The indices that have ``changed``, as bytes.

    Which groups of eight entries have some, a bit each; which entries of these groups, likewise; and these entries.
    """
    index, changed = (torch.nn.functional.pad(x, (0, -len(x) % 8)) for x in (index, changed))
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
    """Non-negative integers below ``2**bits``, 1 <= bits <= 16, as ceil(len x bits / 8) bytes."""
    count = len(index)
    if bits == 8:
        return index.to(torch.uint8)
    if bits == 16:
        return torch.stack([index & 0xFF, index >> 8], dim=1).to(torch.uint8).view(-1)
    if bits in (1, 2, 4):
        per_byte = 8 // bits
        padded = index.to(torch.uint8)
        if count % per_byte:
            padded = torch.nn.functional.pad(padded, (0, -count % per_byte))
        padded = padded.view(-1, per_byte)
        packed = padded[:, 0].clone()
        for place in range(1, per_byte):
            packed |= padded[:, place] << (place * bits)
        return packed
    # Eight entries make `bits` whole bytes: spread them into single bits, then collect eight at a time.
    padded = torch.nn.functional.pad(index.to(torch.int32), (0, -count % 8))
    places = torch.arange(bits, dtype=torch.int32, device=index.device)
    spread = ((padded[:, None] >> places) & 1).to(torch.uint8).view(-1, 8)
    weights = 2 ** torch.arange(8, dtype=torch.uint8, device=index.device)
    packed = (spread * weights).sum(1, dtype=torch.uint8)
    return packed[: -(-count * bits // 8)].contiguous()


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """The inverse of :func:`pack`: ``count`` indices, as bytes where they fit and are whole parts of one."""
    if bits == 8:
        return packed
    if bits == 16:
        pairs = packed.view(-1, 2).to(torch.int64)
        return pairs[:, 0] | (pairs[:, 1] << 8)
    if bits in (1, 2, 4):
        unpacked = packed.new_empty(len(packed), 8 // bits)
        for place in range(8 // bits):
            torch.bitwise_and(packed >> (place * bits), 2**bits - 1, out=unpacked[:, place])
        return unpacked.view(-1)[:count]
    padded = torch.nn.functional.pad(packed, (0, -len(packed) % bits))
    shifts = torch.arange(8, dtype=torch.uint8, device=packed.device)
    spread = ((padded[:, None] >> shifts) & 1).view(-1, bits).to(torch.int64)
    weights = 2 ** torch.arange(bits, dtype=torch.int64, device=packed.device)
    return (spread * weights).sum(1)[:count]
