"""A worker: a contiguous run of layers, and the one epoch function of the package.

A worker with the whole chain and no links is serial training. Otherwise the boundaries at the worker's two ends are
shared with its neighbours, each of whom keeps a copy: the left worker updates q and sends it, the right one updates p
and sends it, and both update u from the same values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..admm.activations import Activation
from ..admm.diagnostics import Moves, layer_terms
from ..admm.risks import Risk
from ..admm.state import Boundary, Layer, Weights
from ..admm.updates import (
    Gram,
    Product,
    W_exact,
    W_linearized,
    b_decrement,
    gram,
    p_exact,
    p_linearized,
    p_quantized,
    squared_norm,
)
from . import phases
from .cuda_graph import RecordedEpoch
from .link import Link
from .phases import by_rows, total


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
    #: The product of an epoch's large matrices.
    mm: Product = torch.mm


class Shares(NamedTuple):
    """One layer's contribution to the diagnostics, each field a 0-d tensor."""

    #: To the Lagrangian, the boundary to the right included and the risk not.
    objective: Tensor | float
    #: |p_{l+1} - q_l|^2.
    gap: Tensor | float
    #: |q_l|^2.
    output: Tensor | float


class Culprit(NamedTuple):
    """A variable with NaN or infinity in it. The smallest of several is the likeliest source of the others."""

    #: 0 if it was seen as a step read it, 1 if after the epoch, when it may have come from another.
    hindsight: int
    #: Its place in ``ORDER``.
    place: int
    #: The layer l of p_l, ..., u_l, counted from the worker's first, which is 0.
    layer: int

    @property
    def variable(self) -> str:
        """One of p, W, b, z, q, u."""
        return ORDER[self.place]


#: The order in which an epoch passes NaN on within a layer. u comes before q: a broken u breaks q in the same epoch,
#: while a broken q does not outlive it.
ORDER = ("p", "W", "b", "z", "u", "q")


