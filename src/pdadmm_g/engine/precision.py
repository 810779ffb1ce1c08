"""How exactly the large products of an epoch are computed. The state is always kept in full precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from ..admm.updates import Product

Precision = Literal["fp32", "tf32", "bf16"]


def product(precision: Precision) -> Product:
    """The matrix product for the steps of an epoch."""
    return mm_bf16 if precision == "bf16" else torch.mm


def mm_bf16(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """a b with both rounded to bfloat16, and sums in single precision. The result is new: ``out`` is not used."""
    a, b = a.bfloat16(), b.bfloat16()
    return torch.mm(a, b, out_dtype=torch.float32) if a.is_cuda else torch.mm(a.float(), b.float())


@contextmanager
def tensor_cores(precision: Precision) -> Iterator[None]:
    """Let products of single precision round their factors to TF32 on a GPU, or forbid it, then as before."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
