"""One of several processes that train runs on folders of shards, those of FOLDER/job-SIZE.json.

``python parts_job.py FOLDER``, with ``{"few": {numbers of trials}, "runs": {"name": {settings of a run}, ...}}``; each
run is written to FOLDER/name-SIZE.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from pathlib import Path

import torch

from pdadmm_g.config import RunConfig
from pdadmm_g.engine.launch import join
from pdadmm_g.runs.run import train_run
from pdadmm_g.training import choose


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    size = int(os.environ["WORLD_SIZE"])
    team = join("cpu", 60.0, watch=False, shards=size)
    job = json.loads((folder / f"job-{size}.json").read_text())
    for name, number in job["few"].items():
        setattr(choose, name, number)
    for name, settings in job["runs"].items():
        config = RunConfig(**settings, shards=size, out=str(folder / f"{name}-{size}"))
        train_run(config, team=team)
    team.leave()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
