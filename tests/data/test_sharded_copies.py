"""Copies of a graph in shards: random by the number of a node, so that all numbers of shards draw the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.communities import communities
from helpers.threads import ThreadLine, on_threads
from pdadmm_g.admm.risks import Targets
from pdadmm_g.data import sharded_augmentation
from pdadmm_g.data.augmentation import GraphAugment
from pdadmm_g.data.propagation import normalized
from pdadmm_g.data.sharded_augmentation import ShardedAugment, ShardedCopies, uniform
from pdadmm_g.data.sharding import graph_source, shard_graph
from pdadmm_g.data.shards import ShardFolder

DATA = communities(nodes=120, features=40)
SETTINGS = {
    "hops": {"mode": "hops", "hops": 3, "normalize": "unit"},
    "average": {"mode": "average", "hops": 2, "normalize": "centered"},
    "none": {"mode": "none", "hops": 1, "normalize": "none", "row_normalize": False},
}
DROP, SEED = 0.4, 11


def on_shards(folder: Path, processes: int, settings: dict, most: int) -> tuple[list[int], torch.Tensor]:
    """The sample of so many nodes, and two copies of the training nodes and of these, of all processes."""

    def work(line: ThreadLine) -> tuple[list[int], torch.Tensor]:
        part = ShardFolder(folder).part(line.rank, line.size)
        sharded = ShardedAugment(part, GraphAugment(**settings), line, line.gatherer)
        sharded.prepare()
        mask = part.column("train_mask")
        assert mask is not None
        training = np.flatnonzero(mask)
        copies = ShardedCopies(sharded, DROP, training, Targets(torch.zeros(len(training))))
        sample = copies.sample(most, seed=3)
        rows = copies.draw(np.sort(np.concatenate([training, sample])), 2, SEED)
        return (part.first + sample).tolist(), rows

    found = on_threads(processes, work)
    return [node for sample, _ in found for node in sample], torch.cat([rows for _, rows in found], 1)


def by_one_process(nodes: list[int], augment: GraphAugment) -> torch.Tensor:
    """The same copies, from the whole graph and with the same nodes left out."""
    augment.fit(DATA.clone())
    source, found = augment.source(DATA.clone()), []
    for seed in np.random.SeedSequence(SEED).generate_state(2, np.uint64).tolist():
        kept = torch.from_numpy(uniform(seed, np.arange(120)) >= DROP).float()[:, None]
        rows = torch.cat(list(augment.operator(source.A, source.H * kept / (1 - DROP))), 1)[nodes]
        found.append(normalized(rows, augment.normalize, augment.blocks, augment.mean, augment.scale))
    return torch.stack(found)


@pytest.mark.parametrize(("shards", "processes"), [(1, 1), (2, 2), (3, 3), (6, 2)])
@pytest.mark.parametrize("name", SETTINGS)
def test_as_on_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, shards: int, processes: int):
    monkeypatch.setattr(sharded_augmentation, "WHOLE_BYTES", 1)  # blocks of 16 columns: three
    shard_graph(graph_source(DATA, ""), shards, tmp_path / "out")
    sample, rows = on_shards(tmp_path / "out", processes, SETTINGS[name], most=25)
    training = DATA.train_mask.nonzero().view(-1).tolist()
    others = (~DATA.train_mask).nonzero().view(-1).numpy()
    lots = uniform(3, others)
    assert sample == np.sort(others[np.argsort(lots)[:25]]).tolist()
    expected = by_one_process(sorted(training + sample), GraphAugment(**SETTINGS[name]))
    torch.testing.assert_close(rows, expected, rtol=0, atol=2e-6)
    assert not torch.equal(rows[0], rows[1])


@pytest.mark.parametrize("processes", [1, 3])
def test_more_than_there_are_is_all_nodes_that_do_not_train(tmp_path: Path, processes: int) -> None:
    shard_graph(graph_source(DATA, ""), 3, tmp_path / "out")
    sample, _ = on_shards(tmp_path / "out", processes, SETTINGS["none"], most=10**6)
    assert sample == (~DATA.train_mask).nonzero().view(-1).tolist()


def test_numbers_are_uniform_and_of_different_seeds_independent() -> None:
    first, second = (uniform(seed, np.arange(10**5)) for seed in (0, 1))
    for numbers in (first, second):
        assert numbers.min() >= 0
        assert numbers.max() < 1
        counts = np.histogram(numbers, bins=10, range=(0, 1))[0]
        assert abs(counts - 10**4).max() < 500  # five standard deviations
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) < 0.02
    assert uniform(2**64 - 1, np.array([10**15])).tolist() == uniform(2**64 - 1, np.arange(10**15, 10**15 + 1)).tolist()
