"""Messages between neighbours: what p and q look like in them. Traffic: test_parallel."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pdadmm_g.admm.levels import Levels
from pdadmm_g.engine.link import Codec, apply_changes, changes, pack, unpack

devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", devices)
@given(bits=st.integers(1, 16), count=st.integers(1, 300), seed=st.integers(0, 10**6))
def test_packing_round_trip(device: str, bits: int, count: int, seed: int) -> None:
    index = torch.randint(2**bits, (count,), generator=torch.Generator().manual_seed(seed)).to(device)
    index[0], index[-1] = 0, 2**bits - 1
    packed = pack(index, bits)
    assert packed.dtype == torch.uint8
    assert len(packed) == -(-count * bits // 8)
    assert torch.equal(unpack(packed, bits, count), index)


@pytest.mark.parametrize("device", devices)
@given(
    bits=st.integers(1, 16), count=st.integers(1, 300), share=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    seed=st.integers(0, 10**6),
)  # fmt: skip
def test_changes_round_trip(device: str, bits: int, count: int, share: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    last, new = (torch.randint(2**bits, (count,), generator=generator).to(device) for _ in range(2))
    index = torch.where(torch.rand(count, generator=generator).to(device) < share, new, last)
    message = changes(index, index != last, bits)
    apply_changes(last, message, bits)
    assert torch.equal(last, index)


@pytest.mark.parametrize("device", devices)
@given(bits=st.integers(1, 16), seed=st.integers(0, 10**6))
def test_message_after_message_comes_back_bit_for_bit(device: str, bits: int, seed: int) -> None:
    """All entries, a few that changed, many, none, and all."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(40, 10, generator=generator).to(device)
    levels = Levels.calibrated(x, bits)
    sender, receiver = (Codec(x, levels) for _ in range(2))
    sizes = []
    for share in (1.0, 0.02, 0.5, 0.0, 1.0):
        y = 2 * torch.randn(40, 10, generator=generator).to(device)
        x = levels.project(torch.where(torch.rand(40, 10, generator=generator).to(device) < share, y, x))
        message = sender.encode(x)
        sizes.append(len(message))
        assert torch.equal(receiver.decode(message), x)
    whole = sender.nbytes
    assert sizes[0] == whole
    assert all(size <= whole for size in sizes)
    # Nothing has changed: a bit for each group of eight.
    assert sizes[3] == 7


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=70, unique=True), st.integers(0, 1000))
def test_arbitrary_levels_come_back_bit_for_bit(values: list[float], seed: int) -> None:
    levels = Levels(torch.tensor(sorted(values), dtype=torch.float64))
    x = levels.project(50 * torch.randn(7, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    codec = Codec(x, levels)
    assert codec.nbytes == -(-35 * (len(values) - 1).bit_length() // 8)
    assert torch.equal(codec.decode(codec.encode(x)), x)


@pytest.mark.parametrize("device", devices)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unquantized_is_lossless(device: str, dtype: torch.dtype) -> None:
    x = torch.randn(5, 3, dtype=dtype, device=device)
    x[0, 0], x[1, 1], x[2, 2] = float("nan"), float("inf"), -0.0
    codec = Codec(x, None)
    assert codec.nbytes == 15 * dtype.itemsize
    assert torch.equal(codec.encode(codec.decode(codec.encode(x))), codec.encode(x))
    # A strided view encodes like its contiguous copy.
    assert torch.equal(Codec(x.T, None).encode(x.T), Codec(x.T, None).encode(x.T.contiguous()))
