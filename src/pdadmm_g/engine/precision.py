"""How exactly the large products of an epoch are computed. The state is always kept in full precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from ..admm.updates import Product, matmul

Precision = Literal["fp32", "tf32", "bf16"]


def product(precision: Precision) -> Product:
    """The matrix product for the steps of an epoch."""
    return {"fp32": matmul, "tf32": mm_tf32, "bf16": mm_bf16}[precision]


def factors(precision: Precision) -> torch.dtype | None:
    """The type in which factors and results of those products are kept while a step needs them; None: the state's."""
    return torch.bfloat16 if precision == "bf16" else None


def mm_bf16(a: Tensor, b: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """a b with both rounded to bfloat16, sums in single precision. The result is in single precision too without out."""
    a, b = a.bfloat16(), b.bfloat16()
    if not a.is_cuda:
        result = matmul(a.float(), b.float())
        return result if out is None else out.copy_(result)
    if out is not None:
        return matmul(a, b, out=out)
    if a.ndim == 3 and len(a) == 1:
        return torch.mm(a[0], b[0], out_dtype=torch.float32)[None]
    return (torch.mm if a.ndim == 2 else torch.bmm)(a, b, out_dtype=torch.float32)


def mm_tf32(a: Tensor, b: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """a b on tensor cores, which are fastest where both factors are contiguous along the dimension that is summed over.

    A small b is copied into that order. If neither is in it, the transposed product is faster.
    """
    if not a.is_cuda or (a.stride(-1) != 1 and b.stride(-1) != 1):
        return matmul(a, b, out=out)
    if a.stride(-1) != 1:
        return matmul(b.mT, a.mT).mT.contiguous()
    if b.stride(-1) == 1 and b.numel() < a.numel():
        b = b.mT.contiguous().mT
    return matmul(a, b, out=out)


@contextmanager
def tensor_cores(precision: Precision) -> Iterator[None]:
    """Let products of single precision round their factors to TF32 on a GPU, or forbid it, then as before."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
