"""Penalty schedules: how rho changes from epoch to epoch."""

from __future__ import annotations

import math
from typing import Any


class ConstantPenalty:
    """rho stays what it is."""

    def __call__(self, rho: float, record: dict[str, Any]) -> float:
        """The rho of the next epoch."""
        return rho


class StallPenalty(ConstantPenalty):
    """Doubles rho when the primal residual has not fallen by a tenth over ten epochs.

    Stays within a factor of a thousand of where it started. A residual of zero is no stall.
    """

    window, needed, factor, reach = 10, 0.9, 2.0, 1e3

    def __init__(self) -> None:
        self.epochs = 0
        self.start: float | None = None
        self.before = math.inf

    def __call__(self, rho: float, record: dict[str, Any]) -> float:
        self.start = self.start or rho
        self.epochs += 1
        if self.epochs % self.window:
            return rho
        primal, before = record["primal_residual"], self.before
        self.before = primal
        if primal == 0 or primal < self.needed * before:
            return rho
        return min(rho * self.factor, self.start * self.reach)


class BalancePenalty(ConstantPenalty):
    """Keeps the two residuals within a factor of ten: doubles rho when the primal leads, halves it when the dual does.

    Looks every ten epochs, and stays within a factor of a thousand of where it started.
    """

    window, ratio, factor, reach = 10, 10.0, 2.0, 1e3

    def __init__(self) -> None:
        self.epochs = 0
        self.start: float | None = None

    def __call__(self, rho: float, record: dict[str, Any]) -> float:
        self.start = self.start or rho
        self.epochs += 1
        if self.epochs % self.window:
            return rho
        primal, dual = record["primal_residual"], record["dual_residual"]
        if primal > self.ratio * dual:
            return min(rho * self.factor, self.start * self.reach)
        if dual > self.ratio * primal:
            return max(rho / self.factor, self.start / self.reach)
        return rho


PENALTY_SCHEDULES: dict[str, type[ConstantPenalty]] = {
    "constant": ConstantPenalty,
    "stall": StallPenalty,
    "balance": BalancePenalty,
}
