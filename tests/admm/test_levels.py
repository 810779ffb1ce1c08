from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pdadmm_g.admm.levels import PAPER_LEVELS, Levels

finite = st.floats(-100, 100, allow_subnormal=False)


def nearest(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (x[:, None] - values).abs().min(1).values


@given(st.lists(finite, min_size=2, max_size=40, unique=True), st.lists(finite, min_size=1, max_size=50))
def test_projection_is_the_nearest_level(levels: list[float], points: list[float]) -> None:
    values = torch.tensor(sorted(levels), dtype=torch.float64)
    delta = Levels(values)
    x = torch.tensor(points, dtype=torch.float64)
    projected = delta.project(x)
    assert torch.isin(projected, values).all()
    torch.testing.assert_close((projected - x).abs(), nearest(values, x), rtol=1e-12, atol=1e-12)
    assert torch.equal(delta.project(projected), projected)
    # Neighbouring floats are told apart.
    values = torch.tensor([0.0, 99.99999999999999, 100.0], dtype=torch.float64)
    assert torch.equal(Levels(values).project(values), values)


@given(st.integers(1, 16), st.floats(-50, 0), st.floats(0, 50), st.integers(0, 1000))
def test_calibrated_levels_cover_the_activations_and_keep_zero(bits: int, low: float, high: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = low + (high - low) * torch.rand(200, generator=generator)
    delta = Levels.calibrated(x, bits)
    assert len(delta) == 2**bits
    assert delta.bits == bits
    assert (delta.values == 0).any()
    step = float(delta.values[1] - delta.values[0])
    # Zero is snapped to a level, which may cost the range half a step at either end.
    assert float(delta.values[0]) <= min(float(x.min()), 0) + 0.51 * step
    assert float(delta.values[-1]) >= max(float(x.max()), 0) - 0.51 * step
    if float(x.abs().max()) > 1e-6:
        torch.testing.assert_close((delta.project(x) - x).abs(), nearest(delta.values, x), rtol=0, atol=1e-2 * step)


@pytest.mark.parametrize(("bits", "top"), [(1, 2.0), (2, 2.0), (3, 3.0), (8, 3.0)])
def test_calibrated_levels_leave_room_to_grow(bits: int, top: float) -> None:
    """Half of the range more, except on so few levels that resolution is worth more."""
    delta = Levels.calibrated(torch.tensor([0.0, 0.5, 2.0]), bits)
    assert [float(delta.values[0]), float(delta.values[-1])] == pytest.approx([0.0, top])


def test_paper_levels() -> None:
    delta = Levels(torch.tensor(PAPER_LEVELS))
    assert delta.values.tolist() == [float(i) for i in range(-1, 21)]
    assert delta.bits == 5
    x = torch.tensor([-7.0, -0.4, 0.6, 19.4, 99.0])
    assert delta.project(x).tolist() == [-1.0, 0.0, 1.0, 19.0, 20.0]
    assert delta.index(x).tolist() == [0, 1, 2, 20, 21]


@pytest.mark.parametrize("values", [[1.0], [1.0, 0.0], [0.0, 0.0], [0.0, float("nan")], [0.0, float("inf")]])
def test_bad_levels_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="level"):
        Levels(torch.tensor(values))


@pytest.mark.parametrize(
    "values",
    [[0.0, 1.0, 2.0], [0.5, 1.5, 2.5], [0.0, 1.0, 5.0], [step + 0.5 for step in range(300)]],
    ids=["uniform", "uniform without zero", "arbitrary", "too many for bytes"],
)
def test_nan_stays_nan(values: list[float]) -> None:
    """Its index is that of some level, so that it can be looked up."""
    delta, x = Levels(torch.tensor(values)), torch.tensor([0.2, float("nan"), 9.0])
    assert delta.project(x).isnan().tolist() == [False, True, False]
    assert torch.isin(delta.at(delta.index(x)), delta.values).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_range_below_full_precision_is_none(dtype: torch.dtype) -> None:
    """Its step could be zero, and the nearest level to zero none of them."""
    tiny = torch.finfo(dtype).tiny
    for low in (tiny, tiny / 2, 2**-20 * tiny):
        delta = Levels.calibrated(torch.tensor([0.0, -low], dtype=dtype), 3)
        assert (delta.values == 0).any()
        assert (float(delta.values[0]) == 0.0) is (low < tiny)
