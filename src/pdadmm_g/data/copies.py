"""Random copies of features: whole nodes are dropped before propagation, so that each copy is seen in another light."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .propagation import Adjacency, Operator, column_blocks, moved, neighbourhood, normalized, quiet

#: The parts of a sparse matrix by rows.
SPARSE = ("starts", "columns", "values")


@dataclass(frozen=True)
class Source:
    """What all augmentations of a graph start from."""

    #: The features of all nodes before propagation (nodes, features).
    H: Tensor
    #: The renormalised adjacency; None without edges.
    A: Adjacency | None
    #: What H was made of, as a sparse matrix, and the directions on which that was projected, if it was. None where
    #: most of it is not zero: to keep it a second time would take too much.
    raw: Tensor | None = None
    basis: Tensor | None = None

    def to(self, device: str | torch.device) -> Source:
        """The same on another device."""
        raw, basis = (part if part is None else part.to(device) for part in (self.raw, self.basis))
        return Source(self.H.to(device), moved(self.A, device), raw, basis)

    def thinned(self, nodes: Tensor | None, drop: float, generator: torch.Generator) -> Tensor:
        """The rows of H of some nodes, or all, as if each entry of their features were left out with a probability."""
        assert self.raw is not None
        starts, columns, values = self.raw.crow_indices(), self.raw.col_indices(), self.raw.values()
        kept = (torch.rand(len(values), generator=generator) >= drop).to(values) / (1 - drop)
        rows = len(self.H)
        if nodes is not None:
            rows, lengths, first = len(nodes), starts.diff()[nodes], starts[nodes]
            starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
            entries = (first - starts[:-1]).repeat_interleave(lengths)
            entries += torch.arange(len(entries), device=entries.device)
            columns, values, kept = columns[entries], values[entries], kept[entries]
        with quiet():
            raw = torch.sparse_csr_tensor(
                starts, columns, values * kept, (rows, self.raw.shape[1]), check_invariants=False
            )
            return raw.to_dense() if self.basis is None else raw @ self.basis


@dataclass(frozen=True)
class Copies:
    r"""Where random copies of the augmented features come from.

    .. math:: X^{(s)} = \psi(\tilde A)\, \mathrm{diag}(\epsilon^{(s)})\, H, \quad
              \epsilon_i^{(s)} = 0 \text{ with probability } \delta,\; 1 / (1 - \delta) \text{ otherwise,}

    normalised with the statistics of the clean features. After the random propagation of GRAND (Feng et al., 2020).
    With ``drop_entries`` the same is done to each entry of the features by itself too.
    """

    source: Source
    operator: Operator
    normalize: str
    #: Of the clean features, see :class:`~pdadmm_g.data.augmentation.GraphAugment`.
    mean: Tensor | None
    scale: Tensor | None
    #: The probability delta, and that of single entries.
    drop: float
    drop_entries: float = 0.0

    def draw(self, nodes: Tensor, number: int, seed: int) -> Tensor:
        """So many copies of the rows of ``nodes`` (copies, nodes, features), the same for a seed on every device."""
        assert not isinstance(self.source.A, tuple)
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
            if self.drop_entries:
                H = self.source.thinned(near, self.drop_entries, generator)
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

    def sample(self, most: int, generator: torch.Generator) -> Tensor:
        """The places of so many others at the most, chosen at random."""
        return torch.randperm(len(self.others), generator=generator)[:most].to(self.others.device)

    def draw(self, number: int, most: int, generator: torch.Generator) -> Tensor:
        """So many copies, the rows that train first and then those of so many others at the most, chosen at random."""
        chosen = self.others[self.sample(most, generator)]
        seed = int(torch.randint(2**62, (), generator=generator))
        return self.copies.draw(torch.cat([self.training, chosen]), number, seed)

    def tensors(self) -> dict[str, Tensor]:
        """All that another process needs, beside the operator and its settings, to have the same."""
        source = self.copies.source
        known = {"H": source.H, "mean": self.copies.mean, "scale": self.copies.scale}
        known |= {"basis": source.basis, "training": self.training, "others": self.others}
        for name in ("A", "raw"):
            matrix = getattr(source, name)
            if matrix is not None:
                parts = (matrix.crow_indices(), matrix.col_indices(), matrix.values())
                known |= {f"{name}_{part}": tensor for part, tensor in zip(SPARSE, parts, strict=True)}
        return {name: tensor for name, tensor in known.items() if tensor is not None}

    @staticmethod
    def of_tensors(
        known: dict[str, Tensor], operator: Operator, normalize: str, drop: float, drop_entries: float
    ) -> NodeCopies:
        """What :meth:`tensors` gave."""
        H, basis = known["H"], known.get("basis")

        def matrix(name: str, width: int) -> Tensor | None:
            if f"{name}_{SPARSE[0]}" not in known:
                return None
            with quiet():
                starts, columns, values = (known[f"{name}_{part}"] for part in SPARSE)
                return torch.sparse_csr_tensor(starts, columns, values, (len(H), width), check_invariants=False)

        source = Source(H, matrix("A", len(H)), matrix("raw", H.shape[1] if basis is None else len(basis)), basis)
        copies = Copies(source, operator, normalize, known.get("mean"), known.get("scale"), drop, drop_entries)
        return NodeCopies(copies, known["training"], known["others"])
