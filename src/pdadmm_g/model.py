"""The trained network: an ordinary ``torch.nn.Module`` that needs nothing of the trainer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import torch
from torch import Tensor, nn

from .errors import InputError, NotFiniteError
from .utils import Count, decoded, write_atomically

_MODULES: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "leaky-relu": nn.LeakyReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "identity": nn.Identity,
}


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a model file says of itself."""

    network: Literal["gamlp"] = "gamlp"
    widths: Annotated[list[Count], msgspec.Meta(min_length=2)]
    activation: str
    #: What whoever wrote the file adds to it.
    extra: dict[str, Any]


class GAMLP(nn.Module):
    r"""Graph-augmented multi-layer perceptron: logits from augmented node features.

    .. math:: p_1 = X, \quad p_{l+1} = f(p_l W_l^T + b_l), \quad \mathrm{logits} = p_L W_L^T + b_L

    Args:
        widths: Input features, hidden widths, classes.
        activation: Name of f.
    """

    def __init__(self, widths: Sequence[int], activation: str = "relu") -> None:
        super().__init__()
        self.widths = tuple(widths)
        self.activation = activation
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.f = _MODULES[activation]()

    @classmethod
    def from_parameters(cls, parameters: Sequence[tuple[Tensor, Tensor]], activation: str) -> GAMLP:
        """The network with these (W, b), one pair per layer."""
        first = parameters[0][0]
        with torch.device("meta"):
            model = cls([first.shape[1], *(W.shape[0] for W, _ in parameters)], activation)
        for linear, (W, b) in zip(model.linears, parameters, strict=True):
            linear.weight, linear.bias = nn.Parameter(W), nn.Parameter(b)
        return model

    @classmethod
    def mean(cls, models: Sequence[GAMLP]) -> GAMLP:
        """The network whose logits are the mean of those of several, given their inputs side by side.

        Networks are equally deep, with f = relu, or linear: a linear one goes through hidden layers as its positive and
        its negative part.
        """
        depth = max(len(model.linears) for model in models)
        *hidden, last = zip(*(model._deepened(depth) for model in models), strict=True)
        parameters = [(torch.block_diag(*(W for W, _ in own)), torch.cat([b for _, b in own])) for own in hidden]
        W, b = torch.cat([W for W, _ in last], dim=1), torch.stack([b for _, b in last]).sum(0)
        return cls.from_parameters([*parameters, (W / len(models), b / len(models))], models[0].activation)

    def _deepened(self, depth: int) -> list[tuple[Tensor, Tensor]]:
        """Its (W, b), those of a linear model as of a network of that depth."""
        values = [parameter.data for parameter in self.parameters()]
        parameters = list(zip(values[::2], values[1::2], strict=True))
        if len(parameters) == depth:
            return parameters
        ((W, b),) = parameters
        assert self.activation == "relu"
        one, zero = torch.eye(2 * len(b)).to(W), b.new_zeros(2 * len(b))
        through = [(one, zero)] * (depth - 2)
        return [(torch.cat([W, -W]), torch.cat([b, -b])), *through, (one[: len(b)] - one[len(b) :], zero[: len(b)])]

    def forward(self, x: Tensor) -> Tensor:
        """The logits of rows."""
        *hidden, last = self.linears
        for linear in hidden:
            x = self.f(linear(x))
        return last(x)

    def save(
        self, path: str | Path, extra: dict[str, Any] | None = None, tensors: dict[str, Tensor] | None = None
    ) -> None:
        """Write a safetensors file; ``extra`` is JSON-able and travels in its header, beside further ``tensors``."""
        from safetensors.torch import save

        header = Header(widths=list(self.widths), activation=self.activation, extra=extra or {})
        everything = self.state_dict() | {f"extra.{name}": tensor for name, tensor in (tensors or {}).items()}
        everything = {name: tensor.contiguous() for name, tensor in everything.items()}
        content = save(everything, metadata={"pdadmm_g": json.dumps(msgspec.structs.asdict(header))})
        # Readable by whom the user's umask says; safetensors' own file is its owner's alone.
        write_atomically(Path(path), content)

    @classmethod
    def load(cls, path: str | Path) -> tuple[GAMLP, dict[str, Any], dict[str, Tensor]]:
        """The network of a file written by :meth:`save`, its ``extra`` and its further tensors."""
        from safetensors import SafetensorError, safe_open

        path = Path(path)
        if not path.is_file():
            raise InputError(f"{path}: no such model file")
        try:
            with safe_open(str(path), framework="pt") as file:
                header = decoded(Header, (file.metadata() or {})["pdadmm_g"])
                # Copies: what the file gives is a window on it, which ends the process if the file gets shorter.
                tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
            for name, tensor in tensors.items():
                whole = tensor.dtype == torch.int64 and name.startswith("extra.")
                if not (tensor.is_floating_point() or whole) or not bool(tensor.isfinite().all()):
                    raise ValueError(f"{name} holds something else than finite numbers")
            further = {
                name.removeprefix("extra."): tensors.pop(name) for name in [*tensors] if name.startswith("extra.")
            }
            with torch.device("meta"):
                model = cls(header.widths, header.activation)
            if {name: own.shape for name, own in model.state_dict().items()} != {
                k: v.shape for k, v in tensors.items()
            }:
                raise ValueError("its weights do not fit its description")
            model.load_state_dict(tensors, assign=True)
            return model, header.extra, further
        except KeyError as error:
            raise InputError(f"{path}: not a pdadmm-g model file: {error} is missing or unknown") from None
        except (SafetensorError, TypeError, ValueError, RuntimeError, OSError, IndexError, AttributeError) as error:
            raise InputError(f"{path}: not a pdadmm-g model file: {error or type(error).__name__}") from None


def outputs(logits: Tensor, target: str) -> Tensor:
    """What logits say of targets of a kind: probabilities of classes, of labels each by itself, or the numbers."""
    if target == "regression":
        return logits
    return torch.sigmoid(logits) if target == "multilabel" else torch.softmax(logits, dim=1)


def decisions(logits: Tensor, target: str) -> Tensor:
    """The place of the most probable class of each row, or 1 for each label that is more probable than not, else 0.

    By the logits: probabilities of which one is larger may be rounded to the same number.
    """
    return (logits > 0).long() if target == "multilabel" else logits.argmax(1)


def finite(logits: Tensor, numbers: Sequence[int] | Tensor | None = None) -> Tensor:
    """The logits, or an error that names the first row that is not finite: all predictions pass here."""
    bad = (~logits.isfinite().all(1)).nonzero()
    if len(bad):
        row = int(bad[0]) if numbers is None else int(numbers[int(bad[0])])
        remedy = "its features, or those near it in the graph, are too large for this model: rescale them"
        raise NotFiniteError(f"the prediction for row {row} of the features is NaN or infinite: {remedy}")
    return logits
