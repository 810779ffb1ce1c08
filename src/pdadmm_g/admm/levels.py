r"""Level sets :math:`\Delta`: the values that a quantized p (and q) may take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .rows import Rows

#: The paper's level set, {-1, 0, 1, ..., 20}.
PAPER_LEVELS: tuple[float, ...] = tuple(float(value) for value in range(-1, 21))


class Levels:
    """A sorted finite set of values with the projection onto it.

    ``values`` holds the levels. ``bits`` is ceil(log2 |Delta|), what one entry costs on the wire as a level index.
    """

    def __init__(self, values: Tensor) -> None:
        rises = values.ndim == 1 and len(values) >= 2 and bool((values.diff() > 0).all())
        if not rises or not bool(torch.isfinite(values).all()):
            raise ValueError("levels must be at least two, finite, sorted and distinct")
        self.values = values
        self.bits = max(1, (len(values) - 1).bit_length())
        #: Step, least and largest multiple where the levels are the whole multiples of a step in between, else None.
        self.multiples: tuple[float, int, int] | None = None
        if len(zeros := (values == 0).nonzero()):
            least, largest = -int(zeros), len(values) - 1 - int(zeros)
            step = (values[1 - least] if largest else -values[-2]).item()
            if torch.equal(torch.arange(least, largest + 1).to(values) * step, values):
                self.multiples = step, least, largest
        # Between neighbouring floats the midpoint rounds onto one of them: each must still be nearest to itself.
        middle = (values[1:] + values[:-1]) / 2
        self._midpoints = torch.where(middle < values[1:], middle, values[:-1])

    @classmethod
    def calibrated(cls, activations: Tensor, bits: int, rows: Rows | None = None) -> Levels:
        """``2**bits`` equally spaced levels, zero among them, over the range of ``activations`` plus headroom.

        Activations grow while a stage trains, so the range gets half of its width more, unless the levels are so few
        that resolution is worth more. Zero is always a level: after ReLU most entries are zero and must stay so.

        Where other ``rows`` are elsewhere, it is the range of all of them.

        Where the range has no finite levels, any will do: the objective of such activations is not finite either, and
        ends the run. So they will where it is smaller than any number of full precision.
        """
        ends = torch.stack([-activations.min(), activations.max()]).clamp(min=0.0)
        low, high = (ends if rows is None else rows.largest(ends)).tolist()
        low = -low
        headroom = 1.5 if bits > 2 else 1.0
        precision = torch.finfo(activations.dtype)
        if not (precision.tiny <= high - low and headroom * (high - low) <= precision.max):
            low, high = 0.0, 1.0
        count = 2**bits
        step = headroom * (high - low) / (count - 1)
        zero = round(-headroom * low / step)
        index = torch.arange(count, dtype=activations.dtype, device=activations.device)
        return cls((index - zero) * step)

    def __len__(self) -> int:
        return len(self.values)

    def index(self, x: Tensor) -> Tensor:
        """Index of the nearest level, entry by entry, as bytes if they do: by rounding for multiples, else a search."""
        kind = torch.uint8 if self.bits <= 8 else torch.int64
        if self.multiples is None:
            return torch.bucketize(x, self._midpoints).to(kind)
        return _nearest(x, *self.multiples).sub_(self.multiples[1]).nan_to_num_().to(kind)

    def at(self, index: Tensor) -> Tensor:
        """The levels with these indices, of any integer type."""
        if self.multiples is None:
            return self.values[index.long()]
        # The product that made the level, which is faster than to look it up.
        step, least, _ = self.multiples
        return index.to(self.values.dtype).add_(least).mul_(step)

    def project(self, x: Tensor) -> Tensor:
        r""":math:`\mathrm{Proj}_\Delta(x)`; NaN stays NaN, so that a broken run is never rounded into a sound one."""
        if self.multiples is None:
            return torch.where(x.isnan(), x, self.at(self.index(x)))
        return _nearest(x, *self.multiples).mul_(self.multiples[0])


class LevelStack:
    """The levels of several layers, of each the multiples of a step. What is projected has one matrix a layer."""

    def __init__(self, sets: Sequence[Levels | None], like: Tensor) -> None:
        multiples = torch.tensor([levels.multiples for levels in sets if levels], dtype=torch.float64).to(like)
        self._multiples = multiples.T[..., None, None]

    def project(self, x: Tensor) -> Tensor:
        """As the sets do one by one, bit for bit."""
        return _nearest(x, *self._multiples).mul_(self._multiples[0])


def _nearest(x: Tensor, step: Any, least: Any, largest: Any) -> Tensor:
    """How many steps from zero the nearest level is."""
    return (x / step).round_().clamp_(least, largest)


#: The values that a quantized variable may take.
Delta = Levels | LevelStack
