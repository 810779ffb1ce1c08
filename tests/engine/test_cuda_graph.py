"""What a CUDA graph would do, with a plain object in its place: when an epoch is recorded."""

from __future__ import annotations

import gc
import weakref


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