class Worker:
    """Layers of the chain, the boundaries between and beside them, and the data that enter at the chain's ends.

    ``boundaries[i]`` is to the left of ``layers[i]`` and ``boundaries[i + 1]`` to its right; None stands at the two
    ends of the chain. The first layer of the chain needs ``X``, the last needs ``y``. A worker may have no layers.
    """

    #: Recompute r from scratch every so many epochs; what it drifts by in between is rounding (see the tests).
    refresh_every = 100
    #: Epochs before one is recorded as a CUDA graph, where that helps: libraries set themselves up in the first ones.
    record_after = 3

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
        #: Epochs since the state was made, which tells when r is due for a refresh.
        self.epochs = 0
        #: The diagnostics at the end of the last epoch, layer by layer; empty before the first.
        self.measured: list[Shares] = []
        self._seen: Culprit | None = None
        self._runs = 0
        self._recorded: RecordedEpoch | None = None
        self._first_gram: Gram | None = None
        self._buffers: dict[int, Tensor] = {}

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
        if self._runs >= self.record_after and RecordedEpoch.suits(self):
            if self._recorded is None or self._recorded.rho != self.rho:
                self._recorded = RecordedEpoch(self)
            moves, self.measured = self._recorded(), self._recorded.measured
        else:
            moves = self.run_epoch()
        self.epochs += 1
        if self.epochs % self.refresh_every == 0:
            self.refresh()
        return moves

    def run_epoch(self) -> list[Moves]:
        """The phases of :meth:`epoch`, one after the other."""
        self._runs += 1
        sites = list(zip(self.layers, self.boundaries[:-1], self.boundaries[1:], strict=True))
        if self.right is not None:
            self.right.expect()
        moves, residuals = [], []
        # A layer's p, W, b and z depend on nothing that the other layers change before the q-phase.
        for layer, before, after in sites:
            p_descent, sums = self._update_p(layer, before)
            if layer is self.layers[0] and self.left is not None:
                assert before is not None
                self.left.send(before.p)
                self.left.expect()
            W_descent, b_move, z_move, rr = self._update_W_b_z(layer, before, after, sums)
            moves.append((p_descent, W_descent, b_move, z_move))
            residuals.append(rr)
        # The last layer first: its neighbour is waiting for q.
        ends = [self._update_q(layer, after) for layer, _, after in reversed(sites)][::-1]
        self.measured = [
            self._shares(layer, rr, *end[1:]) for layer, rr, end in zip(self.layers, residuals, ends, strict=True)
        ]
        return [Moves(*move, end[0]) for move, end in zip(moves, ends, strict=True)]

    def settle(self) -> None:
        """Take in the q that is on its way, so that this worker's copy of its left boundary is complete."""
        if self.left is not None and self.left.expecting:
            boundary = self.boundaries[0]
            assert boundary is not None
            boundary.q = self.left.receive()
            by_rows(partial(phases.dual, rho=self.rho), boundary.u, boundary.p, boundary.q)

    def refresh(self) -> None:
        """Recompute every residual, r = p W^T + b - z."""
        for layer, before in zip(self.layers, self.boundaries[:-1], strict=True):
            torch.addmm(layer.b, self._input(before), layer.W.T, out=layer.r)
            layer.r -= layer.z

    def shares(self) -> list[Shares]:
        """The diagnostics of the state as it is, layer by layer."""
        phase = partial(phases.boundary, f=self.algorithm.activation, nu=self.algorithm.nu, rho=self.rho)
        result = []
        for layer, after in zip(self.layers, self.boundaries[1:], strict=True):
            rr = squared_norm(layer.r)
            between = rr.new_zeros(3) if after is None else total(by_rows(phase, after.p, after.q, after.u, layer.z))
            result.append(self._shares(layer, rr, *between))
        return result

    def _shares(self, layer: Layer, rr: Tensor, between: Tensor, gap: Tensor, output: Tensor) -> Shares:
        own = layer_terms(rr, layer.W, layer.W0, nu=self.algorithm.nu, mu=self.algorithm.mu)
        # r is kept, not recomputed, and so hides a NaN in W or b; zero times their sum does not.
        return Shares(own + between + 0 * (layer.W.sum() + layer.b.sum()), gap, output)

    def culprit(self, moves: list[Moves]) -> Culprit | None:
        """Where the NaN or infinity came from that an epoch with these ``moves`` measured; None if not from here.

        On a CPU the p-step and the z-step look at what they read if their result is not finite, which catches p, W, q
        and u before anything else is computed from them. Otherwise the first variable of ``ORDER`` that is not finite
        after the epoch is named, of several layers the first. What is left is a q that went into nothing but its move.
        """
        if self._seen is not None:
            return self._seen
        found = []
        for index, (layer, before, after) in enumerate(
            zip(self.layers, self.boundaries[:-1], self.boundaries[1:], strict=True)
        ):
            outputs = (None, None) if after is None else (after.u, after.q)
            state = (self._input(before), layer.W, layer.b, layer.z, *outputs)
            found += [Culprit(1, place, index) for place, x in enumerate(state) if x is not None and not _is_finite(x)]
        found += [Culprit(1, ORDER.index("q"), i) for i, move in enumerate(moves) if not math.isfinite(move.q)]
        return min(found, default=None)

    def _look_at(self, layer: Layer, result: Tensor, inputs: dict[str, Tensor], *, of_layer_before: str = "") -> None:
        """Remember the first of a step's inputs that is not finite, if its result is not. A GPU is not waited for."""
        if result.is_cuda or math.isfinite(result) or self._seen is not None:
            return
        index = next(i for i, own in enumerate(self.layers) if own is layer)
        broken = [name for name, x in inputs.items() if not _is_finite(x)]
        if broken:
            self._seen = Culprit(0, ORDER.index(broken[0]), index - (broken[0] in of_layer_before))

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
        """A copy of the parameters as they are now, which nothing that happens to them later can spoil."""
        return [Weights(layer.W.clone(), layer.b.clone(), layer.W0) for layer in self.layers]

    def _input(self, before: Boundary | None) -> Tensor:
        if before is not None:
            return before.p
        assert self.X is not None
        return self.X

    def _update_p(self, layer: Layer, before: Boundary | None) -> tuple[Tensor, Tensor]:
        """The descent of the p-step, and the column sums of the residual that it leaves."""
        if before is None:
            return layer.W.new_zeros(()), layer.r.sum(0)
        nu, rho, mm = self.algorithm.nu, self.rho, self.algorithm.mm
        g = mm(layer.r, layer.W, out=self._scratch(before.p))
        if layer is self.layers[0]:
            self.settle()
        gg = total(by_rows(partial(phases.gradient, nu=nu, rho=rho), g, before.p, before.q, before.u))
        inputs = {"p": before.p, "W": layer.W, "q": before.q, "u": before.u}
        self._look_at(layer, gg, inputs, of_layer_before="qu")
        out = self._scratch(layer.r, slot=1)
        if before.p_levels is not None:
            step = p_quantized(
                before.p, layer.W, g, before.p_levels, nu=nu, rho=rho, out=out, gg=gg, each=by_rows, mm=mm
            )
        elif self.algorithm.solver == "exact":
            step = p_exact(layer.W, g, nu=nu, rho=rho, out=out, mm=mm)
        else:
            step = p_linearized(layer.W, g, nu=nu, rho=rho, out=out, gg=gg, mm=mm)
        by_rows(partial(phases.move, length=step.length, levels=before.p_levels), before.p, step.direction)
        sums = total(by_rows(partial(phases.move_and_sum, length=step.length), layer.r, step.product))
        return step.descent, sums

    def _update_W_b_z(
        self, layer: Layer, before: Boundary | None, after: Boundary | None, sums: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Descent of the W-step, |b_new - b|^2, |z_new - z|^2 and |r|^2. ``sums`` are the column sums of r."""
        nu, mu, mm = self.algorithm.nu, self.algorithm.mu, self.algorithm.mm
        p, out = self._input(before), self._scratch(layer.r)
        if self.algorithm.solver == "exact":
            factor = None
            if before is None:
                # p_1 = X never changes, so neither does its factor.
                factor = self._first_gram = self._first_gram or gram(p, nu=nu, mu=mu)
            step = W_exact(layer.W, layer.W0, p, layer.r, nu=nu, mu=mu, factor=factor, out=out, mm=mm)
        else:
            step = W_linearized(layer.W, layer.W0, p, layer.r, nu=nu, mu=mu, out=out, mm=mm)
        layer.W = layer.W - step.length * step.direction
        decrement = b_decrement(sums - step.length * step.product.sum(0), len(layer.r))
        layer.b = layer.b - decrement
        if after is None:
            assert self.y is not None
            m = phases.pre_activation(layer.z, layer.r, step.product, length=step.length, decrement=decrement)
            z_old, layer.z = layer.z, self.algorithm.risk.argmin_z(m, self.y, nu, layer.z)
            torch.sub(m, layer.z, out=layer.r)
            z_move, rr = squared_norm(layer.z - z_old), squared_norm(layer.r)
        else:
            f = self.algorithm.activation
            phase = partial(phases.z_and_residual, length=step.length, decrement=decrement, f=f)
            z_move, rr = total(by_rows(phase, layer.z, layer.r, step.product, after.q))
            self._look_at(layer, z_move, {"q": after.q})
        return step.descent, squared_norm(decrement), z_move, rr

    def _update_q(self, layer: Layer, after: Boundary | None) -> Tensor:
        """|q_new - q|^2, the boundary's share of the Lagrangian, |p - q|^2 and |q|^2."""
        if after is None:
            return layer.W.new_zeros(4)
        link = self.right if layer is self.layers[-1] else None
        if link is not None:
            after.p = link.receive()
        nu, f = self.algorithm.nu, self.algorithm.activation
        phase = partial(phases.q_and_u, f=f, nu=nu, rho=self.rho, levels=after.q_levels)
        result = total(by_rows(phase, after.q, after.u, after.p, layer.z))
        if link is not None:
            link.send(after.q)
        return result

    def _scratch(self, like: Tensor, slot: int = 0) -> Tensor:
        """Memory for a product of the shape of ``like``: one buffer per slot for all layers."""
        buffer = self._buffers.get(slot)
        if buffer is None or buffer.numel() < like.numel():
            buffer = self._buffers[slot] = like.new_empty(like.numel())
        return buffer[: like.numel()].view(like.shape)


def _is_finite(x: Tensor) -> bool:
    return bool(torch.isfinite(x).all())
