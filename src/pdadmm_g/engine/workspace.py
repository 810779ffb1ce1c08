"""The memory of a worker beside its state, and the precision of its products.

All layers share a few pieces of memory, one group of layers after the other:

=========  ==================================================================================  =======================
piece      holds                                                                               until
=========  ==================================================================================  =======================
wide       ``g``: the product r W, then over it the gradient of the p-step                     the p-step has moved p
wide       a copy of ``p`` (exact) or ``r`` (linearized) as the p-step left it, in the other   the group is done
           order of memory, where TF32 on a GPU is faster for it
product    ``gWt``: what the direction of the p-step does to r                                 the p-step has moved r
product    ``pGt``: what the direction of the W-step does to r                                 the group is done
p, r       in bfloat16: r as the p-step finds it, for its first product alone (exact); a copy  the group is done
           of ``p`` as the p-step left it (linearized, which keeps r itself in bfloat16)
=========  ==================================================================================  =======================

Where products are in bfloat16, all of it is. What a piece held before is gone as soon as it is written again; who reads
says what it expects, and of which group.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, bfloat16

from ..admm.state import SMALL
from ..admm.sums import Product, matmul
from .precision import Precision, aligned, mm_tf32, product

Computed = Literal["g", "gWt", "pGt"]
Variable = Literal["p", "r"]
#: The piece of memory of what is not a copy.
PIECES: dict[Computed, str] = {"g": "wide", "gWt": "product", "pGt": "product"}


class Workspace:
    """Memory for factors and products, which knows what it holds, and the products of that precision."""

    def __init__(self, precision: Precision, solver: Literal["linearized", "exact"], like: Tensor | None) -> None:
        self.mm = product(precision)
        #: For what is factorised, which bfloat16 is too coarse for.
        self.gram_mm: Product = matmul if precision == "fp32" else mm_tf32
        self._precision = precision
        self._exact = solver == "exact"
        self._like = like
        self._memory: dict[str, Tensor] = {}
        #: What each piece holds: name, group and the tensor that was handed out for it.
        self._holds: dict[str, tuple[Computed | Variable, int, Tensor]] = {}

    def write(self, name: Computed, group: int, shape: tuple[int, ...]) -> Tensor:
        """Memory of that shape for what a group is about to compute."""
        return self._hold(PIECES[name], name, group, self._view(PIECES[name], shape))

    def adopt(self, name: Computed, group: int, x: Tensor) -> Tensor:
        """What the group computes is in memory of its own."""
        return self._hold(PIECES[name], name, group, x)

    def copy_of(self, name: Variable, group: int, x: Tensor) -> Tensor | None:
        """Where the p-step leaves a copy of ``x``, which it has just moved, for the W-step; None if it needs none."""
        if x.dtype is bfloat16:
            return None  # it is as a product wants it
        if self._precision == "bf16" and not self._exact:
            return self._hold(name, name, group, self._view(name, x.shape))
        turned = "p" if self._exact else "r"
        if self._precision == "tf32" and name == turned and x.is_cuda and x.numel() > SMALL:
            layers, rows, width = x.shape
            columns = self._view("wide", (layers, width, aligned(rows)))
            return self._hold("wide", name, group, columns[..., :rows].mT)
        return None

    def kept_copy(self, name: Variable, group: int, x: Tensor) -> Tensor | None:
        """The copy of ``x`` that the group's p-step left, if it left one and nothing has been written over it."""
        for held, of, copy in self._holds.values():
            if (held, of) == (name, group):
                assert copy.shape == x.shape, f"the copy of {name} is not that of group {group}"
                return copy
        return None

    def factor(self, name: Variable, group: int, x: Tensor) -> Tensor:
        """``x`` as a factor of the W-step's products: the copy that is there, or else as for the p-step."""
        copy = self.kept_copy(name, group, x)
        return self.rounded(name, x) if copy is None else copy

    def rounded(self, name: Variable, x: Tensor) -> Tensor:
        """``x`` itself, or rounded anew where products are in bfloat16."""
        if self._precision != "bf16" or x.dtype is bfloat16:
            return x
        self._holds.pop(name, None)  # x may move before somebody asks for a copy: this one is not kept
        return self._view(name, x.shape).copy_(x)

    def check(self, name: Computed, group: int) -> None:
        """What the group has computed must still be there."""
        held = self._holds.get(PIECES[name])
        assert held is not None, f"{name} of group {group} was never written"
        assert held[:2] == (name, group), f"{name} of group {group} was overwritten by {held[0]} of group {held[1]}"

    def done(self, group: int) -> None:
        """The group's variables have moved on: nothing that is held of them is valid."""
        self._holds = {piece: held for piece, held in self._holds.items() if held[1] != group}

    def _hold(self, piece: str, name: Computed | Variable, group: int, tensor: Tensor) -> Tensor:
        self._holds[piece] = (name, group, tensor)
        return tensor

    def _view(self, piece: str, shape: tuple[int, ...]) -> Tensor:
        layers, rows, width = shape
        # Room for either order of memory, in which the rows or the columns begin at multiples of the alignment.
        memory, size = self._memory.get(piece), layers * aligned(rows) * aligned(width)
        if memory is None or memory.numel() < size:
            assert self._like is not None
            kind = bfloat16 if self._precision == "bf16" else None
            memory = self._memory[piece] = self._like.new_empty(size, dtype=kind)
        return memory[: layers * rows * width].view(layers, rows, width)
