"""The augmentations that are tried where that is left to the data, and the rows that they make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..config import ModelConfig
from .augmentation import GraphAugment, Source
from .graph import MASKS, Graph
from .parts import are_directed, has_edges
from .propagation import Directed, KnownLabels, Mode, Normalization

#: Taken where nothing is tried.
DEFAULT_HOPS = 8
DEFAULT_TELEPORT = 0.05
#: Averages over so many powers of the graph with such a share of the node's own. The last one is for labelled nodes
#: alone, and for graphs without features: of random copies it is too smooth.
AVERAGES = ((2, 0.25), (4, 0.05), (8, 0.2), (16, 0.05))
#: Every candidate is tried with the first, the best ones with the others too. Rows of a bag of words have a length; of
#: the columns of a table each counts by itself.
NORMALIZATIONS: tuple[Normalization, ...] = ("centered", "unit", "standard")
#: So many principal directions stand for the features where unlabelled nodes are learned from; otherwise all features
#: that can be propagated with so many products into rows of so many entries, or as many directions up to a limit.
COMPONENTS, MOST_PRODUCTS, MOST_ENTRIES, MOST_COMPONENTS, FEW_COMPONENTS = 256, 4e9, 100_000_000, 1024, (256, 64)


def augmentation(config: ModelConfig, basis: Tensor | None = None, known: KnownLabels | None = None) -> GraphAugment:
    """The augmentation that ``config`` describes, once it is chosen, perhaps with principal directions learned."""
    assert config.augment != "auto"
    assert config.normalize != "auto"
    assert config.hops is not None
    augment = GraphAugment(
        config.augment,
        config.hops,
        teleport=DEFAULT_TELEPORT if config.teleport is None else config.teleport,
        row_normalize=config.row_normalize is not False,
        normalize=config.normalize,
        components=config.components,
        directed="symmetric" if config.directed == "auto" else config.directed,
        label_hops=config.label_hops or 0,
    )
    augment.basis = basis
    augment.known = known if augment.label_hops else None
    return augment


def described(config: ModelConfig) -> str:
    """The features that these settings make, in words."""
    normalized = {"none": "as they are", "unit": "unit length", "centered": "centred", "standard": "standardized"}[
        config.normalize
    ]
    if config.label_hops:
        normalized += f", known labels up to {config.label_hops} hops away"
    if config.row_normalize is False:
        normalized = f"rows not divided by their sums, {normalized}"
    if config.components is not None:
        normalized = f"{config.components} principal directions, {normalized}"
    if config.augment == "none":
        return f"own features, {normalized}"
    kind = {
        "hops": f"{config.hops} hop blocks",
        "apart": f"own features and {config.hops} hops without them",
        "power": f"power {config.hops} of the graph",
        "average": f"average of {config.hops} hops, own share {config.teleport or 0:g}",
    }[config.augment]
    ways = {"out": ", along edges", "in": ", against edges", "both": ", each way by itself"}.get(config.directed, "")
    return f"{kind}{ways}, {normalized}"


def with_defaults(data: Graph, config: ModelConfig) -> ModelConfig:
    """``config`` with the features that are usual, where nothing can be tried."""
    edges = has_edges(data)
    if config.augment == "auto":
        config = config.but(augment="average" if edges else "none", hops=config.hops or DEFAULT_HOPS if edges else 1)
    return config.but(
        hops=config.hops or DEFAULT_HOPS,
        teleport=DEFAULT_TELEPORT if config.teleport is None else config.teleport,
        directed="symmetric" if config.directed == "auto" else config.directed,
        normalize="centered" if config.normalize == "auto" else config.normalize,
        label_hops=config.label_hops or 0,
    )


def candidates(data: Graph, config: ModelConfig) -> list[ModelConfig]:
    """All features that ``config`` leaves open, but for their normalization, which is the first of those open."""
    if not has_edges(data):
        config = config.but(augment="none" if config.augment == "auto" else config.augment)
    ways: list[Directed] = ["symmetric"] if config.directed == "auto" else [config.directed]
    if config.directed == "auto" and config.augment != "none" and not config.unlabelled and are_directed(data):
        ways.append("both")
    averages = [
        (config.hops or hops, own if config.teleport is None else config.teleport)
        for hops, own in AVERAGES[: 3 if config.unlabelled and not data.get("structural") else None]
    ]
    tried: list[tuple[Mode, int, float | None]] = [("average", *each) for each in dict.fromkeys(averages)]
    if config.augment == "auto" and not config.unlabelled:
        tried = [("none", 1, None), *tried, ("hops", config.hops or 4, None), ("apart", config.hops or 3, None)]
    elif config.augment not in ("auto", "average"):
        tried = [(config.augment, config.hops or 1, config.teleport)]  # type: ignore[list-item]
    scales = (True, False) if is_scale_open(data, config) else (config.row_normalize,)
    normalize = open_normalizations(data, config)[0]
    return [
        config.but(augment=mode, hops=hops, teleport=DEFAULT_TELEPORT if own is None else own, directed=way,
            row_normalize=scale, normalize=normalize,
            components=components,
        )
        for scale in scales
        for way in ways
        for mode, hops, own in tried
        if mode != "none" or way == ways[0]
        for components in _components(data, config, mode, hops)
    ]  # fmt: skip


def is_scale_open(data: Graph, config: ModelConfig) -> bool:
    """Is it left open whether rows are divided by their sums, and does it matter?"""
    return config.row_normalize is None and config.augment == "auto" and not data.get("structural")


def open_normalizations(data: Graph, config: ModelConfig) -> tuple[Normalization, ...]:
    """What may be done to the rows in the end. Random copies of standardized columns are too noisy to learn from."""
    if config.normalize != "auto":
        return (config.normalize,)
    if config.unlabelled:
        return NORMALIZATIONS[:2]
    if data.get("columns") and not config.row_normalize:
        return NORMALIZATIONS[2:]
    return NORMALIZATIONS if config.augment == "auto" else NORMALIZATIONS[:2]


def _components(data: Graph, config: ModelConfig, mode: Mode, hops: int) -> tuple[int | None, ...]:
    """How many principal directions of the features are taken; None for all features.

    Averages are also of few of them, which suits few labels.
    """
    features = data.x.shape[1]
    if config.components is not None or (config.augment != "auto" and not config.unlabelled):
        return (config.components,)
    if config.unlabelled:
        return (COMPONENTS if features > COMPONENTS else None,)
    listed = data.get("listed", 0) if data.edge_index is None else data.edge_index.shape[1]
    edges = data.num_nodes + listed if has_edges(data) else 0
    # All averages are of the same directions: those of a few hops are on the way to those of many.
    steps, blocks = {"none": (0, 1), "average": (AVERAGES[-1][0], 1)}.get(mode, (hops - 1, hops))
    rows = sum(int(data[mask].sum()) for mask in MASKS[:2] if mask in data)
    most = None
    if features * steps * edges > MOST_PRODUCTS or features * blocks * rows > MOST_ENTRIES:
        number = max(COMPONENTS, min(MOST_COMPONENTS, int(MOST_PRODUCTS / (edges * AVERAGES[-1][0] + 1))))
        most = number if number < features else None
    few = FEW_COMPONENTS if mode == "average" and not data.get("structural") else ()
    return (most, *(each for each in few if each < (most or features)))


class Propagated(NamedTuple):
    """The rows of some nodes under a candidate before they are normalised, and what they come from."""

    config: ModelConfig
    rows: Tensor
    #: What is propagated, where another of the same operator may share it, and its principal directions.
    source: Source | None
    basis: Tensor | None


def propagated(data: Graph, nodes: Tensor, configs: Sequence[ModelConfig]) -> Iterator[Propagated]:
    """The rows of ``nodes`` under each of these but for known labels, of as few propagations as possible."""
    groups: dict[tuple[object, ...], list[ModelConfig]] = {}
    directions: dict[object, Tensor] = {}
    # The most directions first: fewer are the first ones of these.
    for config in sorted(configs, key=lambda each: -(each.components or 0)):
        groups.setdefault((config.row_normalize, config.components), []).append(config)
    for (scale, components), group in groups.items():
        first = group[0].but(augment="hops", hops=1, normalize="none", directed="symmetric")
        like = augmentation(first)
        if components is not None and scale in directions:
            like.basis = directions[scale][:, : first.components].contiguous()
        source = like.source(data) if components is not None or first.unlabelled else None
        if like.basis is not None:
            directions.setdefault(scale, like.basis)
        shared = [
            config
            for config in group
            if config.augment == "none" or (config.augment in ("average", "hops") and config.directed == "symmetric")
        ]
        if len(shared) > 1:
            for config, rows in at_once(data, nodes, shared, like, source):
                group.remove(config)
                yield Propagated(config, rows, source, like.basis)
        for config in group:
            augment = augmentation(config.but(normalize="none"), like.basis)
            # What is propagated goes with the adjacency of one direction and mode.
            same = config.directed == "symmetric" and config.augment != "apart"
            own = source if same else None
            yield Propagated(config, augment.own_propagated(data, nodes, source=own), own, like.basis)


def at_once(
    data: Graph, nodes: Tensor, configs: Sequence[ModelConfig], like: GraphAugment, source: Source | None = None
) -> Iterator[tuple[ModelConfig, Tensor]]:
    """Rows of ``nodes`` under each of these, which are the features alone, hop blocks, and averages over powers.

    Of one propagation, before they are normalised.
    """
    averages = dict.fromkeys((each.hops or 1, each.teleport or 0.0) for each in configs if each.augment == "average")
    hops = max([1, *(each.hops or 1 for each in configs if each.augment == "hops")])
    reach = max([hops - 1, *(k for k, _ in averages)])
    blocks = [("hop", 0, 0.0)] + [
        (kind, k, own)
        for k in range(1, reach + 1)
        for kind, own in (*((("hop", 0.0),) if k < hops else ()), *(("mean", own) for K, own in averages if k == K))
    ]

    def operators(A: Tensor, H: Tensor) -> Iterator[Tensor]:
        power, total, step = H, torch.zeros_like(H), 0
        for kind, k, own in blocks:
            while step < k:
                power = A @ power
                total += power
                step += 1
            yield power if kind == "hop" else torch.add(own * H, total, alpha=(1 - own) / k)

    rows = like.own_propagated(data, nodes, source=source, operators=operators, blocks=len(blocks))
    found = dict(zip(blocks, rows.chunk(len(blocks), dim=1), strict=True))
    for config in configs:
        if config.augment == "average":
            yield config, found["mean", config.hops or 1, config.teleport or 0.0]
        else:
            number = config.hops or 1 if config.augment == "hops" else 1
            yield config, torch.cat([found["hop", k, 0.0] for k in range(number)], dim=1)
