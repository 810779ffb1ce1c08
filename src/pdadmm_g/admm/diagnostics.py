r"""What tells whether the algorithm does what the theory says: Lagrangian, residuals, condition on rho, rate series."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from .rows import inner, squared_norm


class Moves(NamedTuple):
    """What one epoch moved, each field with one number a layer."""

    #: Guaranteed descents of the p- and W-steps, tau/2 |p_new - p|^2 and theta/2 |W_new - W|^2.
    p: Tensor
    W: Tensor
    #: Squared movements |b_new - b|^2, |z_new - z|^2 and |q_new - q|^2.
    b: Tensor
    z: Tensor
    q: Tensor


class Shares(NamedTuple):
    """What each layer contributes to what is measured, each field with one number a layer."""

    #: To the Lagrangian, the boundary to the right included and the risk not.
    objective: Tensor
    #: |p_{l+1} - q_l|^2.
    gap: Tensor
    #: |q_l|^2.
    output: Tensor


def rho_bound(nu: float, lipschitz: float) -> float:
    r"""The theory's condition: the Lagrangian never increases if :math:`\rho > \max(4\nu S^2, (\sqrt{17}+1)\nu/2)`."""
    return max(4 * nu * lipschitz**2, (math.sqrt(17) + 1) * nu / 2)


def descent_constants(nu: float, rho: float, lipschitz: float) -> tuple[float, float]:
    r""":math:`C_1 = \nu/2 - 2\nu^2 S^2/\rho` and :math:`C_2 = \rho/2 - 2\nu^2/\rho - \nu/2` of the descent lemma.

    Both are positive exactly when rho exceeds :func:`rho_bound`.
    """
    return nu / 2 - 2 * nu**2 * lipschitz**2 / rho, rho / 2 - 2 * nu**2 / rho - nu / 2


def boundary_shares(
    gap: Tensor, q: Tensor, u: Tensor, fz: Tensor, weights: Tensor | None, *, nu: float, rho: float
) -> Shares:
    r"""Of a boundary with the gap :math:`p_{l+1} - q_l`, rows counting with their ``weights``.

    To the Lagrangian
    :math:`\tfrac{\nu}{2}\|q - f(z)\|^2 + \langle u, p_{l+1} - q \rangle + \tfrac{\rho}{2}\|p_{l+1} - q\|^2`.
    """
    squared = squared_norm(gap, weights)
    objective = nu / 2 * squared_norm(q - fz, weights) + inner(u, gap, weights) + rho / 2 * squared
    return Shares(objective, squared, squared_norm(q, weights))


def rate_term(moves: Moves, *, nu: float, rho: float, lipschitz: float) -> float:
    r"""One term of the convergence-rate theorem; its running minimum is :math:`c_k` (:math:`d_k` with p quantized).

    .. math::
       \sum_{l \ge 2} \tfrac{\tau_l}{2} \|\Delta p_l\|^2 + \sum_l \tfrac{\theta_l}{2} \|\Delta W_l\|^2
       + \sum_l \tfrac{\nu}{2} \|\Delta b_l\|^2 + \sum_{l<L} C_1 \|\Delta z_l\|^2
       + \tfrac{\nu}{2} \|\Delta z_L\|^2 + \sum_{l<L} C_2 \|\Delta q_l\|^2
    """
    C1, C2 = descent_constants(nu, rho, lipschitz)
    rows = list(zip(*(field.tolist() for field in moves), strict=True))
    parameters = sum(p + W + nu / 2 * b for p, W, b, _, _ in rows)
    outputs = sum(C1 * z + C2 * q for *_, z, q in rows[:-1])
    return parameters + outputs + nu / 2 * rows[-1][3]
