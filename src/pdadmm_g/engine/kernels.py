# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-def, untyped-decorator"
"""Triton kernels for the phases that ``torch.compile`` leaves well below the memory bandwidth of a GPU.

Each has the arguments and results of the phase of its name, of one large layer in single precision (r, products and
copies may be in bfloat16) with a piecewise linear activation. Where rows have no weights, a kernel is compiled as if
there were none (its flag WEIGHTED), and has no memory to read them from. :func:`kernel_for` says whether a phase has
one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..admm import updates
from ..admm.activations import Activation, Identity, LeakyReLU
from ..admm.levels import Levels
from ..admm.updates import ProductSums
from . import phases
from .phases import StepSums

#: Values that one program of an elementwise kernel takes.
BLOCK = 1024
#: The tile of the kernel that sums up columns, and the rows that one program of it goes through.
ROWS, COLUMNS, STRIP = 64, 64, 512


def kernel_for(
    phase: Callable[..., Any], tensors: tuple[Tensor | None, ...], settings: dict[str, Any]
) -> Callable[..., Any] | None:
    """The kernel that takes the place of ``phase``, None if there is none for these tensors and settings.

    All kernels are for one large layer, and levels that are multiples of a step.
    """
    known = [x for x in tensors if x is not None]
    levels = settings.get("levels")
    if len(known[0]) > 1 or any(x.dtype not in (torch.float32, torch.bfloat16) for x in known):
        return None
    if levels is not None and not (isinstance(levels, Levels) and levels.multiples is not None):
        return None
    if "f" in settings and _slope(settings["f"]) is None:
        return None
    if phase in (phases.move, updates.norm_and_columns) and not all(x.is_contiguous() for x in known if x.ndim == 3):
        return None
    return KERNELS.get(phase)


def _slope(f: Activation) -> float | None:
    """The slope of f below zero, if f is piecewise linear."""
    return f.slope if isinstance(f, LeakyReLU) else 1.0 if isinstance(f, Identity) else None


def _multiples(levels):
    """Step, least and largest multiple of the levels; anything where there are none."""
    return [float(x) for x in ((1, 0, 0) if levels is None else levels.multiples)]


def _on_device(length, like):
    return length if isinstance(length, Tensor) else like.new_full((), length, dtype=torch.float32)


def _in_order(weights):
    """The weights of the rows one after the other; they may be those of every n-th row of more."""
    return None if weights is None else weights.contiguous()


@triton.jit
def _load(x_, i, inside):
    return tl.load(x_ + i, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _store(x_, i, inside, x):
    tl.store(x_ + i, x.to(x_.dtype.element_ty), mask=inside)


@triton.jit
def _block(total, BLOCK: tl.constexpr):
    """The places of the values of a program, and which of them there are."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return i, i < total


@triton.jit
def _of_rows(weights_, width, inside, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr):
    """The weight of the row that each value of a block of ``BLOCK`` values is in."""
    weight = 1.0
    if WEIGHTED:
        start = tl.program_id(0).to(tl.int64) * BLOCK
        # Counted from the row of the first value, rows fit into 32 bits, whose division is several times faster.
        row = start // width + ((start % width).to(tl.int32) + tl.arange(0, BLOCK)) // width
        weight = tl.load(weights_ + row, mask=inside, other=0.0)
    return weight


@triton.jit
def _project(x, step, least, largest):
    """The nearest level, half way the even multiple; NaN stays NaN."""
    multiple = tl.minimum(tl.maximum(x / step, least), largest)
    # 1.5 * 2^23: around it single precision has no fractions.
    nearest = (multiple + 12582912.0) - 12582912.0
    return tl.where(x == x, nearest * step, x)


def gradient(rW, p, q, u, z, weights, *, f, nu, rho):
    """See :func:`.phases.gradient`."""
    programs = triton.cdiv(p.numel(), BLOCK)
    sums = p.new_empty(programs)
    _gradient[(programs,)](
        rW, p, q, z if u is None else u, sums, p.numel(), _slope(f), nu, rho, _in_order(weights), p.shape[-1],
        KEEPS_U=u is not None, WEIGHTED=weights is not None, BLOCK=BLOCK,
    )  # fmt: skip
    return sums.sum().view(1)


