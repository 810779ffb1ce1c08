from __future__ import annotations

import pytest
import torch

from benchmarks.bench import METHODS, Size, bench
from pdadmm_g.engine.precision import mm_bf16

TINY = Size(nodes=30, features=12, hidden=8, layers=4, classes=3, threads=1)


def test_every_method_is_measured_against_the_floor() -> None:
    rows = list(bench(TINY, seconds=0.0))
    assert [row["method"] for row in rows] == list(METHODS)
    assert rows[0]["x_floor"] == 1
    for row in rows:
        assert row["x_floor"] == pytest.approx(row["ms"] / rows[0]["ms"])
        assert row["fastest_ms"] <= row["ms"] <= row["slowest_ms"]


def test_bfloat16_products_round_the_factors_and_not_the_sum() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(20, 3000, generator=generator), torch.randn(3000, 10, generator=generator)
    exact = a.bfloat16().double() @ b.bfloat16().double()
    product = mm_bf16(a, b)
    assert product.dtype == torch.float32
    torch.testing.assert_close(product.double(), exact, rtol=1e-5, atol=1e-4)
    assert float((product.double() - a.double() @ b.double()).abs().max()) > 1e-3
