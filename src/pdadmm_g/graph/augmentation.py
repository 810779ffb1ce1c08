r"""Feature augmentation by multi-hop operators of the graph.

.. math:: \tilde A = (D+I)^{-1/2} (A+I) (D+I)^{-1/2}
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar, get_args

import torch
from torch import Tensor

from ..admm.risks import Targets
from ..engine.team import Line
from ..errors import InputError
from .graph import Graph
from .parts import Part, has_edges, part_of
from .propagation import (
    DENSE,
    LEARNED,
    Adjacency,
    Directed,
    KnownLabels,
    Matrix,
    Mode,
    Normalization,
    Operator,
    adjacency,
    column_blocks,
    csr,
    inverse_row_sums,
    neighbourhood,
    put,
    quiet,
    to_unit_length,
)

# -------------------------------------------------------------------------------------------------------- random copies


#: The parts of a sparse matrix by rows.
SPARSE = ("starts", "columns", "values")


@dataclass(frozen=True)
class Source:
    """What all augmentations of a graph start from."""

    #: The features of the own nodes before propagation (nodes, features).
    H: Tensor
    #: Their rows of the renormalised adjacency; None without edges.
    A: Adjacency | None
    #: What H was made of, as a sparse matrix, and the directions on which that was projected, if it was. None where
    #: most of it is not zero: to keep it a second time would take too much.
    raw: Tensor | None
    basis: Tensor | None
    #: The number of all nodes, and those of them that are here.
    nodes: int
    part: Part

    def to(self, device: str | torch.device) -> Source:
        """The same on another device."""
        if self.part.line.size > 1 or self.H.device == torch.device(device):
            return self

        def moved(x: Any) -> Any:
            return tuple(map(moved, x)) if isinstance(x, tuple) else x.to(device) if isinstance(x, Tensor) else x

        H, A, raw, basis = map(moved, (self.H, self.A, self.raw, self.basis))
        return dataclasses.replace(self, H=H, A=A, raw=raw, basis=basis)

    def thinned(self, nodes: Tensor | None, drop: float, generator: torch.Generator) -> Tensor:
        """The rows of H of some nodes, or all, as if each entry of their features were left out with a probability."""
        assert self.raw is not None
        raw, values = self.raw, self.raw.values()
        line = self.part.line
        lots = [torch.rand(count, generator=generator) for count in line.counts(len(values))][line.rank]
        kept = (lots >= drop).to(values) / (1 - drop)
        raw = csr(raw.crow_indices(), raw.col_indices(), values * kept, raw.shape)
        raw = raw if nodes is None else sparse_rows(raw, nodes)
        with quiet():
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
    #: Fitted on the clean features.
    augment: GraphAugment
    #: The probability delta, and that of single entries.
    drop: float
    drop_entries: float
    #: The numbers of the nodes that train, in the order of their rows, and of all others, whose labels nobody asks for.
    training: Tensor
    others: Tensor
    #: What those that train should become, on every process.
    targets: Targets

    def sample(self, most: int, generator: torch.Generator) -> Tensor:
        """The places of so many others at the most, chosen at random."""
        return torch.randperm(len(self.others), generator=generator)[:most].to(self.others.device)

    def is_own(self, nodes: Tensor) -> Tensor:
        """Which of some nodes are here, a mask."""
        return self.source.part.has(nodes)

    def rows(self, nodes: Tensor, number: int, seed: int) -> Tensor:
        """So many copies of the rows of ``nodes``, of the own ones (copies, nodes, features), the same for a seed."""
        source, part, operator = self.source, self.source.part, self.augment.operator
        assert not isinstance(source.A, tuple)
        near, A = neighbourhood(source.A, nodes, operator.reach)
        here: Any = slice(part.first, part.first + part.count)
        H, rows = source.H, part.own(nodes)
        if near is not None:
            H, here, rows = source.H[near], near, torch.searchsorted(near, nodes)
        width = H.shape[1]
        out = H.new_empty(number, len(rows), operator.blocks * width)
        generator = torch.Generator().manual_seed(seed)
        for each in out:
            kept = torch.rand(source.nodes, 1, generator=generator) >= self.drop
            factor = (kept / (1 - self.drop)).to(H)[here]
            if self.drop_entries:
                H = source.thinned(near, self.drop_entries, generator)
            for start, block in column_blocks(H, H.dtype, source.nodes if near is None else len(H)):
                put(each, width, start, operator(A, block.mul_(factor)), rows)
            self.augment._normalized(each)
        return out

    def tensors(self) -> dict[str, Tensor]:
        """What another process needs, beside settings and targets, to have the same."""
        source = self.source
        known = {"H": source.H, "mean": self.augment.mean, "scale": self.augment.scale}
        known |= {"basis": source.basis, "training": self.training, "others": self.others}
        for name in ("A", "raw"):
            matrix = getattr(source, name)
            if matrix is not None:
                parts = (matrix.crow_indices(), matrix.col_indices(), matrix.values())
                known |= {f"{name}_{part}": tensor for part, tensor in zip(SPARSE, parts, strict=True)}
        return {name: tensor for name, tensor in known.items() if tensor is not None}

    @staticmethod
    def of_tensors(
        known: dict[str, Tensor], augment: GraphAugment, drop: float, drop_entries: float, targets: Targets
    ) -> Copies:
        """What :meth:`tensors` gave."""
        H, basis = known["H"], known.get("basis")
        augment.mean, augment.scale = known.get("mean"), known.get("scale")

        def matrix(name: str, width: int) -> Tensor | None:
            if f"{name}_{SPARSE[0]}" not in known:
                return None
            starts, columns, values = (known[f"{name}_{part}"] for part in SPARSE)
            return csr(starts, columns, values, (len(H), width))

        raw = matrix("raw", H.shape[1] if basis is None else len(basis))
        source = Source(H, matrix("A", len(H)), raw, basis, len(H), Part(0, len(H), Line()))
        return Copies(source, augment, drop, drop_entries, known["training"], known["others"], targets)


#: A :class:`.Graph`, or a ``torch_geometric`` ``Data``.
AnyGraph = TypeVar("AnyGraph", bound=Graph)


@dataclass(eq=False, repr=False)
class GraphAugment:
    r"""Multi-hop features: called with a graph, it gives the graph with these as ``x``, as ``torch_geometric`` has it.

    From "Towards Quantized Model Parallelism for Graph-Augmented MLPs Based on Gradient-Free ADMM Framework".

    ``mode="hops"`` stacks the powers side by side,

    .. math:: X = [H,\; \tilde A H,\; \ldots,\; \tilde A^{K-1} H],

    ``mode="apart"`` does the same without self-loops in the operator, :math:`D^{-1/2} A D^{-1/2}`: what a node is and
    what its neighbours are stay apart, which matters where neighbours tend to be of other classes;
    ``mode="average"`` takes their mean with a teleport :math:`\alpha` to the input,

    .. math:: X = \tfrac1K \sum_{k=1}^{K} \left( (1-\alpha) \tilde A^k H + \alpha H \right),

    ``mode="power"`` keeps the last one only, :math:`X = \tilde A^K H`, and ``mode="none"`` leaves the graph out,
    :math:`X = H`.

    With ``normalize="unit"`` each block of each row of X is scaled to Euclidean length 1 (zero rows stay zero). With
    ``"centered"`` the column means are then subtracted, each column is divided by the fourth root of its standard
    deviation, and rows are scaled to length 1 again: what all nodes have in common no longer drowns what tells them
    apart. With ``"standard"`` each column gets mean 0 and deviation 1 instead. Means and deviations come from the graph
    that the transform first sees (:meth:`fit`), and stay.

    Args:
        mode: Which operators.
        hops: Their number K.
        teleport: The share alpha.
        row_normalize: Divide each row of H by the sum of its absolute values first.
        normalize: What is done to the rows of X.
        components: H is first projected on so many principal directions, those in which its rows are longest after
            two steps over the graph that the transform first sees; centred columns are then divided by the square
            root of their standard deviation, not the fourth. None for the features as they are.
        directed: Which way features go along edges, see :func:`~pdadmm_g.graph.propagation.adjacency`. With
            ``"both"`` each direction has blocks of its own, after the features themselves where these are one.
        label_hops: So many blocks follow with what is ``known`` of the labels of nodes one, two, ... hops away, see
            :class:`~pdadmm_g.graph.propagation.KnownLabels`.
    """

    #: Evenly spaced nodes give the column means: at least so many where there are, and fewer than twice as many.
    sample = 10_000

    mode: Mode = "hops"
    hops: int = 4
    _: KW_ONLY
    teleport: float = 0.05
    row_normalize: bool = True
    normalize: Normalization = "unit"
    components: int | None = None
    directed: Directed = "symmetric"
    label_hops: int = 0
    dtype: torch.dtype = torch.float32
    #: Column means and scales of the centred features, on the CPU wherever the graph is; None before :meth:`fit`.
    mean: Tensor | None = field(default=None, init=False)
    scale: Tensor | None = field(default=None, init=False)
    #: The principal directions (features, components), on the CPU too; None where all features are taken.
    basis: Tensor | None = field(default=None, init=False)
    #: The labels that are known; None where they are no features.
    known: KnownLabels | None = field(default=None, init=False)
    #: Augmentations whose features follow, for a mean of several models (:meth:`.GAMLP.mean`).
    others: tuple[GraphAugment, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        for name, kind in (("mode", Mode), ("normalize", Normalization), ("directed", Directed)):
            if getattr(self, name) not in get_args(kind):
                raise InputError(f"{name} must be one of {', '.join(get_args(kind))}, got {getattr(self, name)!r}")
        if self.hops < 1:
            raise InputError(f"hops must be at least 1, got {self.hops}")

    @property
    def operator(self) -> Operator:
        """What it does with the graph."""
        return Operator(self.mode, self.hops, self.teleport, self.directed == "both")

    @property
    def parts(self) -> tuple[GraphAugment, ...]:
        """Its own part of the output, and the others."""
        return (self, *self.others)

    @property
    def asks_neighbours(self) -> bool:
        """Does it make something of edges?"""
        return any(part.mode != "none" or part.known is not None for part in self.parts)

    @property
    def blocks(self) -> int:
        """How many blocks its own part has, each of the width of what is propagated."""
        return self.operator.blocks

    def sizes(self, columns: int) -> list[int]:
        """The widths of all blocks of so many columns of its own part, those of known labels last."""
        labels = [] if self.known is None else [self.known.targets.shape[1]] * self.label_hops
        return [(columns - sum(labels)) // self.blocks] * self.blocks + labels

    def width(self, features: int) -> int:
        """How many columns the output has for so many features."""
        return sum(part.own_width(features) for part in self.parts)

    def own_width(self, features: int) -> int:
        """How many of them are its own part."""
        width = min(features, self.components or features) if self.basis is None else self.basis.shape[1]
        labels = 0 if self.known is None else self.label_hops * self.known.targets.shape[1]
        return self.blocks * width + labels

    def __call__(self, data: AnyGraph) -> AnyGraph:
        data = copy.copy(data)
        data.x = self.features(data)
        return data

    def fit(self, data: Graph) -> GraphAugment:
        """Learn directions and column means from this graph, if they are needed."""
        if self.normalize in LEARNED or self.components is not None:
            self.fit_transform(data, torch.arange(0))
        return self

    def fit_transform(self, data: Graph, nodes: Tensor | None = None, *, source: Source | None = None) -> Tensor:
        """:meth:`fit`, and the augmented rows of ``nodes`` (all by default), of a part of its own ones among these.

        Several augmentations of one graph may share a :meth:`source`. Of a part all processes call this together.
        """
        source = source if source is not None or self.components is None else self.source(data)
        if self.normalize not in LEARNED:
            return self._normalized(self.own_propagated(data, nodes, source=source))
        nodes = torch.arange(data.num_nodes) if nodes is None else nodes
        sample = torch.arange(0, data.num_nodes, max(1, data.num_nodes // self.sample), device=nodes.device)
        rows, part = self.own_propagated(data, torch.cat([nodes, sample]), source=source), part_of(data)
        number = len(part.own(nodes))
        return self.fit_rows(rows[:number], rows[number:].clone(), part.line)

    def source(self, data: Graph) -> Source:
        """What is propagated, in memory: the features in their principal directions, which are learned first."""
        A, part = self.adjacency(data), part_of(data)
        H = feature_rows(data.x, self.dtype, row_normalize=self.row_normalize, sparse=is_mostly_zero(data))
        if self.components is not None and self.components < H.shape[1] and self.basis is None:
            # Directions of features are those of the undirected graph, whichever way these go afterwards.
            undirected = self.adjacency(data, "symmetric") if self.directed != "symmetric" else A
            assert not isinstance(undirected, tuple)
            undirected = undirected.cpu() if isinstance(undirected, Tensor) else undirected
            self.basis = directions(H, undirected, self.components, part)
        raw, basis = (H if H.layout != torch.strided else None), self.basis
        if basis is not None:
            H = H @ basis
        return Source(H.to_dense(), A, raw, basis, data.num_nodes, part).to(data.x.device)

    def fit_rows(self, rows: Tensor, sample: Tensor, line: Line | None = None) -> Tensor:
        """What :meth:`fit_transform` makes of propagated rows, given those of a sample of all nodes. Overwrites both.

        Column means and scales are those of the sample, of which the processes of a ``line`` have a part each.
        """
        if self.normalize not in LEARNED:
            return self._normalized(rows)
        line = line or Line()
        number = sum(line.counts(len(sample)))
        if self.normalize == "centered":
            to_unit_length(sample, self.sizes(sample.shape[1]))
        mean = line.sum(sample.sum(0)) / number
        deviation = line.sum(torch.linalg.vector_norm(sample.sub_(mean), dim=0).square()).sqrt() / number**0.5
        self.mean = mean.cpu()
        root = 0.25 if self.basis is None else 0.5
        least = torch.tensor(1e-12)
        if self.normalize == "standard":  # a column that is constant but for rounding stays so
            root, least = 1.0, 1e-12 + 1e-6 * mean.abs()
        self.scale = (deviation.where(deviation > least, 1.0) ** root).cpu()
        return self._normalized(rows)

    def learned(self) -> dict[str, Tensor]:
        """What it learned from the graph that it was fitted on."""
        found = dict[str, Tensor | None]()
        for part, own in self._named():
            found |= {f"{own}mean": part.mean, f"{own}scale": part.scale, f"{own}basis": part.basis}
            if part.known is not None:  # all know the same labels
                found |= {f"label_{name}": tensor for name, tensor in part.known._asdict().items()}
        return {name: tensor.clone() for name, tensor in found.items() if tensor is not None}  # parts may share some

    def restore(self, learned: dict[str, Tensor], features: int) -> None:
        """Take over what another one :meth:`learned` of so many features. A KeyError or ValueError if it cannot be."""
        for part, own in self._named():
            if part.components is not None and part.components < features:
                part.basis = learned[f"{own}basis"]
                # Of a graph with few nodes there are no more directions than nodes.
                if part.basis.ndim != 2 or len(part.basis) != features or part.basis.shape[1] > part.components:
                    raise ValueError("its principal directions do not fit its features")
            if part.label_hops:
                part.known = KnownLabels(*(learned[f"label_{name}"] for name in KnownLabels._fields))
                part.known.check()
            if part.normalize in LEARNED:
                part.mean, part.scale = learned[f"{own}mean"], learned[f"{own}scale"]
                if not part.mean.shape == part.scale.shape == (part.own_width(features),):
                    raise ValueError("its column means do not fit its layers")
                if not bool((part.scale > 0).all()):
                    raise ValueError("its column scales are not positive")

    def _named(self) -> list[tuple[GraphAugment, str]]:
        """Its parts, and how the names of what each learned begin."""
        return [(part, f"{place}." if place else "") for place, part in enumerate(self.parts)]

    def features(self, data: Graph, nodes: Tensor | None = None) -> Tensor:
        """The augmented rows of ``nodes`` (all by default), dense. Fits first if that is still to be done."""
        rows = [part.own_features(data, nodes) for part in self.parts]
        return torch.cat(rows, dim=1) if self.others else rows[0]

    def own_features(self, data: Graph, nodes: Tensor | None = None) -> Tensor:
        """Its own part of the features."""
        projects = self.components is not None and self.components < data.x.shape[1]
        if (self.basis is None and projects) or (self.mean is None and self.normalize in LEARNED):
            return self.fit_transform(data, nodes)
        return self._normalized(self.own_propagated(data, nodes))

    def _normalized(self, rows: Tensor) -> Tensor:
        """The propagated ``rows`` as the network takes them. Overwrites them."""
        blocks = self.sizes(rows.shape[1])
        if self.normalize in ("unit", "centered"):
            to_unit_length(rows, blocks)
        if self.normalize in LEARNED:
            assert self.mean is not None
            assert self.scale is not None
            rows.sub_(self.mean.to(rows.device)).div_(self.scale.to(rows.device))
        if self.normalize == "centered":
            to_unit_length(rows, blocks)
        return rows

    def propagated(self, data: Graph, nodes: Tensor | None = None) -> Tensor:
        """The rows of ``nodes`` (all by default) before they are normalised."""
        rows = [part.own_propagated(data, nodes) for part in self.parts]
        return torch.cat(rows, dim=1) if self.others else rows[0]

    def own_propagated(
        self,
        data: Graph,
        nodes: Tensor | None = None,
        *,
        source: Source | None = None,
        operators: Callable[[Any, Tensor], Iterator[Tensor]] | None = None,
        blocks: int | None = None,
    ) -> Tensor:
        """Its own part of these rows, by its own or other operators.

        Propagates a block of feature columns at a time, so that memory stays near input plus output.
        """
        operators, blocks = operators or self.operator, blocks or self.blocks
        if source is None and self.basis is not None:
            source = self.source(data)
        x, A = (data.x, self.adjacency(data)) if source is None else (source.H, source.A)
        rows = None if nodes is None else part_of(data).own(nodes).to(x.device)
        number, width = len(x) if rows is None else len(rows), x.shape[1]
        out = torch.empty(number, blocks * width, dtype=self.dtype, device=x.device)
        scale = inverse_row_sums(x, self.dtype) if self.row_normalize and source is None else None
        for start, H in column_blocks(x, self.dtype, data.num_nodes):
            if scale is not None:
                H *= scale
            put(out, width, start, operators(A, H), slice(None) if rows is None else rows)
        if operators == self.operator and self.known is not None:
            out = torch.cat([out, self.known.rows(data, nodes, self.label_hops)], dim=1)
        return out

    def adjacency(self, data: Graph, directed: Directed | None = None) -> Adjacency | None:
        """The renormalised adjacency, where the graph has a say."""
        if self.mode == "none" or (data.edge_index is None and not has_edges(data)):
            return None
        return adjacency(data, self.dtype, directed=directed or self.directed, self_loops=self.mode != "apart")

    def copies(
        self, source: Source, training: Tensor, targets: Targets, drop: float, drop_entries: float | None
    ) -> Copies:
        """Random copies of the features of a graph, by what was learned from the clean ones (:meth:`fit`)."""
        if self.others:
            raise InputError("unlabelled must be 0 with init, which is a mean of several models: leave it out")
        if drop_entries and source.raw is None:
            raise InputError("drop_entries is for features that are nearly all zero, and these are not: leave it out")
        other = torch.ones(source.nodes, dtype=torch.bool, device=training.device)
        other[training] = False
        own, others = (each.to(source.H.device) for each in (training, other.nonzero().view(-1)))
        return Copies(source, self, drop, drop_entries or 0.0, own, others, targets)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.mode!r}, {self.hops})"


# ------------------------------------------------------------------------------------------------- principal directions

#: So many nodes at the most, evenly spaced, say which directions matter, after two steps over the graph.
SAMPLE = 20_000
#: Iterations, and directions beyond those that are kept, which make them accurate.
ITERATIONS, EXTRA = 2, 32


def directions(H: Tensor, A: Matrix | None, number: int, part: Part) -> Tensor:
    r"""An orthonormal basis (features, ``number``) of the directions in which :math:`\tilde A^2 H` is longest.

    By subspace iteration from random directions, on evenly spaced rows. H is dense or sparse by rows, the own rows of a
    part, and A the undirected graph.
    """
    features, total = H.shape[1], sum(part.line.counts(len(H)))
    nodes = torch.arange(0, total, -(-total // SAMPLE))
    sampled, own = len(nodes), part.own(nodes)
    near, A = neighbourhood(A, nodes, reach=2)
    if near is not None:
        H = H[near] if H.layout == torch.strided else sparse_rows(H, near)
        own = torch.searchsorted(near, nodes)
    with quiet():
        turned = H.mT.to_sparse_csr() if H.layout != torch.strided else H.mT

    def stepped(H: Tensor) -> Tensor:
        return H if A is None else A @ (A @ H)

    def onto(M: Tensor) -> Tensor:
        return stepped(H @ M)[own]

    def back(Y: Tensor) -> Tensor:  # A is symmetric
        return part.line.sum(turned @ stepped(Y.new_zeros(len(H), Y.shape[1]).index_copy_(0, own, Y)))

    with quiet():
        width = min(number + EXTRA, sampled, features)
        basis = torch.randn(features, width, generator=torch.Generator().manual_seed(0), dtype=H.dtype)
        for _ in range(ITERATIONS):
            basis = torch.linalg.qr(back(onto(basis)))[0]
        image = onto(basis).double()
        _, axes = torch.linalg.eigh(part.line.sum(image.mT @ image))  # from the shortest to the longest
    return (basis @ axes.flip(1)[:, :number].to(basis.dtype)).contiguous()


def sparse_rows(H: Tensor, nodes: Tensor) -> Tensor:
    """Some rows of a sparse matrix."""
    with quiet():
        return H.to_sparse_coo().index_select(0, nodes).to_sparse_csr()


def is_mostly_zero(data: Graph) -> bool:
    """Are the features kept as a sparse matrix?"""
    if data.x.layout != torch.strided:
        return True
    counts = part_of(data).line.sum(torch.tensor([int(data.x.count_nonzero()), data.x.numel()]))
    return bool(counts[0] < DENSE * counts[1])


def feature_rows(x: Tensor, dtype: torch.dtype, *, row_normalize: bool, sparse: bool) -> Tensor:
    """The features on the CPU, rows divided by their absolute sums if asked for, as a sparse matrix or not."""
    x = x.cpu()
    scale = inverse_row_sums(x, dtype) if row_normalize else None
    x = x.to(dtype)
    if not sparse:
        return x if scale is None else x * scale
    with quiet():
        x = x.to_sparse_csr()
    if scale is None:
        return x
    values = x.values() * scale.view(-1).repeat_interleave(x.crow_indices().diff())
    return csr(x.crow_indices(), x.col_indices(), values, x.shape)
