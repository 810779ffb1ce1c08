"""A worker one bit of whose W flips before a chosen epoch, as in faulty memory. CORRUPT = "rank:epoch:layer"."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from pdadmm_g import cli
from pdadmm_g.engine.worker import Worker
from pdadmm_g.training import fit

rank, epoch, layer = os.environ["CORRUPT"].split(":")
seen = 0
plain_epoch = Worker.epoch


def corrupted(worker: Worker):
    global seen
    seen += 1
    if seen == int(epoch):
        # Not the lowest one, which the next step may round away.
        worker.layers[int(layer)].W.view(-1).view(torch.int32)[3] ^= 1 << 20
    return plain_epoch(worker)


if os.environ["RANK"] == rank and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
    Worker.epoch = corrupted
if sys.argv[1] == "train":
    cli.main(sys.argv[1:])
else:
    fit.main(Path(sys.argv[1]))
    os._exit(0)  # as a worker ends
