"""A graph convolutional network to compare with: every step is on the whole graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..config import METHODS, ModelConfig
from ..data.examples import Examples, WholeGraph
from ..model import GCN
from .gradient import Learner, mean_risk, stages_of, train_at_once
from .growth import widths
from .records import OnEpoch
from .train import TrainingResult


def train_gcn(
    training: Examples,
    validation: Examples | None,
    num_classes: int,
    config: ModelConfig,
    *,
    graph: WholeGraph,
    seed: int,
    on_epoch: OnEpoch | None = None,
) -> TrainingResult:
    """Train a :class:`~pdadmm_g.model.GCN`; the rows of the examples are numbers of nodes of the ``graph``.

    As Kipf & Welling (2017) do: two layers, dropout on the input of each, Adam, and weight decay on the first layer
    only. The loss is that of :func:`~pdadmm_g.training.gradient.train_by_gradient`.
    """
    config = config.resolved("classification")
    (depth,) = stages_of(config)
    torch.manual_seed(seed)
    model = GCN(widths(graph.X.shape[1], config.hidden, num_classes, depth), config.activation).to(graph.X.device)
    learner = GraphLearner(model, METHODS[config.method].dropout, graph)
    return train_at_once(learner, training, validation, config, on_epoch)


class GraphLearner(Learner):
    """A network in training that takes the whole graph, and gives logits to nodes by their numbers."""

    def __init__(self, model: GCN, dropout: float, graph: WholeGraph) -> None:
        super().__init__(model, dropout)
        self.graph = graph

    def loss(self, training: Examples, risk: str) -> Tensor:
        logits = self.model(*self.graph, dropout=self.dropout)
        return mean_risk(risk, logits[training.X], training.targets)

    def predictor(self) -> Callable[[Tensor], Tensor]:
        return self.model(*self.graph).__getitem__

    def decayed(self) -> list[nn.Parameter]:
        return list(self.model.linears[0].parameters())
