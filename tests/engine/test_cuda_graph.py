"""What a CUDA graph would do, with a plain object in its place: when an epoch is recorded, and when anew."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext

import pytest
import torch

from pdadmm_g.engine.cuda_graph import RecordedEpoch


def test_an_epoch_is_recorded_after_a_few_and_again_when_rho_changes(
    make_chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    class Graph:
        def replay(self) -> None:
            events.append("replayed")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: events.append("recorded") or nullcontext())
    worker = make_chain()
    recorded = RecordedEpoch()
    for _ in range(5):
        recorded(worker)
    assert events == ["recorded", "replayed", "replayed"]
    worker.rho *= 2
    recorded(worker)  # a plain one first, in which what depends on rho is compiled again
    assert len(events) == 3
    recorded(worker)
    assert events[3:] == ["recorded", "replayed"]


def test_a_cpu_records_nothing(make_chain) -> None:
    assert not RecordedEpoch.suits(make_chain())


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
