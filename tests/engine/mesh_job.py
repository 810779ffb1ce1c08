"""One process of the tests of a group of four: problems on several meshes, poisoned variables, rows brought together.

Run by ``run_workers`` with the folder of the job. Checks in every epoch that all shards have the same weights.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

sys.path.append(str(Path(__file__).parents[1]))  # a process of its own has not read conftest.py

from helpers import poison
from helpers.dealing import dealing_to
from pdadmm_g.config import ModelConfig
from pdadmm_g.engine import team as team_module
from pdadmm_g.engine.gathering import Gatherer
from pdadmm_g.engine.launch import join
from pdadmm_g.engine.team import DistributedTeam
from pdadmm_g.errors import InputError
from pdadmm_g.graph.examples import Examples
from pdadmm_g.training import train as training
from pdadmm_g.training.checkpoint import Checkpointing, latest
from pdadmm_g.training.stage import Stage
from pdadmm_g.training.train import train

folder = Path(sys.argv[1])
torch.set_num_threads(1)
world = join("cpu", 60.0, watch=False)
data = load_file(str(folder / "data.safetensors"))
active = 0


def epoch_with_check(stage: Stage, number: int) -> torch.Tensor:
    measured = plain_epoch(stage, number)
    tensors = [tensor for layer in stage.worker.layers for tensor in (layer.W, layer.b)]
    if tensors:
        kind = torch.int64 if tensors[0].dtype == torch.float64 else torch.int32
        bits = torch.cat([tensor.flatten().view(kind).long() for tensor in tensors])
        both = torch.cat([bits, -bits])  # the largest and the smallest of all shards, in one message
        assert torch.equal(stage.team.rows.largest(both.clone()), both)
    return measured


def rows_of(case: str) -> tuple[Examples, Examples]:
    kind = torch.float32 if "float32" in case else torch.float64
    X, X_val = data["X_train"].to(kind), data["X_val"].to(kind)
    own = Examples(X, data["t_train"].to(kind), data["w_train"].to(kind)) if "weighted" in case else None
    return own or Examples(X, data["y_train"]), Examples(X_val, data["y_val"])


plain_epoch, Stage._epoch = Stage._epoch, epoch_with_check
training.deal_layers = dealing_to(lambda: active)
teams = {shards: DistributedTeam(shards) for shards in (1, 2, 4)}


def run(case: str, settings: dict, shards: int, name: str, *, resume: str = "", most: int = 99) -> None:
    team = teams[shards]
    training, validation = rows_of(case)
    part = Examples(*(each if each is None else each[:most] for each in training))
    rows = (part, validation) if team.rank == 0 else (None, None)
    checkpoints = Checkpointing(
        folder / case / (resume or name), {}, 10, latest(folder / case / resume) if resume else None
    )
    config = ModelConfig(**settings | {"workers": team.chain.size, "shards": shards})
    result = train(*rows, 4, config, seed=0, team=team, checkpointing=checkpoints)
    if result is not None:
        weights = torch.cat([parameter.detach().double().flatten() for parameter in result.model.parameters()])
        note = {"case": case, "mesh": name, "history": result.history, "weights": weights.tolist()}
        print(json.dumps(note), flush=True)


for case, settings in json.loads((folder / "cases.json").read_text()).items():
    for active, shards in ((1, 2), (2, 2), (1, 4)):
        run(case, settings, shards, f"{active}x{shards}")
    # What one mesh began, another ends: four shards up to the checkpoint of epoch 10, then two.
    active = 1
    run(case, settings | {"epochs": 12, "stages": [2], "layers": 2}, 4, "begun")
    active = 2
    run(case, settings, 2, "resumed", resume="begun")
# As if the tensors were on GPUs that are shared.
plain, team_module.by_way_of_the_host = team_module.by_way_of_the_host, lambda x: True
run(case, settings, 2, "by way of the host")
team_module.by_way_of_the_host = plain

# What the first process knows of the data, all refuse alike.
active = 1
try:
    run(case, settings | {"layers": 2, "stages": [2]}, 4, "refused", most=2)
except InputError as error:
    print(json.dumps({"refused": str(error)}), flush=True)

# Three workers of which one is poisoned, and one without layers.
active, Stage._epoch = 3, plain_epoch
for each in [*poison.cases()][:: poison.STEP]:
    outcome = poison.run(teams[1], each)
    if outcome is not None:
        print(json.dumps({"poisoned": outcome}), flush=True)

# Uneven parts, both ways, many times over.
line, counts = teams[4].rows, [4, 5, 3, 2]
for shared in (True, False):
    gather = Gatherer(line, counts, 7, shared=shared)
    for turn in range(20):
        columns = 1 + turn % 7
        everything = torch.arange(14 * columns).view(14, columns).float() + turn
        assert torch.equal(gather(everything.split(counts)[line.rank].clone()), everything)
    print(json.dumps({"in_memory": gather.in_memory}), flush=True)
    del gather
teams.clear()
world.leave()
os._exit(0)
