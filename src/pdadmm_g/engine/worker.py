"""A worker: a contiguous run of layers, and the one epoch function of the package.

A worker with the whole chain and no links is serial training. Otherwise the boundaries at the worker's two ends are
shared with its neighbours, each of whom keeps a copy: the left worker updates q and sends it, the right one updates p
and sends it, and both update u from the same values.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from ..admm.activations import Activation
from ..admm.diagnostics import Moves, layer_terms
from ..admm.risks import Risk
from ..admm.state import SMALL, Boundary, Layer, Weights
from ..admm.updates import (
    Gram,
    Step,
    W_exact,
    W_linearized,
    b_decrement,
    column_sums,
    gram,
    matmul,
    p_exact,
    p_linearized,
    p_quantized,
    squared_norm,
    sum_up,
    u_implied,
)
from . import phases
from .cuda_graph import RecordedEpoch
from .link import Link
from .phases import by_rows, total
from .precision import Precision, aligned, product
from .stacking import Group, grouped


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
    #: Of the products of an epoch's large matrices.
    precision: Precision = "fp32"


class Shares(NamedTuple):
    """The contribution of a layer to the diagnostics, each field a 0-d tensor, or of a group, with a number a layer."""

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
    Layers and boundaries are changed in place.
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
        self._on_gpu = bool(layers) and layers[0].W.is_cuda
        phases.keep_heap()
        self._mm = product(algorithm.precision)
        self._groups = grouped(layers, boundaries, algorithm.activation)
        self._seen: Culprit | None = None
        self._runs = 0
        self._recorded: RecordedEpoch | None = None
        self._first_gram: Gram | None = None
        self._buffers: dict[str, Tensor] = {}

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
        with torch.cuda.device(self.layers[0].W.device) if self._on_gpu else nullcontext():
            if self._recorded is not None and self._recorded.rho != self.rho:
                # What depends on rho is compiled again in an epoch that is not recorded.
                self._recorded, self._runs = None, self.record_after - 1
            if self._on_gpu and self._runs >= self.record_after and RecordedEpoch.suits(self):
                self._recorded = self._recorded or RecordedEpoch(self)
                moves, self.measured = self._recorded(), self._recorded.measured
            else:
                moves = self.run_epoch()
            self.epochs += 1
            if self.epochs % self.refresh_every == 0:
                self.refresh()
            return moves

    def run_epoch(self) -> list[Moves]:
        """The steps of :meth:`epoch`, one after the other.

        A layer's p, W, b and z depend on nothing that the other layers change before their q-steps, and q_l on nothing
        of layer l + 1 but its p. So groups go from the last to the first, each with its q and u at once. The neighbour
        to the left waits for the p of the first layer, which therefore comes before everything else.
        """
        self._runs += 1
        if self.right is not None:
            self.right.expect()
        early = None
        if self.left is not None:
            early = self._update_p(self._groups[0])
            assert self.boundaries[0] is not None
            self.left.send(self.boundaries[0].p)
            self.left.expect()
        done = []
        for group in reversed(self._groups):
            p_descent, sums = early if early and group.start == 0 else self._update_p(group)
            step, decrement, WW, W_sum = self._update_W_b(group, sums)
            z_move, rr, q_move, *between = self._update_z_q_u(group, step, decrement)
            shares = self._shares(group.layer, rr, WW, W_sum, *between)
            done.append((Moves(p_descent, step.descent, squared_norm(decrement), z_move, q_move), shares))
        done.reverse()
        self.measured = _layer_by_layer(Shares, [shares for _, shares in done])
        return _layer_by_layer(Moves, [moves for moves, _ in done])

    def settle(self) -> None:
        """Take in the q that is on its way, so that this worker's copy of its left boundary is complete."""
        if self.left is not None and self.left.expecting:
            boundary = self.boundaries[0]
            assert boundary is not None
            boundary.q.copy_(self.left.receive())
            by_rows(partial(phases.dual, rho=self.rho), boundary.u, boundary.p, boundary.q)

    def refresh(self) -> None:
        """Recompute every residual, r = p W^T + b - z."""
        for layer, before in zip(self.layers, self.boundaries[:-1], strict=True):
            torch.addmm(layer.b, self._input(before), layer.W.T, out=layer.r)
            layer.r -= layer.z

    def u(self, place: int) -> Tensor:
        """The dual variable of the boundary to the right of a layer, whether it is kept or not."""
        boundary = self.boundaries[place + 1]
        assert boundary is not None
        if boundary.u is not None:
            return boundary.u
        return u_implied(boundary.q, self.algorithm.activation(self.layers[place].z), nu=self.algorithm.nu)

    def shares(self) -> list[Shares]:
        """The diagnostics of the state as it is, layer by layer."""
        phase = partial(phases.boundary, f=self.algorithm.activation, nu=self.algorithm.nu, rho=self.rho)
        result = []
        for group in self._groups:
            layer, after = group.layer, group.after
            rr, WW = squared_norm(layer.r), squared_norm(layer.W - layer.W0)
            between = [rr.new_zeros(len(rr))] * 3
            if after is not None:
                between = list(total(by_rows(phase, after.p, after.q, after.u, layer.z)))
            result.append(self._shares(layer, rr, WW, sum_up(layer.W), *between))
        return _layer_by_layer(Shares, result)

    def _shares(
        self, layer: Layer, rr: Tensor, WW: Tensor, W_sum: Tensor, between: Tensor, gap: Tensor, output: Tensor
    ) -> Shares:
        own = layer_terms(rr, WW, nu=self.algorithm.nu, mu=self.algorithm.mu)
        # r is kept, not recomputed, and so hides a NaN in W or b; zero times their sum does not.
        return Shares(own + between + 0 * (W_sum + layer.b.sum((-2, -1))), gap, output)

    def culprit(self, moves: list[Moves]) -> Culprit | None:
        """Where the NaN or infinity came from that an epoch with these ``moves`` measured; None if not from here.

        On a CPU the p-step looks at what it reads if its result is not finite, and the z-step at q, which catches p, W,
        q and u before anything else is computed from them. Otherwise the first variable of ``ORDER`` that is not finite
        after the epoch is named, of several layers the first. What is left is a q that went into nothing but its move.
        """
        if self._seen is not None:
            return self._seen
        found = []
        for index, (layer, before, after) in enumerate(
            zip(self.layers, self.boundaries[:-1], self.boundaries[1:], strict=True)
        ):
            outputs = (None, None) if after is None else (self.u(index), after.q)
            state = (self._input(before), layer.W, layer.b, layer.z, *outputs)
            found += [Culprit(1, place, index) for place, x in enumerate(state) if x is not None and not _is_finite(x)]
        found += [Culprit(1, ORDER.index("q"), i) for i, move in enumerate(moves) if not math.isfinite(move.q)]
        return min(found, default=None)

    def _look_at(self, group: Group, result: Tensor, inputs: dict[str, Tensor | None], before: str = "") -> None:
        """Remember the first of a step's inputs that is not finite, if its result is not. A GPU is not waited for.

        ``before`` names the inputs that belong to the layer before.
        """
        if result.is_cuda or _is_finite(result):
            return
        found = [
            Culprit(0, ORDER.index(name), group.start + place - (name in before))
            for name, x in inputs.items()
            if x is not None
            for place, one in enumerate(x)
            if not _is_finite(one)
        ]
        if found and self._seen is None:
            self._seen = found[0]

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

    def _update_p(self, group: Group) -> tuple[Tensor, Tensor]:
        """The descent of the p-step, and the column sums of the residual that it leaves."""
        layer, before = group.layer, group.before
        if before is None:
            return layer.W.new_zeros(len(layer.W)), column_sums(layer.r)
        nu, rho, mm = self.algorithm.nu, self.rho, self._mm
        g = mm(self._factor("r", layer.r), layer.W, out=self._scratch("g", *before.p.shape))
        if group.start == 0:
            self.settle()
        phase = partial(phases.gradient, f=self.algorithm.activation, nu=nu, rho=rho)
        gg = total(by_rows(phase, g, before.p, before.q, before.u, group.z_before))
        inputs = {"p": before.p, "W": layer.W, "q": before.q, "u": before.u}
        self._look_at(group, gg, inputs, before="qu")
        out = self._scratch("gWt", *layer.r.shape)
        if before.p_levels is not None:
            step = p_quantized(
                before.p, layer.W, g, before.p_levels, nu=nu, rho=rho, out=out, gg=gg, each=by_rows, mm=mm
            )
        elif self.algorithm.solver == "exact":
            step = p_exact(layer.W, g, nu=nu, rho=rho, out=out, mm=mm)
        else:
            step = p_linearized(layer.W, g, nu=nu, rho=rho, out=out, gg=gg, mm=mm)
        move = partial(phases.move, length=step.length, levels=before.p_levels)
        by_rows(move, before.p, step.direction, self._copy("p", before.p))
        move_and_sum = partial(phases.move_and_sum, length=step.length)
        sums = total(by_rows(move_and_sum, layer.r, step.product, self._copy("r", layer.r)))
        return step.descent, sums

    def _update_W_b(self, group: Group, sums: Tensor) -> tuple[Step, Tensor, Tensor, Tensor]:
        """The W-step, the decrement of b, |W - W^0|^2 and the sum of W. ``sums`` are the column sums of r."""
        nu, mu, mm = self.algorithm.nu, self.algorithm.mu, self._mm
        layer = group.layer
        p = self._input(group.before).view(*layer.r.shape[:2], -1)  # X has no leading dimension
        W, W0 = layer.W, layer.W0
        out = self._scratch("gWt", *layer.r.shape)  # of the p-step, which is done with it
        # The p-step has made the copies of p and r that are needed, but others have taken the place of early ones.
        ready = group.before is not None and not (self.left is not None and group.start == 0)
        if self.algorithm.solver == "exact":
            columns = self._copy("p", p) if ready else None
            factor = self._gram(group, p if columns is None else columns)
            step = W_exact(W, W0, p, layer.r, nu=nu, mu=mu, factor=factor, columns=columns, out=out, mm=mm)
        else:
            p, r = self._factor("p", p, ready=ready), self._factor("r", layer.r, ready=ready)
            G = mm(r.mT, p)
            GG = total(by_rows(partial(phases.weight_gradient, nu=nu, mu=mu), G, W, W0))
            step = W_linearized(p, G, nu=nu, mu=mu, out=out, GG=GG, mm=mm)
        WW, W_sum = total(by_rows(partial(phases.move_weights, length=step.length), W, step.direction, W0))
        decrement = b_decrement(sums - step.length * column_sums(step.product), layer.r.shape[-2])
        layer.b -= decrement
        return step, decrement, WW, W_sum

    def _gram(self, group: Group, p: Tensor) -> Gram:
        """What the exact W-step inverts. p_1 = X never changes, so neither does its factor."""
        if group.before is None and self._first_gram is not None:
            return self._first_gram
        mm = self._mm if self.algorithm.precision == "tf32" else matmul  # bfloat16 is too coarse for a factorisation
        factor = gram(p, nu=self.algorithm.nu, mu=self.algorithm.mu, mm=mm)
        self._first_gram = factor if group.before is None else self._first_gram
        return factor

    def _update_z_q_u(self, group: Group, step: Step, decrement: Tensor) -> Tensor:
        """|z_new - z|^2, |r|^2, |q_new - q|^2, the boundary's share of the Lagrangian, |p - q|^2 and |q|^2."""
        layer, after, nu, f = group.layer, group.after, self.algorithm.nu, self.algorithm.activation
        if after is None:
            assert self.y is not None
            m = phases.pre_activation(layer.z, layer.r, step.product, length=step.length, decrement=decrement)
            z_new = self.algorithm.risk.argmin_z(m[0], self.y, nu, layer.z[0])[None]
            z_move = squared_norm(z_new - layer.z)
            layer.z.copy_(z_new)
            torch.sub(m, layer.z, out=layer.r)
            rr = squared_norm(layer.r)
            return torch.stack([z_move, rr, *[torch.zeros_like(rr)] * 4])
        link = self.right if group is self._groups[-1] else None
        if link is not None:
            after.p[-1].copy_(link.receive())
        phase = partial(
            phases.z_q_u, length=step.length, decrement=decrement, f=f, nu=nu, rho=self.rho, levels=after.q_levels
        )
        *result, q_sum = total(by_rows(phase, layer.z, layer.r, step.product, after.q, after.u, after.p))
        if link is not None:
            link.send(after.q[-1])
        self._look_at(group, q_sum, {"q": q_sum})
        return torch.stack(result)

    def _factor(self, name: str, x: Tensor, *, ready: bool = False) -> Tensor:
        """x as a factor of the large products: itself, or a copy, which may be ``ready``."""
        if not ready:
            return x if self.algorithm.precision != "bf16" else self._scratch(name, *x.shape).copy_(x)
        copy = self._copy(name, x)
        return x if copy is None else copy

    def _copy(self, name: str, x: Tensor) -> Tensor | None:
        """Where the W-step looks for a copy of p or r: rounded, or one of the two in the other order of memory."""
        precision, exact = self.algorithm.precision, self.algorithm.solver == "exact"
        if precision == "bf16" and not exact:
            return self._scratch(name, *x.shape)
        if precision == "tf32" and name == ("p" if exact else "r") and x.is_cuda and x.numel() > SMALL:
            layers, rows, width = x.shape
            return self._scratch("g", layers, width, aligned(rows))[..., :rows].mT  # the p-step is done with g
        return None

    def _scratch(self, name: str, layers: int, rows: int, width: int) -> Tensor:
        """Memory for a factor or product of that shape, which all layers share."""
        buffer, size = self._buffers.get(name), layers * aligned(rows) * aligned(width)
        if buffer is None or buffer.numel() < size:
            kind = torch.bfloat16 if self.algorithm.precision == "bf16" else None
            buffer = self._buffers[name] = self.layers[0].W.new_empty(size, dtype=kind)
        return buffer[: layers * rows * width].view(layers, rows, width)


Row = TypeVar("Row", Shares, Moves)


def _layer_by_layer(kind: type[Row], groups: list[Row]) -> list[Row]:
    """What was found group by group."""
    return [kind(*one) for group in groups for one in torch.stack([torch.as_tensor(x) for x in group]).unbind(1)]


def _is_finite(x: Tensor) -> bool:
    return bool(torch.isfinite(x).all())
