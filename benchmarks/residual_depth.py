r"""Can deep networks be trained all at once? Residual connections, soft boundaries and held layers, by validation.

    python -m benchmarks.residual_depth --data-root raw --out results/performance/residual-depth

Plain networks have layers :math:`a_l = f(a_{l-1} W_l^T + b_l)`, residual ones :math:`a_l = f(a_{l-1} W_l^T + b_l) +
a_{l-1}` between the first and the last. With :math:`s = 1` for these and 0 otherwise, the boundary term of the
Lagrangian becomes :math:`\tfrac{\nu}{2} \|q_l - f(z_l) - s\, p_l\|^2`, and every step stays in closed form:

.. math::
   p_l\, (\nu W_l^T W_l + (\rho + s \nu) I) &= \nu (z_l - b_l) W_l + \rho\, q_{l-1} - u_{l-1} + s \nu (q_l - f(z_l)) \\
   z_l &= \arg\min_z (z - m_l)^2 + (q_l - s\, p_l - f(z))^2 + (z - z_{old})^2 \\
   q_l &= (\rho\, p_{l+1} + u_l + \nu (f(z_l) + s\, p_l)) / (\rho + \nu)

W, b, :math:`z_L` and u as ever. Whoever has layer l has all of this: nothing more travels. Exact steps, float32, rows
as in ``epochs_to_accuracy.py``; the splits train side by side, and so do the hidden layers. Weight decay is 0.3, toward
the identity in plain hidden layers and toward zero in residual ones; ``hold`` multiplies it there. Adam trains the same
networks from the same start. A figure is the best validation accuracy of a run, mean of the splits; no test node is
scored.

With ``--unlabelled U``, so many random nodes that neither train nor validate have rows too. Their labels are not looked
at: what such a row should become is what two layers say that pdADMM-G with :math:`\nu = 1` trained on the labelled rows
(the weights of their best epoch), sharpened: :math:`t \propto p^{1 / 0.3}`. Together they weigh ``trust`` times what
the labelled rows do. The weights of rows enter the W-step's products, the b-step's mean and Adam's loss, nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from experiments.results import read, write
from pdadmm_g.admm.activations import ACTIVATIONS
from pdadmm_g.admm.risks import RISKS, Targets

from .epochs_to_accuracy import Data, rows_of

MU, LEARNING_RATE, SCORE_EVERY, TEMPERATURE = 0.3, 0.001, 5, 0.3
f, R = ACTIVATIONS["relu"], RISKS["cross-entropy"]


class Net(NamedTuple):
    """Weights as (splits, layers, out, in) and biases as (splits, layers, 1, out): first, hidden and last layers."""

    first: tuple[Tensor, Tensor]
    hidden: tuple[Tensor, Tensor]
    last: tuple[Tensor, Tensor]
    residual: bool

    def activations(self, X: Tensor) -> Tensor:
        """What the first and the hidden layers say, (splits, layers, rows, neurons)."""
        x = f(_linear(X[:, None], self.first))
        outputs = [x]
        for W, b in zip(*(part.split(1, 1) for part in self.hidden), strict=True):
            x = f(_linear(x, (W, b))) + (x if self.residual else 0)
            outputs.append(x)
        return torch.cat(outputs, 1)

    def logits(self, X: Tensor) -> Tensor:
        """(splits, rows, classes)."""
        return _linear(self.activations(X)[:, -1:], self.last)[:, 0]

    def accuracy(self, data: Data) -> float:
        """On the validation nodes, mean of the splits."""
        return float((self.logits(data.X_validation).argmax(-1) == data.y_validation).double().mean())


def _linear(p: Tensor, layer: tuple[Tensor, Tensor]) -> Tensor:
    return p @ layer[0].mT + layer[1]


def start(data: Data, depth: int, hidden: int, residual: bool) -> Net:
    """First and last layers at random; between, the identity, or where its input is added weights near zero."""
    splits, _, width = data.X.shape
    draw = torch.Generator("cpu").manual_seed(0)

    def random(layers: int, out: int, into: int, scale: float) -> tuple[Tensor, Tensor]:
        W = (torch.randn(splits, layers, out, into, generator=draw, device="cpu") * scale).to(data.X)
        return W, W.new_zeros(splits, layers, 1, out)

    first = random(1, hidden, width, (2 / data.features) ** 0.5)
    last = random(1, int(data.y.max()) + 1, hidden, (2 / hidden) ** 0.5)
    between = random(depth - 2, hidden, hidden, (2 / hidden) ** 0.5 / depth if residual else 0.0)
    if not residual:
        between[0].add_(torch.eye(hidden))
    return Net(first, between, last, residual)


class Lesson(NamedTuple):
    """The rows that train, (splits, rows, features), and what they should become, those of all splits in one line."""

    X: Tensor
    targets: Targets

    def by_split(self) -> Tensor | None:
        """The weights of the rows beside tensors of (splits, layers, rows, neurons)."""
        weights = self.targets.weights
        return None if weights is None else weights.view(len(self.X), 1, -1, 1)


def lesson(data: Data, teacher: Net | None = None, trust: float = 0.0) -> Lesson:
    """The labelled rows, and with a teacher the others too: its sharpened predictions, ``trust`` times the weight."""
    if teacher is None:
        return Lesson(data.X, Targets(data.y.flatten()))
    soft = torch.softmax(teacher.logits(data.X_unlabelled) / TEMPERATURE, -1)
    hard = torch.nn.functional.one_hot(data.y, soft.shape[-1]).to(soft)
    own = torch.ones_like(hard[..., 0])
    others = torch.full_like(soft[..., 0], trust * hard.shape[1] / soft.shape[1])
    targets = Targets(torch.cat([hard, soft], 1).flatten(0, 1), torch.cat([own, others], 1).flatten())
    return Lesson(torch.cat([data.X, data.X_unlabelled], 1), targets)


class Admm:
    """pdADMM-G with exact steps."""

    def __init__(self, data: Lesson, net: Net, nu: float, rho: float, hold: float, warm: float) -> None:
        self.data, self.net, self.weights = data, net, data.by_split()
        self.nu, self.rho, self.mu, self.warm = nu, rho * nu, MU * hold, warm
        self.factor = self._factor(data.X[:, None], MU)
        W = net.hidden[0]
        self.anchor = torch.zeros_like(W) if net.residual else torch.eye(W.shape[-1]).expand_as(W)
        self.q = net.activations(data.X)
        self.p, self.u = self.q.clone(), torch.zeros_like(self.q)
        self.z = torch.cat([_linear(data.X[:, None], net.first), _linear(self.q[:, :-1], net.hidden)], 1)
        self.z_last = _linear(self.q[:, -1:], net.last)

    def epoch(self) -> None:
        """p, W and b, z, q and u of all layers."""
        net, nu, rho, skip = self.net, self.nu, self.rho, float(self.net.residual)
        pulled = rho * self.q - self.u
        inner = pulled[:, :-1] + skip * nu * (self.q - f(self.z))[:, 1:]
        hidden_p = self._p(self.z[:, 1:], net.hidden, inner, rho + skip * nu)
        last_p = self._p(self.z_last, net.last, pulled[:, -1:], rho)
        self.p = torch.cat([hidden_p, last_p], 1)
        X = self.data.X[:, None]
        first = self._weights(X, self.z[:, :1], net.first, None, self.factor)
        last = self._weights(last_p, self.z_last, net.last, None, self._factor(last_p, MU))
        self.warm -= 1
        hidden = net.hidden
        if self.warm < 0:
            hidden = self._weights(hidden_p, self.z[:, 1:], hidden, self.anchor, self._factor(hidden_p, self.mu))
        self.net = Net(first, hidden, last, net.residual)
        m = torch.cat([_linear(X, first), _linear(hidden_p, hidden)], 1)
        added = skip * torch.cat([torch.zeros_like(last_p), hidden_p], 1)
        self.z = f.argmin_z(m, self.q - added, self.z)
        m = _linear(last_p, last).flatten(0, 2)
        self.z_last = R.argmin_z(m, self.data.targets, nu, self.z_last.flatten(0, 2)).view_as(self.z_last)
        self.q = (rho * self.p + self.u + nu * (f(self.z) + added)) / (rho + nu)
        self.u = self.u + rho * (self.p - self.q)

    def _p(self, z: Tensor, layer: tuple[Tensor, Tensor], pulled: Tensor, weight: float) -> Tensor:
        W, b = layer
        matrix = self.nu * W.mT @ W + weight * torch.eye(W.shape[-1])
        return torch.linalg.solve(matrix, self.nu * (z - b) @ W + pulled, left=False)

    def _weights(
        self, p: Tensor, z: Tensor, layer: tuple[Tensor, Tensor], anchor: Tensor | None, factor: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Ridge regression of z - b on p toward the anchor, then b."""
        target = z - layer[1] if anchor is None else z - layer[1] - p @ anchor.mT
        W = torch.cholesky_solve(self.nu * p.mT @ self._weighted(target), factor).mT
        W = W if anchor is None else anchor + W
        r = z - p @ W.mT
        if self.weights is None:
            return W, r.mean(-2, keepdim=True)
        return W, self._weighted(r).sum(-2, keepdim=True) / self.weights.sum(-2, keepdim=True)

    def _factor(self, p: Tensor, mu: float) -> Tensor:
        matrix = self.nu * p.mT @ self._weighted(p)
        return torch.linalg.cholesky(matrix + mu * torch.eye(p.shape[-1], device=p.device))

    def _weighted(self, x: Tensor) -> Tensor:
        return x if self.weights is None else x * self.weights


