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
Variable = Literal["p", "r"]


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

    def __init__(self, precision: Precision, solver: Literal["linearized", "exact"], like: Tensor | None) -> None:
        self.mm: Product = {"fp32": matmul, "tf32": mm_tf32, "bf16": mm_bf16}[precision]
        #: For what is factorised, which bfloat16 is too coarse for.
        self.gram_mm: Product = matmul if precision == "fp32" else mm_tf32
        self._precision = precision
        self._exact = solver == "exact"
        self._like = like
        self._memory: dict[str, Tensor] = {}
        #: The copies that are still there, by the piece of memory: of which variable and group.
        self._copies: dict[str, tuple[Variable, int, Tensor]] = {}

    def write(self, piece: str, shape: tuple[int, ...]) -> Tensor:
        """Memory of that shape, for something new."""
        self._copies.pop(piece, None)
        layers, rows, width = shape
        # Room for either order of memory, in which the rows or the columns begin at multiples of the alignment.
        memory, size = self._memory.get(piece), layers * aligned(rows) * aligned(width)
        if memory is None or memory.numel() < size:
            assert self._like is not None
            kind = bfloat16 if self._precision == "bf16" else None
            memory = self._memory[piece] = self._like.new_empty(size, dtype=kind)
        return memory[: layers * rows * width].view(layers, rows, width)

    def copy_of(self, name: Variable, group: int, x: Tensor) -> Tensor | None:
        """Where the p-step leaves a copy of ``x``, which it has just moved, for the W-step; None if it needs none."""
        if x.dtype is bfloat16:
            return None  # it is as a product wants it
        if self._precision == "bf16" and not self._exact:
            piece: str = name
            copy = self.write(name, x.shape)
        elif self._precision == "tf32" and name == ("p" if self._exact else "r") and x.is_cuda and x.numel() > SMALL:
            piece, (layers, rows, width) = "wide", x.shape
            copy = self.write(piece, (layers, width, aligned(rows)))[..., :rows].mT
        else:
            return None
        self._copies[piece] = (name, group, copy)
        return copy

    def kept_copy(self, name: Variable, group: int) -> Tensor | None:
        """The copy that the group's p-step left, if it left one and nothing has been written over it."""
        return next((copy for kind, of, copy in self._copies.values() if (kind, of) == (name, group)), None)

    def factor(self, name: Variable, group: int, x: Tensor) -> Tensor:
        """``x`` as a factor of the W-step's products: the copy that is there, or else as for the p-step."""
        copy = self.kept_copy(name, group)
        return self.rounded(name, x) if copy is None else copy

    def rounded(self, name: Variable, x: Tensor) -> Tensor:
        """``x`` itself, or rounded anew where products are in bfloat16."""
        return x if self._precision != "bf16" or x.dtype is bfloat16 else self.write(name, x.shape).copy_(x)
