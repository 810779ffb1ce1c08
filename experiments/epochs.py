"""One epoch of each method on a team of processes, on random data: what the experiments on speed repeat.

pdADMM-G shares layers along the chain of the team and rows along its shards; so do the bare products. Full-batch Adam
shares the rows among all processes (DistributedDataParallel) or the layers (GPipe schedule of
torch.distributed.pipelining).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pdadmm_g.config import ModelConfig
from pdadmm_g.engine.layout import Plan, deal, layer_costs, widths
from pdadmm_g.engine.team import DistributedTeam, Stop, Team
from pdadmm_g.graph.examples import Examples
from pdadmm_g.model import GAMLP
from pdadmm_g.training.train import initial_layer

CLASSES = 10
#: Of random data, and for so many epochs after some to warm up.
Size = dict[str, int]
Step = Callable[[], object]


class Mesh(DistributedTeam):
    """The processes as a mesh for one measurement, in a team that has come together already."""

    def __init__(self, shards: int) -> None:
        super().__init__(shards)
        #: Called on every process when an epoch of training begins, with its number from 1.
        self.pace: Callable[[int], None] = lambda _: None
        #: Should training end after this epoch?
        self.enough = False

    def progress(self, *, epoch: int, layers: range) -> None:
        self.pace(epoch)

    def stop_requested(self) -> Stop:
        return Stop.CALLBACK if self.enough else Stop.NOBODY


def meshes() -> Callable[[int], Mesh]:
    """A function that gives the mesh of so many shards, each made once: connections are many."""
    made: dict[int, Mesh] = {}

    def mesh(shards: int) -> Mesh:
        if shards not in made:
            made[shards] = Mesh(shards)
        return made[shards]

    return mesh


def problem(size: Size) -> Examples:
    """Random features and labels of that size."""
    generator = torch.Generator().manual_seed(0)
    X = torch.nn.functional.normalize(torch.randn(size["nodes"], size["features"], generator=generator))
    return Examples(X, torch.randint(CLASSES, (size["nodes"],), generator=generator))


def admm_config(team: Team, size: Size, depth: int, epochs: int, **settings: Any) -> ModelConfig:
    """So many epochs of the whole network at once, whatever comes of it, evaluated at the end alone."""
    usual = {"solver": "linearized", "eval_every": epochs, "patience": None, "tolerance": 0.0}
    return ModelConfig(**{
            "layers": depth, "stages": (depth,), "hidden": size["hidden"], "epochs": epochs,
            "workers": team.chain.size, "shards": team.rows.size, **usual, **settings,
        })  # fmt: skip


def products(layers: Sequence[tuple[Tensor, Tensor, Tensor, bool]]) -> Callable[[], None]:
    """The matrix products that no epoch of these layers (p, r, W, is p updated?) can avoid, as a function to call."""

    def run() -> None:
        for p, r, W, updates_p in layers:
            if updates_p:
                r @ W
                p @ W.T
            r.T @ p
            p @ W.T

    return run


def product_step(team: Team, size: Size, depth: int) -> tuple[Step, Plan]:
    """r W, g W^T, r^T p and p G^T of every layer of this process, the first two not for the first layer; its rows."""
    shape = widths(size["features"], size["hidden"], CLASSES, depth)
    plan = deal(layer_costs(size["nodes"], shape, "linearized"), team.chain.size)
    rows = len(range(team.rows.rank, size["nodes"], team.rows.size))
    layers = []
    for index in plan.layers(team.chain.rank):
        p, r = torch.randn(rows, shape[index]), torch.randn(rows, shape[index + 1])
        layers.append((p, r, torch.randn(shape[index + 1], shape[index]), index > 0))
    return products(layers), plan


def ddp_step(team: Team, size: Size, depth: int, *, half: bool = False) -> Step:
    """Every process has the whole network and its share of the rows.

    Gradients travel in buckets while others are computed, as float16 if ``half``.
    """
    X, y, _ = problem(size)
    X, y = X.chunk(team.size)[team.rank], y.chunk(team.size)[team.rank]
    model, optimizer = ddp_model(team, widths(size["features"], size["hidden"], CLASSES, depth), half=half)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(X), y).backward()
        optimizer.step()

    return step


def ddp_model(
    team: Team,
    shape: list[int],
    *,
    half: bool = False,
    seed: int = 0,
    rate: float = 1e-3,
    same_start: bool = False,
    device: str = "cpu",
) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """The network as every process has it, from He's random weights or from where pdADMM-G starts; its optimizer."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    torch.manual_seed(seed)
    network = GAMLP(shape)
    for index, layer in enumerate(network.linears):
        assert isinstance(layer, torch.nn.Linear)
        torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        torch.nn.init.zeros_(layer.bias)
        if same_start:
            layer.weight.data = initial_layer(index, shape, len(shape) - 1, seed=seed, like=layer.weight.data).W
    model: torch.nn.Module = network.to(device)
    if team.size > 1:
        model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        if half:
            model.register_comm_hook(None, fp16_compress_hook)
    return model, torch.optim.Adam(model.parameters(), lr=rate)


def gpipe_step(team: Team, size: Size, depth: int, *, micro: int) -> Step:
    """Every process has its layers, and so many microbatches travel through them."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    X, y, _ = problem(size)
    shape = widths(size["features"], size["hidden"], CLASSES, depth)
    plan = deal(layer_costs(size["nodes"], shape, "linearized"), team.size)
    layers: list[torch.nn.Module] = []
    for index in plan.layers(team.rank):
        layers.append(torch.nn.Linear(shape[index], shape[index + 1]))
        if index < depth - 1:
            layers.append(torch.nn.ReLU())
    model = torch.nn.Sequential(*layers)
    rows = len(X) // micro * micro
    own = torch.empty(rows // micro, shape[plan.layers(team.rank).start])
    stage = PipelineStage(model, team.rank, team.size, torch.device("cpu"), input_args=(own,))
    schedule = ScheduleGPipe(stage, n_microbatches=micro, loss_fn=torch.nn.functional.cross_entropy)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        if team.rank == 0:
            schedule.step(X[:rows])
        elif team.rank == team.size - 1:
            schedule.step(target=y[:rows], losses=[])
        else:
            schedule.step()
        optimizer.step()

    return step
