"""Small and medium networks on a GPU: launching the hundreds of kernels of an epoch takes longer than running them.

A CUDA graph records the launches of one epoch and replays them at once. It needs every tensor in the same place in
every epoch, and nothing on the way that waits for a result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..admm.activations import Smooth
from ..admm.diagnostics import Moves

if TYPE_CHECKING:
    from .worker import Worker


#: Up to so many activations of a layer an epoch is recorded.
RECORDED = 1 << 24


class RecordedEpoch:
    """The epoch of a worker as a CUDA graph. Recording changes nothing; each call runs one epoch."""

    def __init__(self, worker: Worker) -> None:
        self.rho = worker.rho
        self.graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            self.moves = worker.run_epoch()
            self.measured = worker.measured

    @staticmethod
    def suits(worker: Worker) -> bool:
        """The whole chain, no large layers, and no step that looks at a value: not exact, quantized or smooth."""
        alone = worker.left is None and worker.right is None
        small = all(layer.z.numel() <= RECORDED for layer in worker.layers)
        plain = all(boundary is None or boundary.p_levels is None for boundary in worker.boundaries)
        plain = (
            plain and worker.algorithm.solver == "linearized" and not isinstance(worker.algorithm.activation, Smooth)
        )
        return alone and small and plain

    def __call__(self) -> list[Moves]:
        self.graph.replay()
        return self.moves
