"""A worker: a contiguous run of layers, and the one epoch function of the package.

A worker with the whole chain and no links is serial training. Otherwise the boundaries at the worker's two ends are
shared with its neighbours, each of whom keeps a copy: the left worker updates q and sends it, the right one updates p
and sends it, and both update u from the same values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..admm.activations import Activation
from ..admm.diagnostics import Moves, boundary_terms, layer_terms
from ..admm.risks import Risk
from ..admm.state import Boundary, Layer, Weights
from ..admm.updates import (
    Gram,
    W_exact,
    W_linearized,
    b_step,
    gram,
    p_exact,
    p_gradient,
    p_linearized,
    p_quantized,
    q_step,
    squared_norm,
    u_step,
)
from .link import Link


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """The hyperparameters that every layer shares and that stay the same while it trains."""

    activation: Activation
    risk: Risk
    solver: Literal["linearized", "exact"]
    #: Weight of the relaxed constraints z = p W^T + b and q = f(z).
    nu: float
    #: Weight decay toward the anchors.
    mu: float


class Shares(NamedTuple):
    """One layer's contribution to the diagnostics, each field a 0-d tensor."""

    #: To the Lagrangian, the boundary to the right included and the risk not.
    objective: Tensor | float
    #: |p_{l+1} - q_l|^2.
    gap: Tensor | float
    #: |q_l|^2.
    output: Tensor | float


