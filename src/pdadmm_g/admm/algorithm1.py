r"""Algorithm 1 of the paper, pdADMM-G, and with levels pdADMM-G-Q: one pass of its loop, line by line.

Slow and plain: every layer in turn, every residual from its definition. The tests hold the worker's epoch to it, and
``Worker.run_epoch`` names these lines; a reader of the paper may start here.

Two things are written otherwise than in the paper. Activations are (rows, features), so :math:`W_l p_l` is
:math:`p_l W_l^T`. And elsewhere in this package ``r`` is :math:`p_l W_l^T + b_l - z_l`, which is ``residual`` here; the
paper's :math:`r_l`, in line 8, is the gap :math:`p_{l+1} - q_l`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from . import updates
from .activations import Activation
from .levels import Levels
from .risks import Risk, Targets

#: A variable of all layers: place l is that of layer l, place 0 is empty.
Layers = list[Tensor]


class Variables(NamedTuple):
    """p, W, b, z of the layers 1 to L, q and u of the layers 1 to L - 1; p_1 = X."""

    p: Layers
    W: Layers
    b: Layers
    z: Layers
    q: Layers
    u: Layers

    def residual(self, l: int) -> Tensor:
        """p_l W_l^T + b_l - z_l."""
        return self.p[l] @ self.W[l].T + self.b[l] - self.z[l]


@dataclass(frozen=True, kw_only=True)
class Given:
    """What stays the same: y, f, R, the penalties, the anchors of the weight decay, and how subproblems are solved."""

    y: Targets
    f: Activation
    R: Risk
    nu: float
    rho: float
    W0: Layers
    mu: float = 0.0
    solver: Literal["linearized", "exact"] = "linearized"
    #: Delta for p and q of layer l, where they are quantized (pdADMM-G-Q).
    p_levels: dict[int, Levels]
    q_levels: dict[int, Levels]


def one_pass(v: Variables, given: Given) -> Layers:
    """Lines 3 to 9 of Algorithm 1, into ``v``. Returns the gaps of line 8."""
    y, f, R, nu, rho, mu = given.y, given.f, given.R, given.nu, given.rho, given.mu
    L, rows = len(v.W) - 1, given.y.rows()

    # Line 3: p_l <- argmin L_rho over p_l, exactly or of its majorant, for different l in parallel (p_1 = X stays).
    for l in range(2, L + 1):
        g = updates.p_gradient(v.residual(l) @ v.W[l], v.p[l], v.q[l - 1], v.u[l - 1], nu=nu, rho=rho)
        if (D := given.p_levels.get(l)) is not None:
            v.p[l] = D.project(updates.p_quantized(v.p[l], v.W[l], g, D, nu=nu, rho=rho, rows=rows).of(v.p[l]))
        else:
            p_step = updates.p_exact if given.solver == "exact" else updates.p_linearized
            v.p[l] = p_step(v.W[l], g, nu=nu, rho=rho, rows=rows).of(v.p[l])

    # Line 4: W_l <- argmin L_rho over W_l, exactly or of its majorant, for different l in parallel.
    for l in range(1, L + 1):
        if given.solver == "exact":
            step = updates.W_exact(v.W[l], given.W0[l], v.p[l], v.residual(l), nu=nu, mu=mu, rows=rows)
        else:
            G = updates.W_gradient(rows.product(v.residual(l), v.p[l]), v.W[l] - given.W0[l], nu=nu, mu=mu)
            step = updates.W_linearized(v.p[l], G, nu=nu, mu=mu, rows=rows)
        v.W[l] = step.of(v.W[l])

    # Line 5: b_l <- argmin L_rho over b_l, for different l in parallel.
    v.b[1:] = [v.b[l] - updates.b_decrement(rows.column_sums(v.residual(l))[0], rows) for l in range(1, L + 1)]

    # Line 6: z_l <- argmin L_rho over z_l, for different l in parallel.
    for l in range(1, L + 1):
        m = v.residual(l) + v.z[l]
        v.z[l] = f.argmin_z(m, v.q[l], v.z[l]) if l < L else R.argmin_z(m, y, nu, v.z[l])

    # Line 7: q_l <- argmin L_rho over q_l, for different l in parallel.
    for l in range(1, L):
        v.q[l] = updates.q_step(v.p[l + 1], v.u[l], f(v.z[l]), nu=nu, rho=rho, levels=given.q_levels.get(l))

    # Line 8: r_l <- p_{l+1} - q_l, in parallel: the residuals.
    gaps = [v.q[0], *(v.p[l + 1] - v.q[l] for l in range(1, L))]

    # Line 9: u_l <- u_l + rho (p_{l+1} - q_l), for different l in parallel.
    v.u[1:] = [updates.u_step(v.u[l], gaps[l], rho=rho) for l in range(1, L)]
    return gaps
