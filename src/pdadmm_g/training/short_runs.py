"""Short runs of training by which settings are chosen, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from ..config import ModelConfig
from ..data.propagation import quiet
from ..utils import task, usable_cores

Found = TypeVar("Found")


def short_runs(name: str, run: Callable[[ModelConfig], Found], configs: Sequence[ModelConfig]) -> list[Found]:
    """What ``run`` gives for each, as many at a time as there are cores, each on threads of its own; a task by name.

    Each is as it would be alone, bit for bit. On a GPU one after the other: they would wait for each other there.
    """
    threads, on_cpu = max((config.threads for config in configs), default=1), all(c.device == "cpu" for c in configs)
    at_a_time = max(1, usable_cores() // threads) if on_cpu else 1
    with (
        quiet(),
        task(name, len(configs)) as step,
        ThreadPoolExecutor(at_a_time, initializer=torch.set_num_threads, initargs=(threads,)) as pool,
    ):
        try:
            found = []
            for each in pool.map(run, configs):
                found.append(each)
                step()
            return found
        except BaseException:
            pool.shutdown(cancel_futures=True)  # an interrupt does not wait for those that have not begun
            raise