class Worker:
    """Layers of the chain, the boundaries between and beside them, and the data that enter at the chain's ends.

    ``boundaries[i]`` is to the left of ``layers[i]`` and ``boundaries[i + 1]`` to its right; None stands at the two
    ends of the chain. The first layer of the chain needs ``X``, the last needs ``y``. A worker may have no layers.
    """

    #: Recompute m from scratch every so many epochs; what it drifts by in between is rounding (see the tests).
    refresh_every = 100

    def __init__(
        self,
        layers: list[Layer],
        boundaries: list[Boundary | None],
        algorithm: Algorithm,
        *,
        rho: float,
        X: Tensor | None = None,
        y: Tensor | None = None,
        left: Link | None = None,
        right: Link | None = None,
    ) -> None:
        assert len(boundaries) == len(layers) + 1
        assert (left is None) or (boundaries[0] is not None)
        assert (right is None) or (boundaries[-1] is not None)
        self.layers = layers
        self.boundaries = boundaries
        self.algorithm = algorithm
        #: Weight of the constraint p = q. A penalty schedule may change it between epochs.
        self.rho = rho
        self.X = X
        self.y = y
        self.left = left
        self.right = right
        #: Epochs since the state was made, which tells when m is due for a refresh.
        self.epochs = 0
        self._first_gram: Gram | None = None

    @classmethod
    def whole_chain(
        cls, layers: list[Layer], inner: list[Boundary], algorithm: Algorithm, *, rho: float, X: Tensor, y: Tensor
    ) -> Worker:
        """The worker that owns every layer."""
        return cls(layers, [None, *inner, None], algorithm, rho=rho, X=X, y=y)

    def epoch(self) -> list[Moves]:
        """One epoch of Algorithm 1 on this worker's layers. Returns what moved, layer by layer.

        With a link to the left, the q of this epoch is still on its way when the epoch ends; the next p-phase, or
        :meth:`settle`, takes it in.
        """
        sites = list(zip(self.layers, self.boundaries[:-1], self.boundaries[1:], strict=True))
        if self.right is not None:
            self.right.expect()
        p_descents = []
        for layer, before, _ in sites:
            p_descents.append(self._update_p(layer, before))
            if layer is self.layers[0] and self.left is not None:
                assert before is not None
                self.left.send(before.p)
                self.left.expect()
        W_descents = [self._update_W(layer, before) for layer, before, _ in sites]
        b_moves = [self._update_b(layer) for layer in self.layers]
        z_moves = [self._update_z(layer, after) for layer, _, after in sites]
        # The last layer first: its neighbour is waiting for q.
        q_moves = [self._update_q(layer, after) for layer, _, after in reversed(sites)][::-1]
        for boundary in self.boundaries if self.left is None else self.boundaries[1:]:
            self._update_u(boundary)
        self.epochs += 1
        if self.epochs % self.refresh_every == 0:
            self.refresh()
        return [Moves(*row) for row in zip(p_descents, W_descents, b_moves, z_moves, q_moves, strict=True)]

    def settle(self) -> None:
        """Take in the q that is on its way, so that this worker's copy of its left boundary is complete."""
        if self.left is not None and self.left.expecting:
            boundary = self.boundaries[0]
            assert boundary is not None
            boundary.q = self.left.receive()
            self._update_u(boundary)

    def refresh(self) -> None:
        """Recompute every cached pre-activation, m = p W^T + b."""
        for layer, before in zip(self.layers, self.boundaries[:-1], strict=True):
            layer.m = torch.addmm(layer.b, self._input(before), layer.W.T)

    def shares(self) -> list[Shares]:
        """The diagnostics of the state as it is, layer by layer."""
        nu, mu = self.algorithm.nu, self.algorithm.mu
        result = []
        for layer, after in zip(self.layers, self.boundaries[1:], strict=True):
            objective = layer_terms(layer.z, layer.m, layer.W, layer.W0, nu=nu, mu=mu)
            gap = output = torch.zeros_like(objective)
            if after is not None:
                fz = self.algorithm.activation(layer.z)
                share, gap = boundary_terms(after.p, after.q, after.u, fz, nu=nu, rho=self.rho)
                objective, output = objective + share, squared_norm(after.q)
            result.append(Shares(objective, gap, output))
        return result

    def risk(self) -> Tensor:
        """R(z_L; y), on the worker that owns the last layer."""
        assert self.y is not None
        return self.algorithm.risk(self.layers[-1].z, self.y)

    def forward(self, x: Tensor) -> Tensor:
        """Pass activations through this worker's layers, as the trained network does."""
        for layer, after in zip(self.layers, self.boundaries[1:], strict=True):
            x = torch.addmm(layer.b, x, layer.W.T)
            if after is not None:
                x = self.algorithm.activation(x)
        return x

    def weights(self) -> list[Weights]:
        """The parameters as they are now; not copied, since steps make new tensors and never write into old ones."""
        return [Weights(layer.W, layer.b, layer.W0) for layer in self.layers]

    def _input(self, before: Boundary | None) -> Tensor:
        if before is not None:
            return before.p
        assert self.X is not None
        return self.X

    def _update_p(self, layer: Layer, before: Boundary | None) -> Tensor:
        if before is None:
            return layer.W.new_zeros(())
        nu, rho = self.algorithm.nu, self.rho
        rW = (layer.m - layer.z) @ layer.W
        if layer is self.layers[0]:
            self.settle()
        g = p_gradient(rW, before.p, before.q, before.u, nu=nu, rho=rho)
        if before.p_levels is not None:
            step = p_quantized(before.p, layer.m, layer.W, g, before.p_levels, nu=nu, rho=rho)
        elif self.algorithm.solver == "exact":
            step = p_exact(before.p, layer.m, layer.W, g, nu=nu, rho=rho)
        else:
            step = p_linearized(before.p, layer.m, layer.W, g, nu=nu, rho=rho)
        before.p, layer.m = step.value, step.m
        return step.descent

    def _update_W(self, layer: Layer, before: Boundary | None) -> Tensor:
        nu, mu = self.algorithm.nu, self.algorithm.mu
        p = self._input(before)
        if self.algorithm.solver == "exact":
            factor = None
            if before is None:
                # p_1 = X never changes, so neither does its factor.
                factor = self._first_gram = self._first_gram or gram(p, nu=nu, mu=mu)
            step = W_exact(layer.W, layer.W0, p, layer.m, layer.z, nu=nu, mu=mu, factor=factor)
        else:
            step = W_linearized(layer.W, layer.W0, p, layer.m, layer.z, nu=nu, mu=mu)
        layer.W, layer.m = step.value, step.m
        return step.descent

    def _update_b(self, layer: Layer) -> Tensor:
        layer.b, layer.m, decrement = b_step(layer.b, layer.m, layer.z)
        return squared_norm(decrement)

    def _update_z(self, layer: Layer, after: Boundary | None) -> Tensor:
        z_old = layer.z
        if after is None:
            assert self.y is not None
            layer.z = self.algorithm.risk.argmin_z(layer.m, self.y, self.algorithm.nu, z_old)
        else:
            layer.z = self.algorithm.activation.argmin_z(layer.m, after.q, z_old)
        return squared_norm(layer.z - z_old)

    def _update_q(self, layer: Layer, after: Boundary | None) -> Tensor:
        if after is None:
            return layer.W.new_zeros(())
        link = self.right if layer is self.layers[-1] else None
        if link is not None:
            after.p = link.receive()
        q_old = after.q
        fz = self.algorithm.activation(layer.z)
        after.q = q_step(after.p, after.u, fz, nu=self.algorithm.nu, rho=self.rho, levels=after.q_levels)
        if link is not None:
            link.send(after.q)
        return squared_norm(after.q - q_old)

    def _update_u(self, boundary: Boundary | None) -> None:
        if boundary is not None:
            boundary.u = u_step(boundary.u, boundary.p, boundary.q, rho=self.rho)
