"""A worker that dies, hangs or has a broken memory at a chosen moment, then is an ordinary one after a restart.

FAULT = "rank:moment:epoch:signal", the moment being compute, transfer or checkpoint; or
"rank:memory:epoch:layer", where one bit of W flips.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch

from pdadmm_g import cli
from pdadmm_g.engine.link import Link
from pdadmm_g.engine.worker import Worker
from pdadmm_g.training import checkpoint, fit

rank, moment, epoch, name = os.environ["FAULT"].split(":")
seen = 0


def strike() -> None:
    os.kill(os.getpid(), signal.Signals[name])


def arm() -> None:
    plain_epoch, plain_send, plain_write = Worker.epoch, Link.send, checkpoint.write_safely

    def counted(worker: Worker):
        global seen
        seen += 1
        if moment == "compute" and seen == int(epoch):
            strike()
        if moment == "memory" and seen == int(epoch):
            # Not the lowest bit, which the next step may round away.
            worker.layers[int(name)].W.view(-1).view(torch.int32)[3] ^= 1 << 20
        return plain_epoch(worker)

    def interrupted(link: Link, x) -> None:
        plain_send(link, x)
        if moment == "transfer" and seen == int(epoch):
            strike()

    def halfway(path: Path, tensors) -> None:
        plain_write(path, tensors)
        if moment == "checkpoint" and int(path.parent.name.removeprefix("epoch-")) >= int(epoch):
            path.write_bytes(path.read_bytes()[:100])
            strike()

    Worker.epoch, Link.send, checkpoint.write_safely = counted, interrupted, halfway


if os.environ["RANK"] == rank and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
    arm()
if sys.argv[1] == "train":
    cli.main(sys.argv[1:])
else:
    fit.main(Path(sys.argv[1]))
    os._exit(0)  # as a worker ends
