"""One process of the test of gathering: rows of uneven parts, both ways, many times over."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

from pdadmm_g.engine.gathering import Gatherer
from pdadmm_g.engine.launch import join

assert Path(sys.argv[1]).is_dir()
team = join("cpu", 60.0, watch=False, shards=3)
line, counts = team.rows, [4, 5, 3]
for shared in (True, False):
    gather = Gatherer(line, counts, 7, shared=shared)
    for turn in range(20):
        columns = 1 + turn % 7
        everything = torch.arange(12 * columns).view(12, columns).float() + turn
        whole = gather(everything.split(counts)[line.rank].clone())
        assert torch.equal(whole, everything)
    kind = "shared" if gather.in_memory else "network"
    print(json.dumps({"kind": kind, "sent": gather.sent, "shared": gather.shared}), flush=True)
    gather.close()
    del gather, whole
team.leave()
os._exit(0)
