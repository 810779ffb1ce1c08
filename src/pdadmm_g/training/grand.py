"""A graph random neural network to compare with: every step is on random copies of the features, which should agree."""

from __future__ import annotations

import torch
from torch import Tensor

from ..config import METHODS, ModelConfig
from ..data.augmentation import NodeCopies
from ..data.examples import Examples
from ..model import GAMLP
from .gradient import Learner, mean_risk, stages_of, train_at_once
from .growth import widths
from .records import OnEpoch
from .train import TrainingResult

#: Below one, the copies are drawn towards the class that they already lean to.
TEMPERATURE = 0.5
#: What their disagreement counts beside the risk. The same from the first step on, as published.
AGREEMENT = 1.0
#: Copies serve so many steps: to draw them takes as long as a step on Cora, ten times as long on PubMed.
STEPS = 5
#: Other nodes than those that train, chosen anew with the copies: on a large graph all of them would take too long.
MOST_OTHERS = 2000


def train_grand(
    training: Examples,
    validation: Examples | None,
    num_classes: int,
    config: ModelConfig,
    *,
    copies: NodeCopies,
    seed: int,
    on_epoch: OnEpoch | None = None,
) -> TrainingResult:
    r"""Train a network on random copies :math:`X^{(s)}` of the rows that train and of other nodes.

    As Feng et al. (2020) do: two layers, dropout on the input of each, Adam. With the probabilities :math:`P^{(s)}`
    that the network gives to the nodes of each of S copies, the loss is

    .. math:: \frac1S \sum_s R(X^{(s)}) + \lambda\, \frac1{S n} \sum_s \sum_i \|\bar P_i - P_i^{(s)}\|^2, \quad
              \bar P_{ic} \propto \Bigl(\frac1S \sum_s P_{ic}^{(s)}\Bigr)^{1/T},

    R being that of :func:`~pdadmm_g.training.gradient.train_by_gradient` on the rows that train, and the second sum
    over all n nodes; no gradient goes through their mean. Clean features decide when to stop and what to keep.
    """
    config = config.resolved("classification")
    (depth,) = stages_of(config)
    torch.manual_seed(seed)
    model = GAMLP(widths(training.X.shape[1], config.hidden, num_classes, depth), config.activation).to(training.X)
    learner = CopiesLearner(model, METHODS[config.method].dropout, copies, METHODS[config.method].copies, seed)
    return train_at_once(learner, training, validation, config, on_epoch)


class CopiesLearner(Learner):
    """A network in training that sees so many random copies of its rows and of others, new ones every few steps."""

    #: The copies of now (copies, nodes, features).
    rows: Tensor

    def __init__(self, model: GAMLP, dropout: float, copies: NodeCopies, number: int, seed: int) -> None:
        super().__init__(model, dropout)
        self.copies = copies
        self.number = number
        self.generator = torch.Generator().manual_seed(seed)
        self.steps = 0

    def loss(self, training: Examples, risk: str) -> Tensor:
        if self.steps % STEPS == 0:
            self.rows = self.copies.draw(self.number, MOST_OTHERS, self.generator)
        self.steps += 1
        logits = self.model(self.rows, dropout=self.dropout)
        risks = [mean_risk(risk, copy[: len(training.X)], training.targets) for copy in logits]
        return torch.stack(risks).mean() + AGREEMENT * disagreement(logits)


def disagreement(logits: Tensor) -> Tensor:
    """How far copies (copies, nodes, classes) are from what they agree on, sharpened, in the mean over both."""
    P = torch.softmax(logits, dim=2)
    agreed = P.detach().mean(0) ** (1 / TEMPERATURE)
    agreed = agreed / agreed.sum(1, keepdim=True)
    return (agreed - P).square().sum(2).mean()
