"""What a CUDA graph would do, with a plain object in its place: when an epoch is recorded."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext

import pytest
import torch

from pdadmm_g.engine.worker import PLAIN


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens to graphs, in order."""
    happened: list[str] = []

    class Graph:
        def replay(self) -> None:
            happened.append("replayed")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: happened.append("recorded") or nullcontext())
    return happened


def test_an_epoch_is_recorded_after_a_few(make_chain, events: list[str]) -> None:
    worker = make_chain()
    worker.records = True
    for _ in range(PLAIN + 2):
        worker.epoch()
    assert events == ["recorded", "replayed", "replayed"]


@pytest.mark.parametrize("begin", [0, 6])
def test_exact_epochs_that_invert_are_recorded_apart(make_chain, events: list[str], begin: int) -> None:
    """None before a plain one of its kind, also where a run goes on in between."""
    worker = make_chain(solver="exact")
    worker.records, worker.epochs = True, begin
    recorded = {}
    for epoch in range(begin, 3 * worker.invert_every):
        events.clear()
        worker.epoch()
        recorded[epoch] = "recorded" in events
    first = begin + PLAIN
    inverting = worker.invert_every * (1 if begin == 0 else 2)
    assert [epoch for epoch, new in recorded.items() if new] == [first, inverting]


def test_a_worker_is_gone_as_soon_as_nobody_has_it(make_chain) -> None:
    """Its memory is that of the whole network: it must not wait for the garbage collector."""
    gc.disable()
    try:
        worker = make_chain()
        worker.epoch()
        gone = weakref.ref(worker)
        del worker
        assert gone() is None
    finally:
        gc.enable()
