"""What p and q look like on the wire: one interface, the exact size known before anything is sent.

A message is its payload and nothing else, no header: ceil(entries x bits / 8) bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ..admm.levels import FloatGrid, Levels


class Codec(ABC):
    """Between tensors of one shape and flat byte buffers, on whatever device the tensors are."""

    def __init__(self, shape: torch.Size | tuple[int, ...], like: Tensor) -> None:
        self.shape = torch.Size(shape)
        self.dtype = like.dtype
        self.device = like.device

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Size of a message."""

    @abstractmethod
    def encode(self, x: Tensor) -> Tensor:
        """The bytes of ``x``, a fresh flat uint8 tensor of ``nbytes`` entries."""

    @abstractmethod
    def decode(self, buffer: Tensor) -> Tensor:
        """The tensor that ``buffer`` holds; bit for bit what was encoded, if the codec's value set contains it."""

    def inbox(self) -> Tensor:
        """An empty buffer for one message."""
        return torch.empty(self.nbytes, dtype=torch.uint8, device=self.device)


class FloatCodec(Codec):
    """Floating-point numbers of a given type; the tensor's own type is lossless."""

    def __init__(self, shape: torch.Size | tuple[int, ...], like: Tensor, wire: torch.dtype | None = None) -> None:
        super().__init__(shape, like)
        self.wire = wire or like.dtype

    @property
    def nbytes(self) -> int:
        return self.shape.numel() * self.wire.itemsize

    def encode(self, x: Tensor) -> Tensor:
        return x.to(self.wire, copy=True, memory_format=torch.contiguous_format).view(-1).view(torch.uint8)

    def decode(self, buffer: Tensor) -> Tensor:
        return buffer.view(self.wire).view(self.shape).to(self.dtype)


class IndexCodec(Codec):
    """Level indices, packed to ceil(log2 |levels|) bits each, the first entry in the lowest bits."""

    def __init__(self, shape: torch.Size | tuple[int, ...], like: Tensor, levels: Levels) -> None:
        super().__init__(shape, like)
        self.levels = levels

    @property
    def nbytes(self) -> int:
        return -(-self.shape.numel() * self.levels.bits // 8)

    def encode(self, x: Tensor) -> Tensor:
        return pack(self.levels.index(x).view(-1), self.levels.bits)

    def decode(self, buffer: Tensor) -> Tensor:
        return self.levels.at(unpack(buffer, self.levels.bits, self.shape.numel())).view(self.shape)


def codec_for(shape: torch.Size | tuple[int, ...], like: Tensor, levels: Levels | FloatGrid | None) -> Codec:
    """The codec of a variable with these levels (None: not quantized)."""
    if isinstance(levels, Levels):
        return IndexCodec(shape, like, levels)
    return FloatCodec(shape, like, None if levels is None else levels.grid)


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
