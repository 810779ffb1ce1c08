"""A process of a task on shards that is lost while the others score: what ``sharded_process`` does, until then."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pdadmm_g.runs import sharded_process
from pdadmm_g.training import sharded

if os.environ["RANK"] == "1":
    sharded.score = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
sharded_process.main(Path(sys.argv[1]))
