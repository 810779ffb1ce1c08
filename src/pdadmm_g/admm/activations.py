r"""Activations :math:`f` and, for each, the z-subproblem of a hidden layer in closed form or to float precision.

Every hidden layer solves, independently for each entry (all three terms carry the same weight :math:`\nu/2`),

.. math:: \min_z\; (z - m)^2 + (q - f(z))^2 + (z - z_{old})^2
          \;=\; \min_z\; 2 (z - c)^2 + (q - f(z))^2 + const, \qquad c = (m + z_{old}) / 2 .
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


class Activation(ABC):
    """An elementwise function with the solution of its z-subproblem."""

    #: Lipschitz constant, the S of the theory's condition on rho.
    lipschitz: float

    @abstractmethod
    def __call__(self, z: Tensor) -> Tensor:
        """f(z)."""

    @abstractmethod
    def argmin_z(self, m: Tensor, q: Tensor, z_old: Tensor) -> Tensor:
        """Global minimiser of (z - m)^2 + (q - f(z))^2 + (z - z_old)^2, entry by entry."""


@dataclass(frozen=True)
class Identity(Activation):
    """f(z) = z, the linear network."""

    lipschitz: float = 1.0

    def __call__(self, z: Tensor) -> Tensor:
        return z

    def argmin_z(self, m: Tensor, q: Tensor, z_old: Tensor) -> Tensor:
        return (m + q + z_old) / 3


@dataclass(frozen=True)
class LeakyReLU(Activation):
    """f(z) = max(z, 0) + slope * min(z, 0); slope 0 is ReLU."""

    slope: float
    lipschitz: float = 1.0

    def __call__(self, z: Tensor) -> Tensor:
        return torch.nn.functional.leaky_relu(z, self.slope) if self.slope else torch.relu(z)

    def argmin_z(self, m: Tensor, q: Tensor, z_old: Tensor) -> Tensor:
        """Best point of each branch, then the better branch.

        With c = m + z_old and s the slope, the objective is 3 z^2 - 2 (c + q) z + const for z >= 0 and
        (2 + s^2) z^2 - 2 (c + s q) z + const for z <= 0, so the branch optima below lower it by 3 z_plus^2 and
        (2 + s^2) z_minus^2 against z = 0: comparing those two, or their roots, compares the full objectives.
        """
        curvature = 2 + self.slope**2
        c = m + z_old
        z_plus = torch.relu_((c + q).div_(3))
        z_minus = (c.add_(q, alpha=self.slope) if self.slope else c).div_(curvature).clamp_(max=0)
        positive = torch.add(z_minus, z_plus, alpha=(3 / curvature) ** 0.5).ge_(0)
        # With weights 0 and 1 this picks exactly, many times faster than torch.where on a mask without a pattern.
        return torch.lerp(z_minus, z_plus, positive, out=z_minus)


class Smooth(Activation):
    """A smooth sigmoidal activation; its z-subproblem is solved by table lookup and safeguarded Newton.

    ``reach`` bounds the region in which f visibly bends. Outside of it the objective is a parabola around c, inside
    it a grid finds the valley of the global minimum.
    """

    reach: float
    grid_points = 33
    max_steps = 60

    @abstractmethod
    def derivatives(self, f: Tensor) -> tuple[Tensor, Tensor]:
        """f'(z) and f''(z), from f(z)."""

    def argmin_z(self, m: Tensor, q: Tensor, z_old: Tensor) -> Tensor:
        c = (m + z_old) / 2
        # The minimiser z* is no worse than c, hence |z* - c| <= |q - f(c)| / sqrt(2), on the side that moves f to q.
        far = c + (q - self(c)) * 0.5**0.5
        low, high = torch.minimum(c, far), torch.maximum(c, far)

        # Two valleys may lie close in value: the bottom of the best one and of its best rival decide.
        spacing = 2 * self.reach / (self.grid_points - 1)
        first = self._best_on_grid(low, high, c, q, c)
        second = self._best_on_grid(low, high, c, q, first, keep_away=1.5 * spacing)
        bottoms = [
            self._newton(start, torch.maximum(low, start - spacing), torch.minimum(high, start + spacing), c, q)
            for start in (first, second)
        ]
        better = self._objective(bottoms[1], c, q) < self._objective(bottoms[0], c, q)
        return torch.where(better, bottoms[1], bottoms[0])

    def _best_on_grid(
        self, low: Tensor, high: Tensor, c: Tensor, q: Tensor, start: Tensor, keep_away: float = 0.0
    ) -> Tensor:
        """The best of ``start`` and the grid within [low, high]; with ``keep_away``, the best that far from it."""
        best, best_value = start, self._objective(start, c, q)
        if keep_away:
            best_value = torch.full_like(best_value, torch.inf)
        places = torch.linspace(-self.reach, self.reach, self.grid_points).tolist()
        for candidate in (c, *(torch.full_like(c, place).clamp_(low, high) for place in places)):
            value = self._objective(candidate, c, q)
            better = (value < best_value) & ((candidate - start).abs() >= keep_away)
            best, best_value = torch.where(better, candidate, best), torch.where(better, value, best_value)
        return best

    def _objective(self, z: Tensor, c: Tensor, q: Tensor) -> Tensor:
        return 2 * (z - c).square() + (q - self(z)).square()

    def _newton(self, z: Tensor, low: Tensor, high: Tensor, c: Tensor, q: Tensor) -> Tensor:
        """Zero of the objective's derivative in [low, high]: Newton where it stays inside, bisection where not."""
        eps = torch.finfo(z.dtype).eps
        for _ in range(self.max_steps):
            f = self(z)
            df, ddf = self.derivatives(f)
            slope = 4 * (z - c) - 2 * (q - f) * df
            curvature = 4 + 2 * df.square() - 2 * (q - f) * ddf
            low, high = torch.where(slope < 0, z, low), torch.where(slope > 0, z, high)
            newton = z - slope / curvature
            inside = (curvature > 0) & (newton >= low) & (newton <= high)
            z_next = torch.where(inside, newton, (low + high) / 2)
            if bool(((z_next - z).abs() <= 2 * eps * (1 + z.abs())).all()):
                return z_next
            z = z_next
        return z


@dataclass(frozen=True)
class Tanh(Smooth):
    """f(z) = tanh(z)."""

    lipschitz: float = 1.0
    reach: float = 8.0

    def __call__(self, z: Tensor) -> Tensor:
        return torch.tanh(z)

    def derivatives(self, f: Tensor) -> tuple[Tensor, Tensor]:
        df = 1 - f.square()
        return df, -2 * f * df


@dataclass(frozen=True)
class Sigmoid(Smooth):
    """f(z) = 1 / (1 + exp(-z))."""

    lipschitz: float = 0.25
    reach: float = 16.0

    def __call__(self, z: Tensor) -> Tensor:
        return torch.sigmoid(z)

    def derivatives(self, f: Tensor) -> tuple[Tensor, Tensor]:
        df = f * (1 - f)
        return df, df * (1 - 2 * f)


ACTIVATIONS: dict[str, Activation] = {
    "relu": LeakyReLU(slope=0.0),
    "leaky-relu": LeakyReLU(slope=0.01),
    "tanh": Tanh(),
    "sigmoid": Sigmoid(),
    "identity": Identity(),
}
