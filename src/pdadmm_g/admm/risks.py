r"""Risks :math:`R(z_L; y)`, summed over the rows, and the z-subproblem of the last layer.

.. math:: z_L \leftarrow \arg\min_z\; R(z; y) + \tfrac{\nu}{2} \|z - m_L\|^2

It separates into one problem a row, in which the weight of the row is a factor of everything and so plays no part.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from .rows import Rows


class Targets(NamedTuple):
    """A class for every row, or a number for each output; and what each row weighs."""

    #: Class indices (rows,), or (rows, outputs) probabilities of the classes, zeros and ones for labels that are there
    #: or not, or other numbers. A class is the distribution with one 1.
    t: Tensor
    #: (rows,), all positive; None if each row weighs one.
    weights: Tensor | None = None

    @property
    def labels(self) -> Tensor:
        """The most probable class of every row."""
        return self.t.argmax(1) if self.t.is_floating_point() else self.t

    def distribution(self, like: Tensor) -> Tensor:
        """The t of all outputs, of classes their probabilities, in the shape and type of the logits ``like``."""
        if self.t.is_floating_point():
            return self.t.to(like.dtype)
        # Unlike torch's own, this does not wait for the device to check the labels.
        return torch.zeros_like(like).scatter_(1, self.t[:, None], 1.0)

    def rows(self) -> Rows:
        """The rows that these are the targets of, all of them here."""
        return Rows(len(self.t)) if self.weights is None else Rows.of_weights(self.weights)

    def accuracy(self, logits: Tensor) -> float:
        """The share of the rows, by weight, for which the logits are largest at the label."""
        return self._share(logits.argmax(1) == self.labels)

    def subset_accuracy(self, logits: Tensor) -> float:
        """The share of the rows, by weight, whose logits have the right sign for every label."""
        return self._share(((logits > 0) == (self.t > 0.5)).all(1))

    def _share(self, right: Tensor) -> float:
        return float(self.sum(right.double()) / self.rows().number)

    def sum(self, values: Tensor) -> Tensor:
        """The sum of one number a row, each with its weight."""
        return values.sum() if self.weights is None else (values * self.weights).sum()


class Risk(ABC):
    """A convex function of the logits ``z`` (rows, classes), given their targets ``y``."""

    @abstractmethod
    def __call__(self, z: Tensor, y: Targets) -> Tensor:
        """R(z; y), summed over the rows, each with its weight."""

    @abstractmethod
    def argmin_z(self, m: Tensor, y: Targets, nu: float, z_old: Tensor) -> Tensor:
        """Minimiser of R(z; y) + nu/2 |z - m|^2; ``z_old`` is a warm start and does not change the answer."""


class CrossEntropy(Risk):
    r""":math:`R = -\sum_i w_i \sum_c t_{ic} \log \mathrm{softmax}(z_i)_c`, t being one 1 where y is a label."""

    max_steps = 100
    max_halvings = 40
    blind_steps = 6
    blind_rounds = 8

    def __call__(self, z: Tensor, y: Targets) -> Tensor:
        if y.weights is None:
            return torch.nn.functional.cross_entropy(z, y.t, reduction="sum")
        return y.sum(torch.nn.functional.cross_entropy(z, y.t, reduction="none"))

    def argmin_z(self, m: Tensor, y: Targets, nu: float, z_old: Tensor) -> Tensor:
        r"""Damped Newton, row by row.

        With :math:`s = \mathrm{softmax}(z)` the Hessian is :math:`\mathrm{diag}(s + \nu) - s s^T`. Sherman-Morrison
        inverts it in O(classes); its denominator :math:`1 - \sum s^2/(s+\nu)` equals
        :math:`\nu \sum s/(s+\nu)`, which does not cancel for small :math:`\nu`.
        """
        if m.is_cuda:
            z_old, done = self._steps_on_gpu(m, y, nu, z_old)
            if done:
                return z_old
        target = y.distribution(m)
        z = z_old
        value = self._node_objective(z, m, y, nu)
        if not bool(torch.isfinite(value).all()):
            return torch.full_like(z, torch.nan)  # there is nothing to minimise, and nothing may hide it
        for _ in range(self.max_steps):
            s = torch.softmax(z, dim=1)
            pull = nu * (z - m)
            gradient = s - target + pull
            if _vanishes(gradient, z, pull):
                break
            direction = self._newton_direction(s, gradient, nu)
            z_next, value_next, moved = self._backtrack(z, value, direction, gradient, m, y, nu)
            if not moved:
                break
            z, value = z_next, value_next
        return z

    def _steps_on_gpu(self, m: Tensor, y: Targets, nu: float, z: Tensor) -> tuple[Tensor, bool]:
        """Several steps between two looks at the result, which the GPU would be idle for; none in a CUDA graph.

        Returns also whether that was enough. It nearly always is: see ``argmin_z_blind``.
        """
        for _ in range(self.blind_rounds):
            z = self.argmin_z_blind(m, y, nu, z)
            if torch.cuda.is_current_stream_capturing():
                return z, True
            pull = nu * (z - m)
            if _vanishes(torch.softmax(z, dim=1) - y.distribution(m) + pull, z, pull):
                return z, True
        return z, False

    @staticmethod
    def _newton_direction(s: Tensor, gradient: Tensor, nu: float) -> Tensor:
        inverse = 1 / (s + nu)
        scaled = inverse * gradient
        correction = (s * scaled).sum(1, keepdim=True) / (nu * (s * inverse).sum(1, keepdim=True))
        return scaled + inverse * s * correction

    def argmin_z_blind(self, m: Tensor, y: Targets, nu: float, z_old: Tensor) -> Tensor:
        r"""The same without a look at any value: a fixed number of Newton steps from ``z_old``.

        Cross-entropy is self-concordant in the generalised sense: along a direction d its third derivative is at most
        :math:`\delta = \max d - \min d` times the second. Steps of :math:`\log(1 + \delta)/\delta` therefore always
        descend, and are full Newton steps near the minimum.
        """
        target = y.distribution(m)
        z = z_old
        for _ in range(self.blind_steps):
            s = torch.softmax(z, dim=1)
            direction = self._newton_direction(s, s - target + nu * (z - m), nu)
            spread = (direction.amax(1, keepdim=True) - direction.amin(1, keepdim=True)).clamp_min(1e-12)
            z = z - direction * (torch.log1p(spread) / spread)
        return z

    def _backtrack(
        self, z: Tensor, value: Tensor, direction: Tensor, gradient: Tensor, m: Tensor, y: Targets, nu: float
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
    def _node_objective(z: Tensor, m: Tensor, y: Targets, nu: float) -> Tensor:
        risk = torch.nn.functional.cross_entropy(z, y.t, reduction="none")
        return risk + nu / 2 * (z - m).square().sum(1)


class Logistic(Risk):
    r""":math:`R = \sum_i w_i \sum_c \log(1 + e^{z_{ic}}) - t_{ic} z_{ic}`: each class is there or not by itself.

    t is 0 or 1, or anything between.
    """

    max_steps = 100
    #: Steps between two looks at the result, which a GPU would be idle for; and all steps in a CUDA graph.
    steps_on_gpu = 8
    steps_captured = 24

    def __call__(self, z: Tensor, y: Targets) -> Tensor:
        losses = torch.nn.functional.binary_cross_entropy_with_logits(z, y.distribution(z), reduction="none")
        return losses.sum() if y.weights is None else y.sum(losses.sum(1))

    def argmin_z(self, m: Tensor, y: Targets, nu: float, z_old: Tensor) -> Tensor:
        r"""Newton's method for each entry: the root of :math:`g(z) = \sigma(z) - t + \nu (z - m)`, which rises.

        It lies below zero where :math:`g(0) > 0`, and g is convex there; else above, where g is concave. So steps of
        :math:`g / (\sigma (1 - \sigma) + \nu)` that are cut off at zero converge from anywhere on that side, without
        a search, and from the second one on they only approach.
        """
        t = y.distribution(m)
        below = 0.5 - t - nu * m > 0
        z = _cut_off(z_old, below)
        captured = m.is_cuda and torch.cuda.is_current_stream_capturing()
        for step in range(self.steps_captured if captured else self.max_steps):
            s, pull = torch.sigmoid(z), nu * (z - m)
            gradient = s - t + pull
            if not captured and step % (self.steps_on_gpu if m.is_cuda else 1) == 0 and _vanishes(gradient, z, pull):
                break
            z = _cut_off(z - gradient / (s * (1 - s) + nu), below)
        return z


def _cut_off(z: Tensor, below: Tensor) -> Tensor:
    """Zero for what is not on the side of it that it belongs to. NaN stays NaN."""
    return torch.where(below, z.clamp(max=0), z.clamp(min=0))


def _vanishes(gradient: Tensor, z: Tensor, pull: Tensor) -> bool:
    """Rounding z itself moves the gradient by up to eps |z|: less cannot be reached."""
    return bool((gradient.abs() <= 4 * torch.finfo(z.dtype).eps * (1 + z.abs() + pull.abs())).all())


class SquaredError(Risk):
    r""":math:`R = \tfrac12 \sum_i w_i \|z_i - t_i\|^2`."""

    def __call__(self, z: Tensor, y: Targets) -> Tensor:
        distances = (z - y.distribution(z)).square()
        return (distances.sum() if y.weights is None else y.sum(distances.sum(1))) / 2

    def argmin_z(self, m: Tensor, y: Targets, nu: float, z_old: Tensor) -> Tensor:
        return (y.distribution(m) + nu * m) / (1 + nu)


RISKS: dict[str, Risk] = {"cross-entropy": CrossEntropy(), "logistic": Logistic(), "squared-error": SquaredError()}
