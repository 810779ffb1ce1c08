"""How exactly the large products of an epoch are computed, and the memory that they take beside the state.

Of the state only r may be as short as the factors of products are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, bfloat16

from ..admm.rows import Product, matmul
from ..admm.state import SMALL

Precision = Literal["fp32", "tf32", "bf16"]

#: Since torch 2.8 the result of a product may be in a wider type than its factors.
HAS_OUT_DTYPE = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 8)


def mm_bf16(a: Tensor, b: Tensor, /, *, out: Tensor | None = None) -> Tensor:
    """a b with both rounded to bfloat16, and sums in single precision, as the result is if there is no ``out``."""
    a, b = a.bfloat16(), b.bfloat16()
    if not a.is_cuda:
        result = matmul(a.float(), b.float())
        return result if out is None else out.copy_(result)
    if out is not None:
        return matmul(a, b, out=out)
    if not HAS_OUT_DTYPE:
        return matmul(a, b).float()
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
    whole = a.shape[-1] // ALIGNMENT * ALIGNMENT
    if (a.stride(-1) != 1 and b.stride(-2) != 1) or a.shape[-1] % 4 == 0 or not whole:
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


class Workspace:
    """Memory for factors and products, and the products of that precision.

    All layers share a few pieces of memory, one group of layers after the other:

    =========  =================================================================================  ======================
    piece      holds                                                                              until
    =========  =================================================================================  ======================
    wide       the product r W, then over it the gradient of the p-step                           the p-step has moved p
    wide       a copy of ``p`` (exact) or ``r`` (linearized) as the p-step left it, in the other  another group writes
               order of memory, where TF32 on a GPU is faster for it
    product    what the direction of the p-step does to r, then that of the W-step                the z-step has read it
    p, r       in bfloat16: r as the p-step finds it, for its first product alone (exact); a      another group writes
               copy of ``p`` as the p-step left it (linearized, which keeps r itself in bfloat16)
    =========  =================================================================================  ======================

    Where products are in bfloat16, all of it is.
    """

    def __init__(self, precision: Precision, *, exact: bool, like: Tensor) -> None:
        self.mm: Product = {"fp32": matmul, "tf32": mm_tf32, "bf16": mm_bf16}[precision]
        #: For what is factorised, which bfloat16 is too coarse for.
        self.gram_mm: Product = matmul if precision == "fp32" else mm_tf32
        self._precision, self._exact, self._like = precision, exact, like
        self._memory: dict[str, Tensor] = {}

    def write(self, piece: str, shape: tuple[int, ...]) -> Tensor:
        """Memory of that shape, for something new."""
        layers, rows, width = shape
        # Room for either order of memory, in which the rows or the columns begin at multiples of the alignment.
        size = layers * aligned(rows) * aligned(width)
        if piece not in self._memory or self._memory[piece].numel() < size:
            kind = bfloat16 if self._precision == "bf16" else None
            self._memory[piece] = self._like.new_empty(size, dtype=kind)
        return self._memory[piece][: layers * rows * width].view(layers, rows, width)

    def copy_of(self, name: Literal["p", "r"], x: Tensor) -> Tensor | None:
        """Where the p-step leaves a copy of ``x``, which it has just moved, for the W-step; None if it needs none."""
        if self._precision == "bf16":
            return None if self._exact or x.dtype is bfloat16 else self.write(name, x.shape)
        if self._precision == "tf32" and name == ("p" if self._exact else "r") and x.is_cuda and x.numel() > SMALL:
            layers, rows, width = x.shape
            return self.write("wide", (layers, width, aligned(rows)))[..., :rows].mT
        return None

    def rounded(self, name: Literal["p", "r"], x: Tensor) -> Tensor:
        """``x`` itself, or rounded anew where products are in bfloat16."""
        return x if self._precision != "bf16" or x.dtype is bfloat16 else self.write(name, x.shape).copy_(x)
