from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("solver", ["linearized", "exact"])
def test_r_is_kept_short_where_only_products_in_bfloat16_read_it(make_chain, solver: str, precision: str) -> None:
    """The kernel form of the exact W-step reads it as it is."""
    worker = make_chain(solver=solver, precision=precision, dtype=torch.float32)
    for _ in range(2):
        kinds = {layer.r.dtype for layer in worker.layers}
        assert kinds == {torch.bfloat16 if (solver, precision) == ("linearized", "bf16") else torch.float32}
        worker.epoch()
