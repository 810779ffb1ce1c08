"""The elementwise part of an epoch, phase by phase: the steps of :mod:`pdadmm_g.admm`, written into the state.

Each phase reads and writes every tensor once and returns the sums that are needed of it. What is left outside are the
norms and column sums of the products, which are known only after them. On a CPU a phase runs over blocks of rows that
stay in the cache; compiled, it is one loop, on a GPU one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import TypeVar

import torch
from torch import Tensor

from ..admm.activations import Activation
from ..admm.diagnostics import boundary_terms
from ..admm.levels import FloatGrid, Levels
from ..admm.updates import p_gradient, q_step, squared_norm, u_step

T = TypeVar("T")

#: Values of the widest tensor in one block: a handful of such blocks fits in the cache of one core.
BLOCK = 1 << 16
#: From so many values on, a phase on a GPU is worth the time that it takes to compile.
WORTH_COMPILING = 1 << 22
_compile_from = WORTH_COMPILING


@contextmanager
def compiling(choice: bool | None) -> Iterator[None]:
    """Compile the phases: always, never, or (None) on a GPU where it pays."""
    global _compile_from
    before = _compile_from
    _compile_from = WORTH_COMPILING if choice is None else 0 if choice else 1 << 62
    try:
        yield
    finally:
        _compile_from = before


def by_rows(phase: Callable[..., T], *tensors: Tensor) -> list[T]:
    """Apply ``phase`` to one block of rows of the tensors after the other; what it returns for each.

    On a GPU, and where phases are compiled, there is one block.
    """
    if tensors[0].is_cuda or _compile_from == 0:
        return [(_fused(phase) if tensors[0].numel() >= _compile_from else phase)(*tensors)]
    nodes = len(tensors[0])
    rows = max(1, BLOCK // max(tensor.shape[1] for tensor in tensors))
    if nodes <= rows:
        return [phase(*tensors)]
    return [phase(*block) for block in zip(*(tensor.split(rows) for tensor in tensors), strict=True)]


def _fused(phase: Callable[..., T]) -> Callable[..., T]:
    if isinstance(phase, partial):
        return partial(_compiled(phase.func), *phase.args, **phase.keywords)
    return _compiled(phase)


@cache
def _compiled(phase: Callable[..., T]) -> Callable[..., T]:
    return torch.compile(phase, dynamic=False)


def total(parts: list[Tensor]) -> Tensor:
    """The sum of what a phase returned for each block."""
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)


def gradient(rW: Tensor, p: Tensor, q: Tensor, u: Tensor, *, nu: float, rho: float) -> Tensor:
    """The gradient g over the product r W. Returns |g|^2."""
    rW.copy_(p_gradient(rW, p, q, u, nu=nu, rho=rho))
    return squared_norm(rW)


def move(x: Tensor, direction: Tensor, *, length: Tensor | float, levels: Levels | FloatGrid | None = None) -> None:
    """x - length * direction over x, projected where x is quantized."""
    x -= length * direction
    if levels is not None:
        x.copy_(levels.project(x))


def move_and_sum(x: Tensor, direction: Tensor, *, length: Tensor | float) -> Tensor:
    """x - length * direction over x. Returns the column sums of the result."""
    x -= length * direction
    return x.sum(0)


def z_and_residual(
    z: Tensor,
    r: Tensor,
    product: Tensor,
    q: Tensor,
    *,
    length: Tensor | float,
    decrement: Tensor,
    f: Activation,
) -> Tensor:
    """What the W- and b-steps left of the residual, then z and the residual that goes with it.

    Returns |z_new - z|^2 and |r|^2.
    """
    m = pre_activation(z, r, product, length=length, decrement=decrement)
    z_new = f.argmin_z(m, q, z)
    moved = squared_norm(z_new - z)
    z.copy_(z_new)
    r.copy_(m.sub_(z_new))
    return torch.stack([moved, squared_norm(r)])


def pre_activation(z: Tensor, r: Tensor, product: Tensor, *, length: Tensor | float, decrement: Tensor) -> Tensor:
    """m = z + r after the W-step (r - length * product) and the b-step (r - decrement)."""
    return (r - length * product).sub_(decrement).add_(z)


def q_and_u(
    q: Tensor,
    u: Tensor,
    p: Tensor,
    z: Tensor,
    *,
    f: Activation,
    nu: float,
    rho: float,
    levels: Levels | FloatGrid | None,
) -> Tensor:
    """q, then u. Returns |q_new - q|^2 and what :func:`boundary` does."""
    q_new = q_step(p, u, f(z), nu=nu, rho=rho, levels=levels)
    moved = squared_norm(q_new - q)
    q.copy_(q_new)
    dual(u, p, q, rho=rho)
    return torch.cat([moved.view(1), boundary(p, q, u, z, f=f, nu=nu, rho=rho)])


def dual(u: Tensor, p: Tensor, q: Tensor, *, rho: float) -> None:
    """u of a boundary whose p and q are new."""
    u.copy_(u_step(u, p, q, rho=rho))


def boundary(p: Tensor, q: Tensor, u: Tensor, z: Tensor, *, f: Activation, nu: float, rho: float) -> Tensor:
    """Share of the Lagrangian, |p - q|^2 and |q|^2."""
    return torch.stack([*boundary_terms(p, q, u, f(z), nu=nu, rho=rho), squared_norm(q)])
