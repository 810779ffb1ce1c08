r"""Risks :math:`R(z_L; y)`, summed over nodes, and the z-subproblem of the last layer.

.. math:: z_L \leftarrow \arg\min_z\; R(z; y) + \tfrac{\nu}{2} \|z - m_L\|^2
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class Risk(ABC):
    """A convex function of the logits ``z`` (nodes, classes) and integer labels ``y`` (nodes,)."""

    @abstractmethod
    def __call__(self, z: Tensor, y: Tensor) -> Tensor:
        """R(z; y), summed over nodes."""

    @abstractmethod
    def argmin_z(self, m: Tensor, y: Tensor, nu: float, z_old: Tensor) -> Tensor:
        """Minimiser of R(z; y) + nu/2 |z - m|^2; ``z_old`` is a warm start and does not change the answer."""


class CrossEntropy(Risk):
    r""":math:`R = \sum_i -\log \mathrm{softmax}(z_i)_{y_i}`."""

    max_steps = 100
    max_halvings = 40

    def __call__(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(z, y, reduction="sum")

    def argmin_z(self, m: Tensor, y: Tensor, nu: float, z_old: Tensor) -> Tensor:
        r"""Damped Newton, node by node.

        With :math:`s = \mathrm{softmax}(z)` the Hessian is :math:`\mathrm{diag}(s + \nu) - s s^T`. Sherman-Morrison
        inverts it in O(classes); its denominator :math:`1 - \sum s^2/(s+\nu)` equals
        :math:`\nu \sum s/(s+\nu)`, which does not cancel for small :math:`\nu`.
        """
        target = torch.nn.functional.one_hot(y, m.shape[1]).to(m.dtype)
        eps = torch.finfo(m.dtype).eps
        z = z_old
        value = self._node_objective(z, m, y, nu)
        if not bool(torch.isfinite(value).all()):
            return torch.full_like(z, torch.nan)  # there is nothing to minimise, and nothing may hide it
        for _ in range(self.max_steps):
            s = torch.softmax(z, dim=1)
            pull = nu * (z - m)
            gradient = s - target + pull
            # Rounding z itself moves the gradient by up to eps |z|: less cannot be reached.
            if bool((gradient.abs() <= 4 * eps * (1 + z.abs() + pull.abs())).all()):
                break
            inverse = 1 / (s + nu)
            scaled = inverse * gradient
            correction = (s * scaled).sum(1, keepdim=True) / (nu * (s * inverse).sum(1, keepdim=True))
            direction = scaled + inverse * s * correction
            z_next, value_next, moved = self._backtrack(z, value, direction, gradient, m, y, nu)
            if not moved:
                break
            z, value = z_next, value_next
        return z

    def _backtrack(
        self, z: Tensor, value: Tensor, direction: Tensor, gradient: Tensor, m: Tensor, y: Tensor, nu: float
    ) -> tuple[Tensor, Tensor, bool]:
        """Halve the step of each node until Armijo's condition holds; nodes that cannot improve stay where they are."""
        slope = (gradient * direction).sum(1)
        step = torch.ones_like(value)
        # Near the optimum the decrease drowns in rounding: full Newton steps are safe and accurate there.
        slack = 8 * torch.finfo(z.dtype).eps * (1 + value.abs())
        for _ in range(self.max_halvings):
            z_next = z - step[:, None] * direction
            value_next = self._node_objective(z_next, m, y, nu)
            accepted = value_next <= value - 1e-4 * step * slope + slack
            if bool(accepted.all()):
                break
            step = torch.where(accepted, step, step / 2)
        keep = accepted[:, None]
        z_next = torch.where(keep, z_next, z)
        return z_next, torch.where(accepted, value_next, value), bool((z_next != z).any())

    @staticmethod
    def _node_objective(z: Tensor, m: Tensor, y: Tensor, nu: float) -> Tensor:
        risk = torch.nn.functional.cross_entropy(z, y, reduction="none")
        return risk + nu / 2 * (z - m).square().sum(1)


class SquaredError(Risk):
    r""":math:`R = \tfrac12 \|z - \mathrm{onehot}(y)\|^2`."""

    def __call__(self, z: Tensor, y: Tensor) -> Tensor:
        return (z - self._target(z, y)).square().sum() / 2

    def argmin_z(self, m: Tensor, y: Tensor, nu: float, z_old: Tensor) -> Tensor:
        return (self._target(m, y) + nu * m) / (1 + nu)

    @staticmethod
    def _target(z: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(y, z.shape[1]).to(z.dtype)


RISKS: dict[str, Risk] = {"cross-entropy": CrossEntropy(), "squared-error": SquaredError()}
