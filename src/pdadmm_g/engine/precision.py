"""How exactly the large products of an epoch are computed. Of the state only r may be as short as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from ..admm.state import SMALL
from ..admm.sums import Product, matmul

Precision = Literal["fp32", "tf32", "bf16"]


def product(precision: Precision) -> Product:
    """The matrix product for the steps of an epoch."""
    return {"fp32": matmul, "tf32": mm_tf32, "bf16": mm_bf16}[precision]


#: Since torch 2.8 the result of a product may be in a wider type than its factors.
HAS_OUT_DTYPE = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 8)


def mm_bf16(a: Tensor, b: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """a b with both rounded to bfloat16, and sums in single precision, as the result is if there is no ``out``."""
    a, b = a.bfloat16(), b.bfloat16()
    if not a.is_cuda:
        result = matmul(a.float(), b.float())
        return result if out is None else out.copy_(result)
    if out is not None or not HAS_OUT_DTYPE:
        return matmul(a, b, out=out) if out is not None else matmul(a, b).float()
    if a.ndim == 3 and len(a) == 1:
        return torch.mm(a[0], b[0], out_dtype=torch.float32)[None]
    return (torch.mm if a.ndim == 2 else torch.bmm)(a, b, out_dtype=torch.float32)


def add_product(x: Tensor, a: Tensor, b: Tensor, *, alpha: float) -> None:
    """x + alpha a b over x, of one layer: the factors rounded to bfloat16, as x is, and sums in single precision."""
    a, b = a.bfloat16(), b.bfloat16()
    if x.is_cuda:
        x[0].addmm_(a[0], b[0], alpha=alpha)
    else:
        x.copy_(torch.add(x.float(), matmul(a.float(), b.float()), alpha=alpha))


def mm_tf32(a: Tensor, b: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """a b on tensor cores, which are fastest where both factors are contiguous along the dimension that is summed over.

    So the smaller factor of a large product is copied into that order. And they read 16 bytes at a time: where the sum
    runs over an odd number of nodes, the last few are added later.
    """
    if not a.is_cuda or max(a.numel(), b.numel()) <= SMALL:
        return matmul(a, b, out=out)
    if a.stride(-1) == 1 and b.stride(-1) == 1 and b.numel() < a.numel():
        b = b.mT.contiguous().mT
    summed = a.shape[-1]
    whole = summed - summed % ALIGNMENT
    in_order = a.stride(-1) == 1 or b.stride(-2) == 1
    if not in_order or summed % 4 == 0 or not whole:
        return matmul(a, b, out=out)
    result = matmul(a[..., :whole], b[..., :whole, :], out=out)
    return result.add_(matmul(a[..., whole:], b[..., whole:, :]))


#: Rows in memory should begin at multiples of so many values.
ALIGNMENT = 32


def aligned(size: int) -> int:
    """The next multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


@contextmanager
def tensor_cores(precision: Precision) -> Iterator[None]:
    """Let products of single precision round their factors to TF32 on a GPU, or forbid it, then as before.

    With bfloat16 they are those that it is too coarse for.
    """
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
