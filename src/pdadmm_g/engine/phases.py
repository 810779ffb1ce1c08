"""The elementwise part of an epoch, phase by phase: the steps of :mod:`pdadmm_g.admm`, written into the state.

Each phase reads and writes every tensor once and returns the sums that are needed of it. What is left outside are the
norms and column sums of the products, which are known only after them. On a CPU a phase runs over blocks of rows that
stay in the cache; compiled, it is one loop, on a GPU one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib.util import find_spec
from itertools import repeat
from typing import TypeVar

import torch
from torch import Tensor

from ..admm.activations import Activation
from ..admm.diagnostics import boundary_terms
from ..admm.levels import FloatGrid, Levels
from ..admm.updates import W_gradient, column_sums, p_gradient, q_step, squared_norm, stepped, sum_up, u_implied, u_step

T = TypeVar("T")

#: Values of the widest tensor in one block: a dozen of such blocks fits in the cache that the cores share.
BLOCK = 1 << 18
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


def by_rows(phase: Callable[..., T], *tensors: Tensor | None) -> list[T]:
    """Apply ``phase`` to one block of rows of the tensors after the other; what it returns for each.

    On a GPU, and where phases are compiled, there is one block.
    """
    given = [tensor for tensor in tensors if tensor is not None]
    if given[0].is_cuda or _compile_from == 0:
        fuse = given[0].numel() >= _compile_from and (not given[0].is_cuda or _has_triton())
        return [(_fused(phase, tensors) if fuse else phase)(*tensors)]
    rows = max(1, BLOCK // max(tensor.shape[-1] for tensor in given))
    if given[0].shape[-2] <= rows:
        return [phase(*tensors)]
    blocks = (repeat(None) if tensor is None else tensor.split(rows, -2) for tensor in tensors)
    return [phase(*block) for block in zip(*blocks, strict=False)]


def _fused(phase: Callable[..., T], tensors: tuple[Tensor | None, ...]) -> Callable[..., T]:
    """The phase as one loop: a kernel of ours where there is one, or else compiled."""
    if not isinstance(phase, partial):
        return _compiled(phase)
    if tensors[0] is not None and tensors[0].is_cuda:
        from .kernels import kernel_for

        kernel = kernel_for(phase, tensors)
        if kernel is not None:
            return kernel
    return partial(_compiled(phase.func), *phase.args, **phase.keywords)


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


@cache
def _compiled(phase: Callable[..., T]) -> Callable[..., T]:
    # Hyperparameters are constants of what is compiled: a search for weight decay and an adaptive rho take many.
    config = torch._dynamo.config
    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    setattr(config, limit, max(getattr(config, limit), 64))
    return torch.compile(phase, dynamic=False)


def keep_heap() -> None:
    """Let the allocator of the C library keep the memory of a block that is done, for the next.

    By default glibc gives it back to the system and gets it anew, page by page, which takes longer than what is
    computed in it. It stops doing so once it has seen a piece of that size freed; 32 MiB is the most it heeds.
    """
    torch.empty((32 << 20) - (1 << 16), dtype=torch.uint8)


def total(parts: list[Tensor]) -> Tensor:
    """The sum of what a phase returned for each block."""
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)


def gradient(
    rW: Tensor, p: Tensor, q: Tensor, u: Tensor | None, z: Tensor | None, *, f: Activation, nu: float, rho: float
) -> Tensor:
    """The gradient g over the product r W. Where u is not kept, it follows from q and z. Returns |g|^2."""
    return squared_norm(p_gradient(rW, p, q, _dual(u, q, z, f=f, nu=nu), nu=nu, rho=rho, out=rW))


def move(
    x: Tensor,
    direction: Tensor,
    copy: Tensor | None,
    *,
    length: Tensor | float,
    levels: Levels | FloatGrid | None = None,
) -> None:
    """x - length * direction over x, projected where x is quantized, and a copy of it for the products."""
    stepped(x, direction, length, out=x)
    if levels is not None:
        x.copy_(levels.project(x))
    if copy is not None:
        copy.copy_(x)


def move_and_sum(x: Tensor, direction: Tensor, copy: Tensor | None, *, length: Tensor | float) -> Tensor:
    """As :func:`move`. Returns the column sums of the result."""
    move(x, direction, copy, length=length)
    return column_sums(x)


def weight_gradient(rp: Tensor, W: Tensor, W0: Tensor, *, nu: float, mu: float) -> Tensor:
    """The gradient G over the product r^T p. Returns |G|^2."""
    return squared_norm(W_gradient(rp, W - W0 if mu else None, nu=nu, mu=mu, out=rp))


def move_weights(W: Tensor, direction: Tensor, W0: Tensor, *, length: Tensor | float) -> Tensor:
    """W - length * direction over W. Returns |W - W^0|^2 and the sum of W."""
    move(W, direction, None, length=length)
    return torch.stack([squared_norm(W - W0), sum_up(W)])


def z_q_u(
    z: Tensor,
    r: Tensor,
    product: Tensor,
    q: Tensor,
    u: Tensor | None,
    p: Tensor,
    *,
    length: Tensor | float,
    decrement: Tensor,
    f: Activation,
    nu: float,
    rho: float,
    levels: Levels | FloatGrid | None,
) -> Tensor:
    """What the W- and b-steps left of the residual, then z with the residual that goes with it, q and u.

    Returns |z_new - z|^2, |r|^2, |q_new - q|^2, what :func:`boundary` does, and the sum of the old q.
    """
    u_old, q_sum = _dual(u, q, z, f=f, nu=nu), sum_up(q)
    m = pre_activation(z, r, product, length=length, decrement=decrement, out=r)
    z_new = f.argmin_z(m, q, z)
    z_move = squared_norm(z.sub_(z_new))
    z.copy_(z_new)
    torch.sub(m, z_new, out=r)
    fz = f(z_new)
    q_new = q_step(p, u_old, fz, nu=nu, rho=rho, levels=levels)
    q_move = squared_norm(q.sub_(q_new))
    q.copy_(q_new)
    gap = p - q_new
    u_new = u_step(u_old, gap, rho=rho, out=u)
    between = _between(gap, q_new, u_new, fz, nu=nu, rho=rho)
    return torch.stack([z_move, squared_norm(r), q_move, *between, q_sum])


def pre_activation(
    z: Tensor,
    r: Tensor,
    product: Tensor,
    *,
    length: Tensor | float,
    decrement: Tensor,
    out: Tensor | None = None,
) -> Tensor:
    """m = z + r after the W-step (r - length * product) and the b-step (r - decrement)."""
    return stepped(r, product, length, out=out).sub_(decrement).add_(z)


def dual(u: Tensor, p: Tensor, q: Tensor, *, rho: float) -> None:
    """u of a boundary whose p and q are new."""
    u_step(u, p - q, rho=rho, out=u)


def boundary(p: Tensor, q: Tensor, u: Tensor | None, z: Tensor, *, f: Activation, nu: float, rho: float) -> Tensor:
    """Share of the Lagrangian, |p - q|^2 and |q|^2."""
    return torch.stack(_between(p - q, q, _dual(u, q, z, f=f, nu=nu), f(z), nu=nu, rho=rho))


def _between(gap: Tensor, q: Tensor, u: Tensor, fz: Tensor, *, nu: float, rho: float) -> list[Tensor]:
    return [*boundary_terms(gap, q, u, fz, nu=nu, rho=rho), squared_norm(q)]


def _dual(u: Tensor | None, q: Tensor, z: Tensor | None, *, f: Activation, nu: float) -> Tensor:
    if u is not None:
        return u
    assert z is not None
    return u_implied(q, f(z), nu=nu)
