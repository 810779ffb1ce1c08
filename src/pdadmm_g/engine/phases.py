"""The elementwise part of an epoch, phase by phase: the steps of :mod:`pdadmm_g.admm`, written into the state.

Each phase reads and writes every tensor once and returns the sums that are needed of it, over the rows that it was
given, each with its weight. What is left outside are the norms and column sums of the products, which are known only
after them. How a phase is run is decided by the device (:func:`backend_for`): on a CPU in blocks of rows, on a GPU
compiled or by Triton kernels of our own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..admm.activations import Activation
from ..admm.diagnostics import boundary_shares
from ..admm.levels import Delta
from ..admm.rows import column_sums, squared_norm, sum_up
from ..admm.updates import W_gradient, at_once, p_gradient, p_pull, q_step, stepped, u_implied, u_step

T = TypeVar("T")


class WeightSums(NamedTuple):
    """What :func:`move_weights` measures."""

    #: |W - W^0|^2.
    decay: Tensor
    #: The sum of W.
    W: Tensor


class StepSums(NamedTuple):
    """What :func:`z_q_u` measures: movements, and the state that it leaves."""

    #: |z_new - z|^2.
    z_move: Tensor
    #: |r|^2.
    r: Tensor
    #: |q_new - q|^2.
    q_move: Tensor
    #: As in :class:`.Shares`: objective, gap and output of the boundary.
    share: Tensor
    gap: Tensor
    output: Tensor


def gradient(
    rW: Tensor,
    p: Tensor,
    q: Tensor,
    u: Tensor | None,
    z: Tensor | None,
    weights: Tensor | None,
    *,
    f: Activation,
    nu: float,
    rho: float,
) -> Tensor:
    """The gradient g over the product r W. Where u is not kept, it follows from q and z. Returns |g|^2."""
    return squared_norm(p_gradient(rW, p, q, dual_of(u, q, z, f=f, nu=nu), nu=nu, rho=rho, out=rW), weights)


def move(
    x: Tensor, direction: Tensor, copy: Tensor | None, *, length: Tensor | float, levels: Delta | None = None
) -> None:
    """x - length * direction over x, projected where x is quantized, and a copy of it for the products."""
    stepped(x, direction, length, out=x)
    if levels is not None:
        x.copy_(levels.project(x))
    if copy is not None:
        copy.copy_(x)


def move_and_sum(
    x: Tensor, direction: Tensor, copy: Tensor | None, weights: Tensor | None, *, length: Tensor | float
) -> Tensor:
    """As :func:`move`. Returns the column sums of the result."""
    move(x, direction, copy, length=length)
    return column_sums(x, weights)


def weight_gradient(rp: Tensor, W: Tensor, W0: Tensor, *, nu: float, mu: float) -> Tensor:
    """The gradient G over the product r^T p. Returns |G|^2."""
    return squared_norm(W_gradient(rp, W - W0 if mu else None, nu=nu, mu=mu, out=rp))


def move_weights(W: Tensor, direction: Tensor, W0: Tensor, *, length: Tensor | float) -> WeightSums:
    """W - length * direction over W."""
    move(W, direction, None, length=length)
    return WeightSums(squared_norm(W - W0), sum_up(W))


def z_q_u(
    z: Tensor,
    r: Tensor,
    product: Tensor,
    q: Tensor,
    u: Tensor | None,
    p: Tensor,
    pull: Tensor | None,
    weights: Tensor | None,
    *,
    length: Tensor | float,
    decrement: Tensor,
    f: Activation,
    nu: float,
    rho: float,
    levels: Delta | None,
) -> StepSums:
    """What the W- and b-steps left of the residual, then z with the residual that goes with it, q and u.

    Where it is kept, also the ``pull`` on the p of the next layer, for its next step.
    """
    u_old = dual_of(u, q, z, f=f, nu=nu)
    m = pre_activation(z, r, product, length=length, decrement=decrement, out=r if r.dtype is z.dtype else None)
    z_new = f.argmin_z(m, q, z)
    z_move = squared_norm(z.sub_(z_new), weights)
    z.copy_(z_new)
    torch.sub(m, z_new, out=r)
    fz = f(z_new)
    q_new = q_step(p, u_old, fz, nu=nu, rho=rho, levels=levels)
    q_move = squared_norm(q.sub_(q_new), weights)
    q.copy_(q_new)
    gap = p - q_new
    u_new = u_step(u_old, gap, rho=rho, out=u)
    if pull is not None:
        pull.copy_(p_pull(p, q_new, u_new, rho=rho))
    between = boundary_shares(gap, q_new, u_new, fz, weights, nu=nu, rho=rho)
    return StepSums(z_move, squared_norm(r, weights), q_move, *between)


def pre_activation(
    z: Tensor, r: Tensor, product: Tensor, *, length: Tensor | float, decrement: Tensor, out: Tensor | None = None
) -> Tensor:
    """m = z + r after the W-step (r - length * product) and the b-step (r - decrement), as exact as z."""
    return stepped(r.to(z.dtype), product, length, out=out).sub_(decrement).add_(z)


def dual(u: Tensor, p: Tensor, q: Tensor, *, rho: float) -> None:
    """u of a boundary whose p and q are new."""
    u_step(u, p - q, rho=rho, out=u)


def dual_of(u: Tensor | None, q: Tensor, z: Tensor | None, *, f: Activation, nu: float) -> Tensor:
    """u of a boundary, which follows from q and z where it is not kept."""
    if u is not None:
        return u
    assert z is not None
    return u_implied(q, f(z), nu=nu)


# --------------------------------------------------------------------------------------------------- how they are run

#: Values of the widest tensor in one block: a dozen of such blocks fits in the cache that the cores share.
BLOCK = 1 << 18
#: From so many values on, a phase on a GPU is worth the time that it takes to compile.
WORTH_COMPILING = 1 << 22


def backend_for(device: torch.device) -> Callable[..., Any]:
    """What applies a phase to all rows of its tensors, and adds up what it returns.

    On a GPU without Triton phases run as they are, one operation after the other.
    """
    if device.type != "cuda":
        _keep_heap()
        return in_blocks
    return fused if find_spec("triton") is not None else at_once


def in_blocks(phase: Callable[..., T], *tensors: Tensor | None, **settings: Any) -> T:
    """One block of rows after the other, each small enough to stay in the cache."""
    given = [tensor for tensor in tensors if tensor is not None]
    rows = max(1, BLOCK // max(tensor.shape[-1] for tensor in given))
    if given[0].shape[-2] <= rows:
        return phase(*tensors, **settings)
    blocks = (repeat(None) if tensor is None else tensor.split(rows, -2) for tensor in tensors)
    parts: list[Any] = [phase(*block, **settings) for block in zip(*blocks, strict=False)]
    # A tensor, a named tuple of tensors, or nothing: the sum over the blocks.
    if parts[0] is None or isinstance(parts[0], Tensor):
        return None if parts[0] is None else torch.stack(parts).sum(0)  # type: ignore[return-value]
    return type(parts[0])(*torch.stack([torch.stack(part) for part in parts]).sum(0))


def fused(phase: Callable[..., T], *tensors: Tensor | None, **settings: Any) -> T:
    """On a GPU: a kernel of ours where there is one, or else compiled; small tensors as they are."""
    from .kernels import kernel_for

    first = next(tensor for tensor in tensors if tensor is not None)
    if first.numel() < WORTH_COMPILING:
        return phase(*tensors, **settings)
    run: Callable[..., T] = kernel_for(phase, tensors, settings) or _compiled(phase)
    return run(*tensors, **settings)


@cache
def _compiled(phase: Callable[..., T]) -> Callable[..., T]:
    # Hyperparameters are constants of what is compiled: a search for weight decay takes many.
    config = torch._dynamo.config
    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    setattr(config, limit, max(getattr(config, limit), 64))
    return torch.compile(phase, dynamic=False)


def _keep_heap() -> None:
    """Let the allocator of the C library keep the memory of a block that is done, for the next.

    By default glibc gives it back to the system and gets it anew, page by page, which takes longer than what is
    computed in it. It stops doing so once it has seen a piece of that size freed; 32 MiB is the most it heeds.
    """
    torch.empty((32 << 20) - (1 << 16), dtype=torch.uint8)
