r"""Can deep networks be trained all at once? Residual connections, soft boundaries and held layers, by validation.

    python benchmarks/residual_depth.py --data-root raw --out results/performance/residual-depth.json

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
looked at.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from epochs_to_accuracy import Data, rows_of
from record import write
from torch import Tensor

from pdadmm_g.admm.activations import ACTIVATIONS
from pdadmm_g.admm.risks import RISKS
from pdadmm_g.admm.targets import Targets

MU, LEARNING_RATE, SCORE_EVERY = 0.3, 0.001, 5
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

    def accuracy(self, data: Data) -> float:
        """On the validation nodes, mean of the splits."""
        logits = _linear(self.activations(data.X_validation)[:, -1:], self.last)[:, 0]
        return float((logits.argmax(-1) == data.y_validation).double().mean())


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


class Admm:
    """pdADMM-G with exact steps."""

    def __init__(self, data: Data, net: Net, nu: float, rho: float, hold: float, warm: float) -> None:
        self.data, self.net, self.y = data, net, Targets(data.y.flatten())
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
        self.z_last = R.argmin_z(m, self.y, nu, self.z_last.flatten(0, 2)).view_as(self.z_last)
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
        W = torch.cholesky_solve(self.nu * p.mT @ target, factor).mT
        W = W if anchor is None else anchor + W
        return W, (z - p @ W.mT).mean(-2, keepdim=True)

    def _factor(self, p: Tensor, mu: float) -> Tensor:
        return torch.linalg.cholesky(self.nu * p.mT @ p + mu * torch.eye(p.shape[-1], device=p.device))


class Adam:
    """Backpropagation through the same network, full batch; the splits do not see each other."""

    def __init__(self, data: Data, net: Net, *_: float) -> None:
        self.data, self.net = data, net
        parameters = [tensor.requires_grad_() for layer in net[:3] for tensor in layer]
        self.optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE)

    def epoch(self) -> None:
        self.optimizer.zero_grad()
        logits = _linear(self.net.activations(self.data.X)[:, -1:], self.net.last).flatten(0, 2)
        loss = torch.nn.functional.cross_entropy(logits, self.data.y.flatten(), reduction="sum")
        (loss / self.data.y.shape[1]).backward()
        self.optimizer.step()


def measure(data: Data, method: str, net: Net, epochs: int, *settings: float) -> dict[str, Any]:
    """The best validation accuracy and when, the last, and the seconds."""
    begin = time.perf_counter()
    trainer = {"pdADMM-G": Admm, "Adam": Adam}[method](data, net, *settings)
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
    known = args.out is not None and args.out.exists()
    rows: list[dict[str, Any]] = json.loads(args.out.read_text())["rows"] if known else []
    for dataset, number in itertools.product(args.datasets.split(","), map(int, args.rows.split(","))):
        *tensors, features = rows_of(dataset, args.data_root, range(args.splits), args.folder, number)
        data = Data(*(tensor.to(args.device) for tensor in tensors), features)
        torch.set_default_device(args.device)
        names = (args.depths, args.methods, args.kinds, args.nus, args.rhos, args.holds, args.warm)
        for depth, method, kind, *given in itertools.product(*(each.split(",") for each in names)):
            settings = [float(word) for word in given]
            key = {"dataset": dataset, "rows": data.y.shape[1], "layers": int(depth), "method": method, "kind": kind}
            if method != "Adam":
                key |= dict(zip(("nu", "rho", "hold", "warm"), settings, strict=True))
            if any(key.items() <= row.items() for row in rows):
                continue  # known from before, or Adam, which has none of the settings
            net = start(data, int(depth), args.hidden, kind == "residual")
            rows.append(key | measure(data, method, net, args.epochs, *settings))
            print(json.dumps(rows[-1]), flush=True)
            write(args.out, {"rows": rows})
        torch.set_default_device("cpu")


if __name__ == "__main__":
    main()
