"""Random copies of features: whole nodes are dropped before propagation, so that each copy is seen in another light."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .propagation import Operator, column_blocks, neighbourhood, normalized, quiet


@dataclass(frozen=True)
class Source:
    """What all augmentations of a graph start from."""

    #: The features of all nodes before propagation (nodes, features).
    H: Tensor
    #: The renormalised adjacency; None without edges.
    A: Tensor | None

    def to(self, device: str | torch.device) -> Source:
        """The same on another device."""
        return Source(self.H.to(device), None if self.A is None else self.A.to(device))


@dataclass(frozen=True)
class Copies:
    r"""Where random copies of the augmented features come from.

    .. math:: X^{(s)} = \psi(\tilde A)\, \mathrm{diag}(\epsilon^{(s)})\, H, \quad
              \epsilon_i^{(s)} = 0 \text{ with probability } \delta,\; 1 / (1 - \delta) \text{ otherwise,}

    normalised with the statistics of the clean features. After the random propagation of GRAND (Feng et al., 2020).
    """

    source: Source
    operator: Operator
    normalize: str
    #: Of the clean features, see :class:`~pdadmm_g.data.augmentation.GraphAugment`.
    mean: Tensor | None
    scale: Tensor | None
    #: The probability delta.
    drop: float

    def draw(self, nodes: Tensor, number: int, seed: int) -> Tensor:
        """So many copies of the rows of ``nodes`` (copies, nodes, features), the same for a seed on every device."""
        near, A = neighbourhood(self.source.A, nodes, self.operator.reach)
        H = self.source.H if near is None else self.source.H[near]
        rows = nodes if near is None else torch.searchsorted(near, nodes)
        width, blocks = H.shape[1], self.operator.blocks
        out = H.new_empty(number, len(nodes), blocks * width)
        generator = torch.Generator().manual_seed(seed)
        for copy in out:
            kept = torch.rand(len(self.source.H), 1, generator=generator) >= self.drop
            factor = (kept / (1 - self.drop)).to(H)
            factor = factor if near is None else factor[near]
            for start, block in column_blocks(H, H.dtype):
                for place, operated in enumerate(self.operator(A, block.mul_(factor))):
                    first = place * width + start
                    copy[:, first : first + block.shape[1]] = operated[rows]
            normalized(copy, self.normalize, blocks, self.mean, self.scale)
        return out


@dataclass(frozen=True)
class NodeCopies:
    """Copies of the nodes that train and of some others, whose labels nobody asks for."""

    copies: Copies
    #: The numbers of the nodes that train, in the order of their rows, and of all others.
    training: Tensor
    others: Tensor

    @staticmethod
    def of(copies: Copies, training: Tensor) -> NodeCopies:
        """With all nodes of the graph but these as others."""
        H = copies.source.H
        other = torch.ones(len(H), dtype=torch.bool, device=training.device)
        other[training] = False
        return NodeCopies(copies, training.to(H.device), other.nonzero().view(-1).to(H.device))

    def draw(self, number: int, most: int, generator: torch.Generator) -> Tensor:
        """So many copies, the rows that train first and then those of so many others at the most, chosen at random."""
        chosen = torch.randperm(len(self.others), generator=generator)[:most]
        seed = int(torch.randint(2**62, (), generator=generator))
        return self.copies.draw(torch.cat([self.training, self.others[chosen.to(self.others.device)]]), number, seed)

    def tensors(self) -> dict[str, Tensor]:
        """All that another process needs, beside the operator and its settings, to have the same."""
        source = self.copies.source
        known = {"H": source.H, "mean": self.copies.mean, "scale": self.copies.scale}
        if source.A is not None:
            known |= {"starts": source.A.crow_indices(), "columns": source.A.col_indices(), "values": source.A.values()}
        known |= {"training": self.training, "others": self.others}
        return {name: tensor for name, tensor in known.items() if tensor is not None}

    @staticmethod
    def of_tensors(known: dict[str, Tensor], operator: Operator, normalize: str, drop: float) -> NodeCopies:
        """What :meth:`tensors` gave."""
        A, H = None, known["H"]
        if "values" in known:
            with quiet():
                A = torch.sparse_csr_tensor(
                    known["starts"], known["columns"], known["values"], (len(H), len(H)), check_invariants=False
                )
        copies = Copies(Source(H, A), operator, normalize, known.get("mean"), known.get("scale"), drop)
        return NodeCopies(copies, known["training"], known["others"])
