"""A process that is killed while one of its pool is at work."""

from __future__ import annotations

import os
import signal
import time

from experiments.cells import process_pool

if __name__ == "__main__":
    with process_pool(1) as pool:
        pool.submit(os.getpid).result()
        pool.submit(time.sleep, 1000.0)
        os.kill(os.getpid(), signal.SIGKILL)
