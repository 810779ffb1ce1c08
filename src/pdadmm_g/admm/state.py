"""What is known of a layer and of a boundary between two layers, and how a forward pass fills it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .activations import Activation
from .levels import Levels


@dataclass
class Weights:
    """The parameters of one layer and what its weight decay pulls them toward."""

    #: (out, in).
    W: Tensor
    #: (out,).
    b: Tensor
    #: Anchor of the weight decay, as W: zero for the first and last layer, the identity for those in between.
    W0: Tensor


@dataclass
class Layer(Weights):
    """State of layer l besides the boundaries it touches."""

    #: The auxiliary variable of the linear map, (nodes, out).
    z: Tensor
    #: The pre-activation p W^T + b, kept up to date by every step.
    m: Tensor


@dataclass
class Boundary:
    """What stands between layer l and layer l+1.

    Layer l (left) updates q, layer l+1 (right) updates p, and u follows from both.
    """

    #: Input of layer l+1.
    p: Tensor
    #: Output of layer l.
    q: Tensor
    #: Dual variable of p = q.
    u: Tensor
    #: Delta for p, None when p is not quantized.
    p_levels: Levels | None = None
    #: Delta for q, None when q is not quantized.
    q_levels: Levels | None = None


@dataclass(frozen=True)
class Quantization:
    """Which variables are quantized, and on what levels."""

    p: bool = False
    q: bool = False
    #: Levels are calibrated to 2**bits values, unless given here.
    bits: int = 8
    levels: tuple[float, ...] | None = None

    def boundary(self, activations: Tensor) -> Boundary:
        """A boundary at rest: p = q = the activations (projected where quantized), u = 0."""
        if not self.p:
            return Boundary(activations, activations, activations.new_zeros(activations.shape))
        if self.levels is None:
            levels = Levels.calibrated(activations, self.bits)
        else:
            levels = Levels.from_sequence(self.levels, like=activations)
        p = levels.project(activations)
        q = p if self.q else activations
        return Boundary(p, q, activations.new_zeros(activations.shape), levels, levels if self.q else None)


def forward_state(
    weights: list[Weights], X: Tensor, activation: Activation, quantization: Quantization
) -> tuple[list[Layer], list[Boundary]]:
    """The state that a forward pass of ``X`` leaves: z = m, q = f(z), p = q, u = 0, on levels where quantized."""
    layers: list[Layer] = []
    boundaries: list[Boundary] = []
    p = X
    for index, w in enumerate(weights):
        m = p @ w.W.T + w.b
        layers.append(Layer(w.W, w.b, w.W0, z=m, m=m))
        if index < len(weights) - 1:
            boundaries.append(quantization.boundary(activation(m)))
            p = boundaries[-1].p
    return layers, boundaries