@triton.jit
def _gradient(
    rW_, p_, q_, other_, sums_, total, slope, nu, rho, weights_, width,
    KEEPS_U: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i, inside = _block(total, BLOCK)
    q, other = _load(q_, i, inside), _load(other_, i, inside)
    u = other if KEEPS_U else nu * (q - tl.where(other > 0, other, slope * other))
    # Rounded, where the products are, before its norm is taken.
    g = u + rho * (_load(p_, i, inside) - q) + nu * _load(rW_, i, inside)
    g = g.to(rW_.dtype.element_ty).to(tl.float32)
    _store(rW_, i, inside, g)
    tl.store(sums_ + tl.program_id(0), tl.sum(g * g * _of_rows(weights_, width, inside, WEIGHTED, BLOCK)))


def move_and_sum(x, direction, copy, weights, *, length):
    """See :func:`.phases.move_and_sum`. The copy may be in any order of memory."""
    return _strips(x, weights, direction, _on_device(length, x), copy).columns


def norm_and_columns(product, weights):
    """See :func:`pdadmm_g.admm.updates.norm_and_columns`."""
    return _strips(product, weights, None, product, None)


def _strips(x, weights, direction, length, copy):
    """Move x, where there is a direction, and copy it; the sums of the columns, and without one the squared norm."""
    rows, width = x.shape[-2:]
    grid = (triton.cdiv(rows, STRIP), triton.cdiv(width, COLUMNS))
    sums, norms = (x.new_empty(grid[0], size, dtype=torch.float32) for size in (width, grid[1]))
    strides = (0, 0) if copy is None else copy.stride()[-2:]
    _sum_strips[grid](
        x, x if direction is None else direction, x if copy is None else copy, length, sums, norms, rows, width,
        *strides, _in_order(weights), MOVES=direction is not None, COPIES=copy is not None,
        WEIGHTED=weights is not None, ROWS=ROWS, COLUMNS=COLUMNS, STRIP=STRIP,
    )  # fmt: skip
    return ProductSums(norms.sum().view(1), sums.sum(0).view(1, 1, width))


@triton.jit
def _sum_strips(
    x_, direction_, copy_, length_, sums_, norms_, rows, width, copy_row, copy_column, weights_,
    MOVES: tl.constexpr, COPIES: tl.constexpr, WEIGHTED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    STRIP: tl.constexpr,
):  # fmt: skip
    strip = tl.program_id(0)
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)[None, :]
    summed = tl.zeros((ROWS, COLUMNS), tl.float32)
    squared = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, STRIP, ROWS):
        row = (strip * STRIP + start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (row < rows) & (column < width)
        place = row * width + column
        x = _load(x_, place, inside)
        if MOVES:
            # What is summed up is what is kept.
            x = (x - tl.load(length_) * _load(direction_, place, inside)).to(x_.dtype.element_ty).to(tl.float32)
            _store(x_, place, inside, x)
        if COPIES:
            _store(copy_, row * copy_row + column * copy_column, inside, x)
        weighted = x * tl.load(weights_ + row, mask=row < rows, other=0.0) if WEIGHTED else x
        summed += weighted
        if not MOVES:
            squared += x * weighted
    tl.store(sums_ + strip * width + column, tl.sum(summed, 0)[None, :], mask=column < width)
    if not MOVES:
        tl.store(norms_ + strip * tl.num_programs(1) + tl.program_id(1), tl.sum(squared))


def quantized_move(d, p, g, weights, *, levels, length):
    """See :func:`pdadmm_g.admm.updates.quantized_move`."""
    return _moved(p, g, d, weights, length, levels, measures=True).sum().view(1)


def move(x, direction, copy, *, length, levels=None):
    """See :func:`.phases.move`; the copy is in the same order of memory."""
    _moved(x, direction, copy, None, _on_device(length, x), levels, measures=False)


def _moved(x, direction, other, weights, length, levels, *, measures):
    """The new x over x and over the other; where it ``measures``, instead by how much x would move over the other."""
    programs = triton.cdiv(x.numel(), BLOCK)
    sums = x.new_empty(programs)
    _move[(programs,)](
        x, direction, x if other is None else other, length, sums, x.numel(), *_multiples(levels), _in_order(weights),
        x.shape[-1], MEASURES=measures, COPIES=other is not None, QUANTIZED=levels is not None,
        WEIGHTED=weights is not None, BLOCK=BLOCK,
    )  # fmt: skip
    return sums


@triton.jit
def _move(
    x_, direction_, other_, length_, sums_, total, step, least, largest, weights_, width,
    MEASURES: tl.constexpr, COPIES: tl.constexpr, QUANTIZED: tl.constexpr, WEIGHTED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    i, inside = _block(total, BLOCK)
    x = _load(x_, i, inside)
    new = x - tl.load(length_) * _load(direction_, i, inside)
    if QUANTIZED:
        new = _project(new, step, least, largest)
    if MEASURES:
        moved = tl.where(inside, x - new, 0.0)
        _store(other_, i, inside, moved)
        weight = _of_rows(weights_, width, inside, WEIGHTED, BLOCK)
        tl.store(sums_ + tl.program_id(0), tl.sum(moved * moved * weight))
    else:
        _store(x_, i, inside, new)
        if COPIES:
            _store(other_, i, inside, new)


def z_q_u(z, r, product, q, u, p, pull, weights, *, length, decrement, f, nu, rho, levels):
    """See :func:`.phases.z_q_u`."""
    programs = triton.cdiv(z.numel(), BLOCK)
    sums = z.new_empty(6, programs)
    _z_q_u[(programs,)](
        z, r, product, q, q if u is None else u, p, q if pull is None else pull, _on_device(length, z), decrement,
        sums, z.numel(), z.shape[-1], programs, _slope(f), nu, rho, *_multiples(levels), _in_order(weights),
        KEEPS_U=u is not None, PULLS=pull is not None, QUANTIZED=levels is not None, WEIGHTED=weights is not None,
        BLOCK=BLOCK,
    )  # fmt: skip
    return StepSums(*sums.sum(1, keepdim=True))


@triton.jit
def _z_q_u(
    z_, r_, product_, q_, u_, p_, pull_, length_, decrement_, sums_, total, width, programs, slope, nu, rho,
    step, least, largest, weights_,
    KEEPS_U: tl.constexpr, PULLS: tl.constexpr, QUANTIZED: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i, inside = _block(total, BLOCK)
    z, r, product = _load(z_, i, inside), _load(r_, i, inside), _load(product_, i, inside)
    q, p, decrement = _load(q_, i, inside), _load(p_, i, inside), _load(decrement_, i % width, inside)
    weight = _of_rows(weights_, width, inside, WEIGHTED, BLOCK)
    u = _load(u_, i, inside) if KEEPS_U else nu * (q - tl.where(z > 0, z, slope * z))

    # The z-step: the best point of each branch, then the better branch (LeakyReLU.argmin_z).
    m = tl.where(inside, r - tl.load(length_) * product - decrement + z, 0.0)
    curvature = 2 + slope * slope
    plus = tl.maximum((m + z + q) / 3, 0.0)
    minus = tl.minimum((m + z + slope * q) / curvature, 0.0)
    z_new = tl.where(minus + tl.sqrt(3 / curvature) * plus >= 0, plus, minus)
    # A comparison, and on a GPU a maximum too, hides NaN.
    z_new = tl.where(m + q == m + q, z_new, m + q)
    r_new = (m - z_new).to(r_.dtype.element_ty).to(tl.float32)
    fz = tl.where(z_new > 0, z_new, slope * z_new)
    q_new = (rho * p + u + nu * fz) / (rho + nu)
    if QUANTIZED:
        q_new = _project(q_new, step, least, largest)
    gap = p - q_new
    u_new = u + rho * gap
    _store(z_, i, inside, z_new)
    _store(r_, i, inside, r_new)
    _store(q_, i, inside, q_new)
    if KEEPS_U:
        _store(u_, i, inside, u_new)
    if PULLS:
        _store(pull_, i, inside, u_new + rho * gap)

    # The fields of StepSums.
    sums = sums_ + tl.program_id(0)
    share = nu / 2 * (q_new - fz) * (q_new - fz) + u_new * gap + rho / 2 * gap * gap
    tl.store(sums, tl.sum((z_new - z) * (z_new - z) * weight))
    tl.store(sums + programs, tl.sum(r_new * r_new * weight))
    tl.store(sums + 2 * programs, tl.sum((q_new - q) * (q_new - q) * weight))
    tl.store(sums + 3 * programs, tl.sum(share * weight))
    tl.store(sums + 4 * programs, tl.sum(gap * gap * weight))
    tl.store(sums + 5 * programs, tl.sum(q_new * q_new * weight))


#: The kernels by the phase that each replaces.
KERNELS: dict[Callable[..., Any], Callable[..., Any]] = {
    phases.gradient: gradient,
    phases.move_and_sum: move_and_sum,
    updates.norm_and_columns: norm_and_columns,
    updates.quantized_move: quantized_move,
    phases.move: move,
    phases.z_q_u: z_q_u,
}
