"""How many epochs does a method need for an accuracy? That does not depend on the network between the processes.

The task has the shape of what is timed: a cloud of points a class, in a few directions of many, as the averaged
features of a graph lie; rows of unit length; a fifth as many others validate. All methods train the whole depth at
once. Adam starts from He's random weights as usual, or, like pdADMM-G, from hidden layers that pass on what they get.
What is to be set is chosen on validation with the first seed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from pdadmm_g.engine.launch import join
from pdadmm_g.engine.layout import widths
from pdadmm_g.engine.team import Team
from pdadmm_g.graph.examples import Examples
from pdadmm_g.training.train import train

from .epochs import CLASSES, Mesh, Size, admm_config, ddp_model
from .paced import ADMM
from .results import Row
from .speedup import ADAM, speak

CLUSTERS, SAME_START = "clusters", "Adam, data parallel, from pdADMM-G's start"
#: Directions in which the points lie, and how far they scatter along these and all others.
DIRECTIONS, ALONG, ACROSS = 32, 0.35, 0.3
#: A method has learnt when it has this share of the best accuracy of Adam.
SHARE = 0.99
METHODS = (ADAM, SAME_START, *ADMM)


def choices(method: str) -> list[dict[str, Any]]:
    """The settings of which each method has the one that suits it best."""
    if method in ADMM:
        return [{"nu": 0.1, "rho": 0.5, "weight_decay": decay} for decay in (0.1, 0.3, 1.0)]
    return [{"rate": rate} for rate in (3e-4, 1e-3, 3e-3)]


def task(size: Size, seed: int) -> tuple[Examples, Examples]:
    """Rows to train on, and others to validate."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(CLASSES, DIRECTIONS, generator=generator) * (2 / DIRECTIONS) ** 0.5
    turn = torch.randn(DIRECTIONS, size["features"], generator=generator) / DIRECTIONS**0.5

    def draw(rows: int) -> Examples:
        y = torch.randint(CLASSES, (rows,), generator=generator)
        inner = centres[y] + ALONG * torch.randn(rows, DIRECTIONS, generator=generator)
        outer = ACROSS * torch.randn(rows, size["features"], generator=generator)
        return Examples(torch.nn.functional.normalize(inner @ turn + outer), y)

    return draw(size["nodes"]), draw(max(1, size["nodes"] // 5))


def on(examples: Examples, device: str) -> Examples:
    """The same on a device."""
    return Examples(examples.X.to(device), examples.y.to(device))


def adam(team: Team, order: Row, case: Row, settings: dict[str, Any]) -> list[float]:
    """Validation accuracy after each epoch of full-batch Adam, rows shared."""
    device = order["device"]
    training, validation = (on(examples, device) for examples in task(order["size"], order["seed"]))
    shape = widths(order["size"]["features"], order["size"]["hidden"], CLASSES, case["depth"])
    model, optimizer = ddp_model(
        team,
        shape,
        seed=order["seed"],
        rate=settings["rate"],
        same_start=case["method"] == SAME_START,
        device=device,
    )
    (X, y), (X_val, y_val) = (
        (examples.X.chunk(team.size)[team.rank], examples.y.chunk(team.size)[team.rank])
        for examples in (training, validation)
    )
    curve = []
    for _ in range(order["epochs"]):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(X), y).backward()
        optimizer.step()
        with torch.no_grad():
            hits = (model(X_val).argmax(dim=1) == y_val).sum().double()[None]
        curve.append(float(team.sum(hits.cpu())) / len(validation.X))
    return curve


def admm(mesh: Mesh, order: Row, case: Row, settings: dict[str, Any]) -> list[float]:
    """Likewise of pdADMM-G, rows shared; known to the first process."""
    extra = ADMM[case["method"]] | settings | {"eval_every": 1, "device": order["device"]}
    config = admm_config(mesh, order["size"], case["depth"], order["epochs"], **extra)
    training = validation = None
    if mesh.rank == 0:
        training, validation = (on(examples, order["device"]) for examples in task(order["size"], order["seed"]))
    result = train(training, validation, CLASSES, config, seed=order["seed"], team=mesh)
    return [0.0] if result is None else [float(record["val_accuracy"] or 0.0) for record in result.history]


def measured(team: Team, order: Row) -> Iterator[Row]:
    """The curves of every case of the order, with the settings that suit it best, or those that were chosen before."""
    mesh, chosen = Mesh(team.size), dict(order["chosen"])
    for case in order["cases"]:
        # What is quantized has the settings of what is not.
        group = METHODS[2] if case["method"] in ADMM else case["method"]
        tried = [chosen[group]] if group in chosen else choices(case["method"])
        learn = admm if case["method"] in ADMM else adam
        curves = [learn(mesh, order, case, settings) for settings in tried]
        best = int(mesh.broadcast(torch.tensor([_best(curves)]), 0))
        chosen.setdefault(group, tried[best])
        if team.stop_requested():
            yield {"interrupted": True}
            return
        yield {
            **case, "seeds": [order["seed"]], "size": order["size"], "settings": tried[best],
            "tried": [{**settings, "best": max(curve)} for settings, curve in zip(tried, curves, strict=True)],
            "curve": curves[best],
        }  # fmt: skip


def _best(curves: Sequence[Sequence[float]]) -> int:
    """The curve that comes highest, the first of equals."""
    return max(range(len(curves)), key=lambda place: max(curves[place]))


def epochs_to(rows: Sequence[Row], method: str, goal: str) -> list[int | None]:
    """Epochs of a method to SHARE of the best accuracy of another, a number for each repeat; None if never reached."""
    found: list[int | None] = []
    targets = {row["repeat"]: SHARE * max(row["curve"]) for row in rows if row["method"] == goal}
    for row in rows:
        if row["method"] == method and row["repeat"] in targets:
            hits = [place for place, value in enumerate(row["curve"], start=1) if value >= targets[row["repeat"]]]
            found.append(hits[0] if hits else None)
    return found


def worker(job: Path) -> None:
    """What each process does."""
    order = json.loads((job / "order.json").read_text())
    torch.set_num_threads(1)
    team = join(order["device"], 600.0, watch=False)
    speak(team, measured(team, order))


if __name__ == "__main__":
    worker(Path(sys.argv[1]))
