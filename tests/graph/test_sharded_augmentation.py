"""Augmentation over shards gives what one process makes of the whole graph, and goes on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.communities import communities
from helpers.threads import ThreadLine, on_threads
from pdadmm_g.admm.risks import Targets
from pdadmm_g.errors import InputError
from pdadmm_g.graph import sharded_augmentation
from pdadmm_g.graph.augmentation import GraphAugment
from pdadmm_g.graph.sharded_augmentation import ShardedAugment, ShardedCopies, uniform
from pdadmm_g.graph.shards import ShardFolder, graph_source, shard_graph

DATA = communities(nodes=120, features=40)
SETTINGS = {
    "hops": {"mode": "hops", "hops": 3, "normalize": "unit"},
    "average": {"mode": "average", "hops": 4, "normalize": "centered"},
    "power": {"mode": "power", "hops": 2, "normalize": "none", "row_normalize": False},
    "none": {"mode": "none", "hops": 1, "normalize": "centered"},
    "components": {"mode": "average", "hops": 2, "normalize": "centered", "components": 8},
}


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[int], Path]:
    """A folder of so many shards of the graph."""

    def make(shards: int) -> Path:
        shard_graph(graph_source(DATA, ""), shards, tmp_path / "out")
        return tmp_path / "out"

    return make


def on_part(line: ThreadLine, folder: Path, settings: dict) -> ShardedAugment:
    return ShardedAugment(ShardFolder(folder).part(line.rank, line.size), GraphAugment(**settings), line, line.gatherer)


def augmented(folder: Path, processes: int, settings: dict) -> tuple[torch.Tensor, GraphAugment]:
    def work(line: ThreadLine) -> tuple[torch.Tensor, GraphAugment]:
        sharded = on_part(line, folder, settings)
        sharded.prepare()
        rows = torch.cat(list(sharded.blocks()))
        own = np.arange(1, sharded.part.count, 3)
        assert torch.equal(sharded.rows(own), rows[own])
        return rows, sharded.augment

    found = on_threads(processes, work)
    for _, augment in found[1:]:
        for name, tensor in augment.learned().items():
            assert torch.equal(tensor, found[0][1].learned()[name])  # the same bits everywhere
    return torch.cat([rows for rows, _ in found]), found[0][1]


@pytest.mark.parametrize(("shards", "processes"), [(3, 3), (6, 2), (3, 1)])
@pytest.mark.parametrize("name", SETTINGS)
def test_as_on_one_process(
    folder: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch, name: str, shards: int, processes: int
) -> None:
    monkeypatch.setattr(GraphAugment, "sample", 30)
    whole = GraphAugment(**SETTINGS[name])
    expected = whole.fit_transform(DATA.clone())
    rows, augment = augmented(folder(shards), processes, SETTINGS[name])
    torch.testing.assert_close(rows, expected, rtol=0, atol=2e-6 if name != "components" else 2e-4)
    for known, tensor in whole.learned().items():
        torch.testing.assert_close(augment.learned()[known], tensor, rtol=0, atol=1e-6 if known != "basis" else 2e-4)


def test_with_another_number_of_processes_nothing_is_computed_again(folder: Callable[[int], Path]) -> None:
    first, _ = augmented(folder(6), 3, SETTINGS["average"])
    files = {path: path.stat().st_mtime_ns for path in folder(6).rglob("propagated-*.json")}
    assert len(files) == 6
    second, _ = augmented(folder(6), 2, SETTINGS["average"])
    torch.testing.assert_close(first, second)
    assert files == {path: path.stat().st_mtime_ns for path in files}


@pytest.mark.parametrize("stop", [0, 1, 2])
def test_interrupted_work_goes_on_after_the_last_block(
    folder: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    monkeypatch.setattr(sharded_augmentation, "WHOLE_BYTES", 1)  # blocks of 16 columns: three
    out, seen, stopping = folder(2), list[list[int]](), True

    def work(line: ThreadLine) -> torch.Tensor:
        blocks: list[int] = []

        def on_block(done: int, total: int) -> None:
            assert total == 3
            blocks.append(done)
            if stopping and done == stop and line.rank == 0:
                raise InterruptedError

        sharded = on_part(line, out, SETTINGS["hops"])
        sharded.prepare(on_block)
        seen.append(blocks)
        return torch.cat(list(sharded.blocks()))

    with pytest.raises(InterruptedError):
        on_threads(2, work)
    stopping = False
    rows = torch.cat(on_threads(2, work))
    assert seen == [list(range(stop, 4))] * 2
    expected = GraphAugment(**SETTINGS["hops"]).fit_transform(DATA.clone())
    torch.testing.assert_close(rows, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("before", ["first", None])
def test_what_may_be_lost_with_the_power_is_not_taken_for_done(
    folder: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    """Blocks that were in memory alone do not count once the machine has started anew; flushed ones do."""
    monkeypatch.setattr(sharded_augmentation, "WHOLE_BYTES", 1)
    out, flushed = folder(1), list[int]()
    flush = np.memmap.flush
    monkeypatch.setattr(np.memmap, "flush", lambda file: (flushed.append(1), flush(file)))

    def blocks(boot: str | None, stop: int = 4) -> list[int]:
        seen: list[int] = []

        def on_block(done: int, _: int) -> None:
            seen.append(done)
            if done == stop:
                raise InterruptedError

        monkeypatch.setattr(sharded_augmentation, "boot_id", lambda: boot)
        with suppress(InterruptedError):
            on_threads(1, lambda line: on_part(line, out, {}).prepare(on_block))
        return seen

    assert blocks(before, 2) == [0, 1, 2]
    assert len(flushed) == (0 if before else 2)
    assert blocks("second") == ([0, 1, 2, 3] if before else [2, 3])
    assert blocks("third") == [3]  # all of it is on disk


def test_a_damaged_file_is_named(folder: Callable[[int], Path]) -> None:
    out = folder(2)
    augmented(out, 2, SETTINGS["hops"])
    (file,) = (out / "shard-2-of-2").glob("propagated-*.npy")
    for content in (file.read_bytes()[:500], b"", b"PK\5\6" + bytes(18)):
        file.write_bytes(content)
        with pytest.raises(InputError, match=r"shard-2-of-2/propagated-\w+.npy: cannot read as an array"):
            augmented(out, 1, SETTINGS["hops"])
    file.with_suffix(".json").write_text(json.dumps({"blocks": "many"}))
    with pytest.raises(InputError, match=r"propagated-\w+.json: cannot read the progress: .*blocks"):
        augmented(out, 1, SETTINGS["hops"])


COPIED = {
    "hops": {"mode": "hops", "hops": 3, "normalize": "unit"},
    "average": {"mode": "average", "hops": 2, "normalize": "centered"},
    "none": {"mode": "none", "hops": 1, "normalize": "none", "row_normalize": False},
}
DROP, SEED = 0.4, 11


def on_shards(folder: Path, processes: int, settings: dict, most: int) -> tuple[list[int], torch.Tensor]:
    """The sample of so many nodes, and two copies of the training nodes and of these, of all processes."""

    def work(line: ThreadLine) -> tuple[list[int], torch.Tensor]:
        sharded = on_part(line, folder, settings)
        sharded.prepare()
        training = np.flatnonzero(sharded.part.column("train_mask"))
        copies = ShardedCopies(sharded, DROP, training, Targets(torch.zeros(len(training))))
        sample = copies.sample(most, seed=3)
        rows = copies.draw(np.sort(np.concatenate([training, sample])), 2, SEED)
        return (sharded.part.first + sample).tolist(), rows

    found = on_threads(processes, work)
    return [node for sample, _ in found for node in sample], torch.cat([rows for _, rows in found], 1)


def by_one_process(nodes: list[int], augment: GraphAugment) -> torch.Tensor:
    """The same copies, from the whole graph and with the same nodes left out."""
    augment.fit(DATA.clone())
    source, found = augment.source(DATA.clone()), []
    for seed in np.random.SeedSequence(SEED).generate_state(2, np.uint64).tolist():
        kept = torch.from_numpy(uniform(seed, np.arange(120)) >= DROP).float()[:, None]
        rows = torch.cat(list(augment.operator(source.A, source.H * kept / (1 - DROP))), 1)[nodes]
        found.append(augment._normalized(rows))
    return torch.stack(found)


@pytest.mark.parametrize(("shards", "processes"), [(1, 1), (3, 3), (6, 2)])
@pytest.mark.parametrize("name", COPIED)
def test_copies_are_those_of_one_process(
    folder: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch, name: str, shards: int, processes: int
) -> None:
    monkeypatch.setattr(sharded_augmentation, "WHOLE_BYTES", 1)  # blocks of 16 columns: three
    sample, rows = on_shards(folder(shards), processes, COPIED[name], most=25)
    training = DATA.train_mask.nonzero().view(-1).tolist()
    others = (~DATA.train_mask).nonzero().view(-1).numpy()
    assert sample == np.sort(others[np.argsort(uniform(3, others))[:25]]).tolist()
    expected = by_one_process(sorted(training + sample), GraphAugment(**COPIED[name]))
    torch.testing.assert_close(rows, expected, rtol=0, atol=2e-6)
    assert not torch.equal(rows[0], rows[1])
    everyone, _ = on_shards(folder(shards), processes, COPIED[name], most=10**6)
    assert everyone == others.tolist()


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
