"""Do fewer epochs reach the same accuracy? What may be changed in Algorithm 1, beside the algorithm as it is.

    python -m benchmarks.epochs_to_accuracy --data-root raw --out results/performance/epochs-to-accuracy

Labelled nodes alone train, on the average of 8 hops, centred, with weight decay 0.3, ``nu = 1`` and 100 neurons, all
layers at once. A variant's figures are the epochs and seconds after which the validation accuracy, mean of several
random splits, first reaches 99% of that of the algorithm as it is at the end of a long run; and what a run that stops
after 50 epochs without a better one keeps. No test node is looked at. The splits train side by side: every tensor has
them as its first dimension. Seconds are CPU time of one thread for one split, without the scoring.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from experiments.results import read, write
from pdadmm_g.admm import updates
from pdadmm_g.admm.activations import ACTIVATIONS
from pdadmm_g.admm.risks import RISKS, Targets
from pdadmm_g.admm.rows import Rows
from pdadmm_g.admm.state import Weights
from pdadmm_g.engine.layout import widths
from pdadmm_g.training.train import initial_layer

DATASETS = (
    "cora", "citeseer", "pubmed", "amazon-computers", "amazon-photo", "coauthor-cs", "coauthor-physics",
)  # fmt: skip
FEATURES = {"augment": "average", "hops": 8, "normalize": "centered", "unlabelled": 0, "weight_decay": 0.3}
NU, MU, HIDDEN, PATIENCE, SHARE = 1.0, 0.3, 100, 50, 0.99
f, R = ACTIVATIONS["relu"], RISKS["cross-entropy"]


@dataclass(frozen=True)
class Variant:
    """Algorithm 1 with what may be changed in it."""

    rho: float = 5.0
    #: Weight kappa of the proximal term in the z-step; the paper's is 1.
    proximal: float = 1.0
    #: alpha: the q- and u-steps take alpha p + (1 - alpha) q_old in the place of p.
    relaxation: float = 1.0
    #: How many earlier epochs Anderson acceleration combines; 0 for none.
    memory: int = 0
    #: The variables that it combines; with all of them, not if the Lagrangian would be higher than without.
    combined: str = "pWbzqu"


VARIANTS = {
    "as it is": Variant(),
    "rho = nu": Variant(rho=1),
    "no proximal term": Variant(proximal=0),
    "over-relaxation 1.6": Variant(relaxation=1.6),
    "no proximal term, over-relaxation 1.6": Variant(proximal=0, relaxation=1.6),
    "no proximal term, rho = 2 nu": Variant(proximal=0, rho=2),
    "no proximal term, rho = nu": Variant(proximal=0, rho=1),
    "Anderson, no proximal term": Variant(memory=5, proximal=0),
    "Anderson on q and u, no proximal term": Variant(memory=5, proximal=0, combined="qu"),
}


class Data(NamedTuple):
    """The rows of all splits of a graph, (splits, rows, ...), in coordinates where there are fewer than features."""

    X: Tensor
    y: Tensor
    X_validation: Tensor
    y_validation: Tensor
    #: Nodes that neither train nor validate, where they were asked for; nobody knows their labels.
    X_unlabelled: Tensor
    #: Of the graph.
    features: int


def rows_of(
    dataset: str, data_root: str, splits: Sequence[int], folder: Path | None, number: int = 0, unlabelled: int = 0
) -> Data:
    """As training has them: 20 rows a class, or that number of any. Kept in the ``folder`` from one run to the next."""
    parts = []
    for split in splits:
        file = folder / f"{dataset}-{number}-{unlabelled}-{split}.pt" if folder else None
        if file is not None and file.exists():
            parts.append(torch.load(file))
            continue
        parts.append(augmented(dataset, data_root, split, number, unlabelled))
        if file is not None:
            torch.save(parts[-1], file)
    *tensors, features = zip(*parts, strict=True)
    return Data(*map(torch.stack, tensors), features[0])


def augmented(
    dataset: str, data_root: str, split: int, number: int, unlabelled: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, int]:
    """The rows of one split."""
    from experiments.cells import problem_of
    from experiments.splits import random_split
    from pdadmm_g.config import ModelConfig

    def with_more(data: Any, split: int) -> Any:
        """Nodes that would test train instead."""
        data = random_split(data, split)
        if number:
            nodes = data.test_mask.nonzero().view(-1)
            order = torch.randperm(len(nodes), generator=torch.Generator().manual_seed(split))
            data.train_mask[nodes[order[: number - int(data.train_mask.sum())]]] = True
            data.test_mask &= ~data.train_mask
        return data

    problem = problem_of(dataset, data_root, ModelConfig(**FEATURES).resolved(), split, with_more)
    assert problem.validation is not None
    assert problem.test is not None
    X, y, V, y_validation = *problem.training[:2], *problem.validation[:2]
    rest = problem.test.X
    U = rest[torch.randperm(len(rest), generator=torch.Generator().manual_seed(split))[:unlabelled]]
    span = torch.cat([X, U])
    basis = torch.linalg.qr(span.T)[0] if len(span) < X.shape[1] else torch.eye(X.shape[1])
    return X @ basis, y, V @ basis, y_validation, U @ basis, X.shape[1]


class State(NamedTuple):
    """The variables, one tensor a layer (p, W, b, z) or a boundary (q, u); p_1 = X."""

    p: list[Tensor]
    W: list[Tensor]
    b: list[Tensor]
    z: list[Tensor]
    q: list[Tensor]
    u: list[Tensor]

    def residual(self, layer: int) -> Tensor:
        return self.p[layer] @ self.W[layer].mT + self.b[layer] - self.z[layer]


class Algorithm:
    """Algorithm 1 on all splits of a graph side by side."""

    def __init__(self, data: Data, depth: int, solver: str, variant: Variant) -> None:
        self.data, self.depth, self.solver, self.variant = data, depth, solver, variant
        self.rows, self.y = Rows(data.y.shape[1]), Targets(data.y.flatten())
        self.first = updates.gram(data.X, nu=NU, mu=MU, rows=self.rows) if solver == "exact" else None
        self.classes = int(data.y.max()) + 1
        self.W0 = [Weights.of(W[0], W[0, :, 0], layer, depth).W0 for layer, W in enumerate(self.weights())]
        self.past: list[tuple[Tensor, Tensor]] = []
        self.plain: tuple[Tensor, Tensor] | None = None

    def weights(self) -> list[Tensor]:
        """Random first and last layers, a seed a split, scaled to the features; the identity between."""
        X = self.data.X
        shape = widths(X.shape[2], HIDDEN, self.classes, self.depth)
        weights = [
            torch.stack([initial_layer(layer, shape, self.depth, seed=seed, like=X).W for seed in range(len(X))])
            for layer in range(self.depth)
        ]
        weights[0] *= (X.shape[2] / self.data.features) ** 0.5
        return weights

    def start(self) -> State:
        """What a forward pass leaves."""
        state = State([self.data.X], self.weights(), [], [], [], [])
        for layer, W in enumerate(state.W):
            state.b.append(W.new_zeros(len(W), 1, W.shape[1]))
            state.z.append(state.p[layer] @ W.mT)
            if layer < self.depth - 1:
                state.q.append(f(state.z[layer]))
                state.p.append(state.q[layer])
                state.u.append(torch.zeros_like(state.q[layer]))
        return state

    def epoch(self, state: State) -> State:
        """The state after one pass, accelerated where the variant says so."""
        new = self.one_pass(state)
        return self.accelerated(state, new) if self.variant.memory else new

    def one_pass(self, state: State) -> State:
        """Lines 3 to 9 of Algorithm 1, see ``pdadmm_g.admm.algorithm1``."""
        v, rho, relaxation = State(*map(list, state)), self.variant.rho, self.variant.relaxation
        for layer in range(1, self.depth):
            rW = v.residual(layer) @ v.W[layer]
            g = updates.p_gradient(rW, v.p[layer], v.q[layer - 1], v.u[layer - 1], nu=NU, rho=rho)
            step = updates.p_exact if self.solver == "exact" else updates.p_linearized
            v.p[layer] = step(v.W[layer], g, nu=NU, rho=rho, rows=self.rows).of(v.p[layer])
        for layer in range(self.depth):
            r = v.residual(layer)
            W_step = self.W_step(v, layer, r)
            v.W[layer] = W_step.of(v.W[layer])
            r = r - W_step.length * W_step.product
            decrement = r.mean(-2, keepdim=True)
            v.b[layer] = v.b[layer] - decrement
            v.z[layer] = self.z_step(v, layer, r - decrement + v.z[layer])
        for layer in range(self.depth - 1):
            p = relaxation * v.p[layer + 1] + (1 - relaxation) * v.q[layer]
            v.q[layer] = updates.q_step(p, v.u[layer], f(v.z[layer]), nu=NU, rho=rho)
            v.u[layer] = updates.u_step(v.u[layer], p - v.q[layer], rho=rho)
        return v

    def W_step(self, v: State, layer: int, r: Tensor) -> updates.Step:
        W, W0, p = v.W[layer], self.W0[layer], v.p[layer]
        if self.solver == "exact":
            factor = self.first if layer == 0 else None
            return updates.W_exact(W, W0, p, r, nu=NU, mu=MU, rows=self.rows, factor=factor)
        G = updates.W_gradient(self.rows.product(r, p), W - W0, nu=NU, mu=MU)
        return updates.W_linearized(p, G, nu=NU, mu=MU, rows=self.rows)

    def z_step(self, v: State, layer: int, m: Tensor) -> Tensor:
        """For ReLU the minimiser of (z - m)^2 + (q - f(z))^2 + kappa (z - z_old)^2: the better of two branches."""
        z, kappa = v.z[layer], self.variant.proximal
        if layer == self.depth - 1:
            return R.argmin_z(m.flatten(0, 1), self.y, NU, z.flatten(0, 1)).view_as(z)
        c = m + kappa * z
        right, left = torch.relu((c + v.q[layer]) / (2 + kappa)), (c / (1 + kappa)).clamp(max=0)
        return torch.where((2 + kappa) * right.square() >= (1 + kappa) * left.square(), right, left)

    def lagrangian(self, v: State) -> Tensor:
        """One number a split."""
        z, y = v.z[-1].flatten(0, 1), self.y.t
        value = torch.nn.functional.cross_entropy(z, y, reduction="none").view(len(self.data.X), -1).sum(1)
        for layer, W0 in enumerate(self.W0):
            value = value + NU / 2 * _squares(v.residual(layer)) + MU / 2 * _squares(v.W[layer] - W0)
        for p, q, u, z in zip(v.p[1:], v.q, v.u, v.z, strict=False):
            gap = p - q
            value = value + NU / 2 * _squares(q - f(z)) + (u * gap).sum((1, 2)) + self.variant.rho / 2 * _squares(gap)
        return value

    def accelerated(self, old: State, new: State) -> State:
        r"""Anderson acceleration (type II) of the map T that an epoch is: where :math:`x_k` becomes :math:`T x_k`,

        .. math:: x_{k+1} = T x_k - \Delta G\,\gamma, \qquad \gamma = \arg\min \|(T x_k - x_k) - \Delta F\,\gamma\|

        with the last differences of T x in G and those of T x - x in F. The safeguard, split by split: where all
        variables are combined, T x itself is taken if its Lagrangian is lower. With q and u alone the Lagrangian tells
        nothing; if T x - x is larger after the step than before, the T x of before is gone back to.
        """
        x, Tx = self.vector(old), self.vector(new)
        by_lagrangian = self.variant.combined != "qu"
        if not by_lagrangian and self.plain is not None:
            worse = _squares(Tx - x)[:, None, None] > self.plain[1]
            Tx, self.plain = torch.where(worse, self.plain[0], Tx), None
            if bool(worse.any()):
                self.past = []
                return self.state(Tx, new)
        self.past = [*self.past[-self.variant.memory :], (Tx, Tx - x)]
        if len(self.past) == 1:
            return new
        images, moves = (torch.cat(part, 1).diff(dim=1) for part in zip(*self.past, strict=True))
        matrix = (moves @ moves.mT).double()
        ridge = 1e-8 * matrix.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None] + 1e-30
        right = (moves @ (Tx - x).mT).double()
        gamma = torch.linalg.solve(matrix + ridge * torch.eye(matrix.shape[-1]), right).float()
        combined = Tx - gamma.mT @ images
        if by_lagrangian:
            higher = self.lagrangian(self.state(combined, new)) > self.lagrangian(new)
            combined = torch.where(higher[:, None, None], Tx, combined)
        else:
            self.plain = (Tx, _squares(Tx - x)[:, None, None])
        return self.state(combined, new)

    def vector(self, state: State) -> Tensor:
        """What is combined, (splits, 1, numbers)."""
        parts = [part for name in self.variant.combined for part in getattr(state, name)[name == "p" :]]
        return torch.cat([part.flatten(1) for part in parts], 1)[:, None]

    def state(self, vector: Tensor, like: State) -> State:
        """The state with these numbers, and the rest of another."""
        parts = [part for name in self.variant.combined for part in getattr(like, name)[name == "p" :]]
        numbers = iter(vector.split([part[0].numel() for part in parts], -1))
        new = like._asdict()
        for name in self.variant.combined:
            own = new[name]
            new[name] = own[: name == "p"] + [next(numbers).reshape(part.shape) for part in own[name == "p" :]]
        return State(**new)

    def accuracy(self, state: State) -> float:
        """On the validation nodes, mean of the splits."""
        x = self.data.X_validation
        for layer, (W, b) in enumerate(zip(state.W, state.b, strict=True)):
            x = x @ W.mT + b
            x = f(x) if layer < self.depth - 1 else x
        return float((x.argmax(-1) == self.data.y_validation).double().mean())


def _squares(x: Tensor) -> Tensor:
    return x.square().sum((-2, -1))


def measure(data: Data, depth: int, solver: str, variant: Variant, epochs: int) -> dict[str, Any]:
    """Validation accuracy after every epoch, seconds of an epoch, and how often the Lagrangian rose."""
    algorithm = Algorithm(data, depth, solver, variant)
    state, accuracies, seconds, rises = algorithm.start(), [], 0.0, 0
    last = algorithm.lagrangian(state)
    for _ in range(epochs):
        start = time.process_time()
        state = algorithm.epoch(state)
        seconds += time.process_time() - start
        value = algorithm.lagrangian(state)
        rises += int((value > last * (1 + 1e-5)).sum())
        last = value
        accuracies.append(algorithm.accuracy(state))
    splits = len(data.X)
    return {
        "accuracies": accuracies, "seconds": seconds / epochs / splits, "rises": rises / splits,
        "objective": round(float(last.mean()), 3),
    }  # fmt: skip


def figures(run: dict[str, Any], goal: float) -> dict[str, Any]:
    """Epochs and seconds to the goal (None if it is not reached), and what early stopping keeps of the run."""
    accuracies = run["accuracies"]
    reached = next((epoch for epoch, value in enumerate(accuracies, start=1) if value >= goal), None)
    best = stop = 0
    for epoch, value in enumerate(accuracies):
        if value > accuracies[best]:
            best = epoch
        stop = epoch + 1
        if epoch - best >= PATIENCE:
            break
    return {
        "epochs": reached,
        "seconds": None if reached is None else round(reached * run["seconds"], 4),
        "epochs_with_patience": stop,
        "kept_accuracy": round(accuracies[best], 4),
        "milliseconds_an_epoch": round(1000 * run["seconds"], 3),
        "rises": run["rises"],
        "objective": run["objective"],
    }


def rows(dataset: str, args: argparse.Namespace, known: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One for each depth, solver and variant; those that are known are not measured again."""
    torch.set_num_threads(1)
    data, done = rows_of(dataset, args.data_root, range(args.splits), args.folder), []
    for depth, solver in itertools.product(map(int, args.depths.split(",")), args.solvers.split(",")):
        key, reference = {"dataset": dataset, "layers": depth, "solver": solver}, 0.0
        for name, variant in VARIANTS.items():
            found = [row for row in known if (key | {"variant": name}).items() <= row.items()]
            if not found:
                run = measure(data, depth, solver, variant, args.epochs if reference else args.long)
                reference = reference or run["accuracies"][-1]
                row = {"variant": name, "reference": round(reference, 4), **figures(run, SHARE * reference)}
                found = [key | row]
                print(json.dumps(found[0]), flush=True)
            reference = found[0]["reference"]
            done += found
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", required=True, help="folder of raw benchmark files")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--depths", default="2,4")
    parser.add_argument("--solvers", default="linearized,exact")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--long", type=int, default=300, help="epochs of the run that sets the goal")
    parser.add_argument("--folder", type=Path, help="keeps augmented features from one run to the next")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, help="what is in it already is not measured again")
    args = parser.parse_args()
    known = read(args.out).get("measured", [])
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        work = functools.partial(rows, args=args, known=known)
        parts = pool.map(work, args.datasets.split(","), chunksize=1)
    write(args.out, {"measured": [row for part in parts for row in part]})


if __name__ == "__main__":
    main()