class Adam:
    """Backpropagation through the same network, full batch; the splits do not see each other."""

    def __init__(self, data: Lesson, net: Net, *_: float) -> None:
        self.data, self.net = data, net
        parameters = [tensor.requires_grad_() for layer in net[:3] for tensor in layer]
        self.optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE)

    def epoch(self) -> None:
        self.optimizer.zero_grad()
        X, targets = self.data
        loss = R(self.net.logits(X).flatten(0, 1), targets)
        (loss * len(X) / targets.rows().number).backward()
        self.optimizer.step()


def taught(data: Data, hidden: int, epochs: int) -> Net:
    """Two layers trained on the labelled rows, with the weights that are best on validation."""
    trainer = Admm(lesson(data), start(data, 2, hidden, residual=False), 1.0, 1.0, 1.0, 0.0)
    nets = []
    for epoch in range(epochs):
        trainer.epoch()
        if (epoch + 1) % SCORE_EVERY == 0:
            nets.append(trainer.net)
    return max(nets, key=lambda net: net.accuracy(data))


def measure(data: Data, rows: Lesson, method: str, net: Net, epochs: int, *settings: float) -> dict[str, Any]:
    """The best validation accuracy and when, the last, and the seconds."""
    begin = time.perf_counter()
    trainer = {"pdADMM-G": Admm, "Adam": Adam}[method](rows, net, *settings)
    accuracies = []
    for epoch in range(epochs):
        with torch.set_grad_enabled(method == "Adam"):
            trainer.epoch()
        if (epoch + 1) % SCORE_EVERY == 0:
            with torch.no_grad():
                accuracies.append(trainer.net.accuracy(data))
    best = max(accuracies)
    return {
        "best": round(best, 4), "at": SCORE_EVERY * (accuracies.index(best) + 1), "last": round(accuracies[-1], 4),
        "seconds": round(time.perf_counter() - begin, 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", required=True, help="folder of raw benchmark files")
    parser.add_argument("--datasets", default="cora,pubmed,amazon-photo")
    parser.add_argument("--rows", default="0", help="training rows; 0 for 20 a class")
    parser.add_argument("--unlabelled", type=int, default=0, help="rows without labels, which two layers teach")
    parser.add_argument("--trust", type=float, default=3, help="what these weigh together, the labelled ones being one")
    parser.add_argument("--depths", default="2,10,50,100")
    parser.add_argument("--methods", default="pdADMM-G,Adam")
    parser.add_argument("--kinds", default="plain,residual")
    parser.add_argument("--nus", default="1,10")
    parser.add_argument("--rhos", default="1", help="rho, as multiples of nu")
    parser.add_argument("--holds", default="1,30", help="times the weight decay of hidden layers")
    parser.add_argument("--warm", default="0", help="epochs before hidden layers learn")
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", type=Path, help="keeps augmented features from one run to the next")
    parser.add_argument("--out", type=Path, help="what is in it already is not measured again")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = read(args.out).get("measured", [])
    for dataset, number in itertools.product(args.datasets.split(","), map(int, args.rows.split(","))):
        *tensors, features = rows_of(dataset, args.data_root, range(args.splits), args.folder, number, args.unlabelled)
        data = Data(*(tensor.to(args.device) for tensor in tensors), features)
        torch.set_default_device(args.device)
        teacher = taught(data, args.hidden, args.epochs) if args.unlabelled else None
        training = lesson(data, teacher, args.trust)
        names = (args.depths, args.methods, args.kinds, args.nus, args.rhos, args.holds, args.warm)
        for depth, method, kind, *given in itertools.product(*(each.split(",") for each in names)):
            settings = [float(word) for word in given]
            key = {"dataset": dataset, "rows": data.y.shape[1], "layers": int(depth), "method": method, "kind": kind}
            if args.unlabelled:
                key |= {"unlabelled": args.unlabelled, "trust": args.trust}
            if method != "Adam":
                key |= dict(zip(("nu", "rho", "hold", "warm"), settings, strict=True))
            if any(key.items() <= row.items() and ("unlabelled" in key) == ("unlabelled" in row) for row in rows):
                continue  # known from before, or Adam, which has none of the settings
            net = start(data, int(depth), args.hidden, kind == "residual")
            rows.append(key | measure(data, training, method, net, args.epochs, *settings))
            print(json.dumps(rows[-1]), flush=True)
            write(args.out, {"measured": rows})
        torch.set_default_device("cpu")


if __name__ == "__main__":
    main()
