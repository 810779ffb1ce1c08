"""Small and medium networks on a GPU: launching the hundreds of kernels of an epoch takes longer than running them.

A CUDA graph records the launches of one epoch and replays them at once. It needs every tensor in the same place in
every epoch, and nothing on the way that waits for a result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..admm.activations import Smooth
from ..admm.diagnostics import Moves, Shares

if TYPE_CHECKING:
    from .worker import Worker


#: Up to so many activations of a layer an epoch is recorded.
RECORDED = 1 << 24


class RecordedEpoch:
    """The epoch of a worker, recorded as a CUDA graph after a few plain ones. Each call runs one epoch."""

    #: Plain epochs before the recording: libraries set themselves up in the first ones.
    after = 3
    #: Lengths that a quantized p-step tries: it cannot look whether the first will do. More are hardly ever needed.
    tries = 3

    def __init__(self) -> None:
        #: Plain epochs that are still to come, and whether plain ones have inverted, or not inverted.
        self._plain = self.after
        self._kinds: set[bool] = set()
        #: By whether the epoch inverts what the exact solver keeps: the recording, and where its results will be.
        self._recordings: dict[bool, tuple[torch.cuda.CUDAGraph, tuple[list[Moves], list[Shares]]]] = {}

    @staticmethod
    def suits(worker: Worker) -> bool:
        """The whole chain and all rows on a GPU, not too many activations, no step that looks at a value.

        So no smooth activation, and no sums that other processes take part in.
        """
        on_gpu = bool(worker.layers) and worker.layers[0].W.is_cuda
        alone = worker.left is None and worker.right is None and worker.rows.whole
        small = all(layer.z.numel() <= RECORDED for layer in worker.layers)
        return on_gpu and alone and small and not isinstance(worker.algorithm.activation, Smooth)

    def __call__(self, worker: Worker) -> tuple[list[Moves], list[Shares]]:
        # A linearized epoch is the same whenever it comes.
        inverts = worker.algorithm.solver == "exact" and worker.inverts
        if self._plain or inverts not in self._kinds:
            self._plain = max(self._plain - 1, 0)
            self._kinds.add(inverts)
            return worker.run_epoch()
        if inverts not in self._recordings:
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):  # which changes nothing yet
                self._recordings[inverts] = graph, worker.run_epoch()
        graph, result = self._recordings[inverts]
        graph.replay()
        return result
