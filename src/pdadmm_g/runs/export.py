r"""A trained model as one file for other programs: safetensors, ``torch.export`` or ONNX.

The two programs contain the normalisation and the network. Their input is what the graph products give, one row per
node (:meth:`~pdadmm_g.data.augmentation.GraphAugment.propagated`), their output the logits in the order of the classes:

.. math:: \mathrm{logits} = \mathrm{GAMLP}(\mathrm{normalize}(\psi(\tilde A) H))

A safetensors file holds the same as arrays. Each file describes itself, see :func:`description`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from .. import __version__
from ..config import GRAPH, settings_where
from ..data.augmentation import GraphAugment
from ..data.propagation import normalized
from ..errors import InputError
from ..estimator import Estimator, load_estimator
from ..model import GAMLP, GCN

#: Formats with the ending of their files.
FORMATS = {"safetensors": ".safetensors", "torch-export": ".pt2", "onnx": ".onnx"}
#: Name of the description in an ONNX file's metadata and of the extra file in a torch.export archive.
DESCRIPTION = "pdadmm_g.json"
#: A file is refused where its logits differ from ours by more than this share of the largest.
TOLERANCE = 1e-4
#: One ONNX file cannot be larger.
ONNX_BYTES = 2**31 - 2**20
#: Operations that every ONNX runtime since 2022 has.
OPSET, IR_VERSION = 17, 8


class Program(nn.Module):
    """Logits from propagated rows: the normalisation that the model was trained with, then the network."""

    def __init__(self, classifier: Estimator, model: GAMLP | None = None) -> None:
        super().__init__()
        self.model = model or classifier.model_
        # A model of a plain matrix takes it as it is.
        fitted = classifier.augmentation_ or GraphAugment("none", row_normalize=False, normalize="none")
        self.normalize, self.blocks = fitted.normalize, fitted.blocks
        self.mean: Tensor | None
        self.scale: Tensor | None
        # Buffers, which move to a GPU with the weights; torch.export of torch 2.6 fails on one that is None.
        for name, value in (("mean", fitted.mean), ("scale", fitted.scale)):
            if value is None:
                setattr(self, name, None)
            else:
                self.register_buffer(name, value)

    def forward(self, rows: Tensor) -> Tensor:
        return self.model(normalized(rows.clone(), self.normalize, self.blocks, self.mean, self.scale))


def description(classifier: Estimator) -> dict[str, Any]:
    """What a user of the file must know: what the outputs stand for, and how a graph becomes the input."""
    config = classifier.config_
    return {
        "pdadmm_g": __version__,
        "target": config.target,
        "classes": classifier.outputs_.tolist(),
        "features": classifier.n_features_in_,
        "graph": classifier.augmentation_ is not None,
        **{name: getattr(config, name) for name in settings_where(config, group=GRAPH)},
    }


def export(classifier: Estimator, path: str | Path, format: str, *, int8: bool = False) -> float:
    """Write the fitted model to ``path`` in one of :data:`FORMATS`.

    The file is written under another name, read back and compared with our model on random rows before it takes its
    place. Returns the largest difference of the logits in that comparison, as a share of the largest logit.

    Args:
        classifier: A fitted estimator.
        path: The file to write.
        format: One of :data:`FORMATS`.
        int8: Store the weights as 8-bit integers with one scale per neuron (ONNX only): a quarter of the size, at the
            cost of rounding. The comparison is then with our model on the rounded weights.
    """
    if format not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}, got {format}")
    if int8 and format != "onnx":
        raise InputError(f"int8 weights are for format onnx, not for {format}")
    if format == "torch-export" and Path(path).suffix != ".pt2":
        raise InputError(f"{path}: torch reads programs from files that end in .pt2 only; name it so")
    check_is_fitted(classifier)
    if isinstance(classifier.model_, GCN):
        raise InputError("a graph convolutional network needs the whole graph for each node, and cannot be exported")
    write, read = {"safetensors": _safetensors, "torch-export": _torch_export, "onnx": _onnx(int8)}[format]
    reference = Program(classifier, _rounded(classifier.model_) if int8 else None).eval()
    with torch.no_grad(), _new_file(Path(path), FORMATS[format]) as file:
        write(classifier, file)
        return _compared(reference, read(file), Path(path))


def _compared(reference: Program, exported: Callable[[Tensor], Tensor], path: Path) -> float:
    width = reference.model.widths[0]
    rows = torch.randn(8, width, generator=torch.Generator().manual_seed(0))
    rows[0] = 0  # a node without features
    pairs = [(reference(part), exported(part)) for part in (rows, rows[1:2])]
    differences = [(ours - theirs).abs().max() / ours.abs().max().clamp(min=1e-30) for ours, theirs in pairs]
    worst = float(torch.stack(differences).max())
    if not worst <= TOLERANCE:  # NaN is no better
        raise InputError(f"{path}: not written: its logits differ from ours by {worst:.1g} of the largest")
    return worst


@contextmanager
def _new_file(path: Path, ending: str) -> Iterator[Path]:
    """A name beside ``path`` whose file takes its place when all went well, and vanishes otherwise.

    It has the ending of the format, by which libraries tell it, whatever the file is called in the end.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        raise InputError(f"{path}: is not a file; name the file to write")
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".pdadmm-g-") as folder:
            temporary = Path(folder) / f"model{ending}"
            yield temporary
            temporary.replace(target)
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror or error}") from None


# ------------------------------------------------------------------------------------------------------- safetensors


def _write_safetensors(classifier: Estimator, file: Path) -> None:
    classifier.save(file)


def _read_safetensors(file: Path) -> Callable[[Tensor], Tensor]:
    return Program(load_estimator(file))


_safetensors = (_write_safetensors, _read_safetensors)


# ------------------------------------------------------------------------------------------------------ torch.export


def _write_torch_export(classifier: Estimator, file: Path) -> None:
    program = Program(classifier).eval()
    example = torch.zeros(3, program.model.widths[0])
    shapes = ({0: torch.export.Dim("nodes")},)
    exported = torch.export.export(program, (example,), dynamic_shapes=shapes, strict=False)
    torch.export.save(exported, file, extra_files={DESCRIPTION: json.dumps(description(classifier))})


def _read_torch_export(file: Path) -> Callable[[Tensor], Tensor]:
    return torch.export.load(file).module()


_torch_export = (_write_torch_export, _read_torch_export)


# -------------------------------------------------------------------------------------------------------------- ONNX


def _onnx(int8: bool) -> tuple[Callable[[Estimator, Path], None], Callable[[Path], Callable[[Tensor], Tensor]]]:
    return lambda classifier, file: _write_onnx(classifier, file, int8), _read_onnx


def _write_onnx(classifier: Estimator, file: Path, int8: bool) -> None:
    onnx = _optional("onnx")
    program = Program(classifier)
    size = sum(parameter.numel() * (1 if int8 else 4) for parameter in program.parameters())
    if size > ONNX_BYTES:
        raise InputError(f"the model is too large for one ONNX file ({size / 2**30:.1f} GiB); use torch-export")
    graph = _OnnxGraph(onnx)
    graph.normalize(program)
    graph.network(program.model, int8)
    model = graph.model(program.model.widths, description(classifier) | {"int8": int8})
    onnx.checker.check_model(model)
    onnx.save_model(model, str(file))


def _read_onnx(file: Path) -> Callable[[Tensor], Tensor]:
    onnxruntime = _optional("onnxruntime")
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return lambda rows: torch.from_numpy(session.run(["logits"], {"rows": rows.numpy()})[0])


def _optional(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(f"format onnx needs the '{name}' package: pip install onnx onnxruntime") from None


_ONNX_ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "leaky-relu": ("LeakyRelu", {"alpha": nn.LeakyReLU().negative_slope}),
    "tanh": ("Tanh", {}),
    "sigmoid": ("Sigmoid", {}),
    "identity": ("Identity", {}),
}


class _OnnxGraph:
    """The program as ONNX operations, one after the other; ``value`` is the name of the last result."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.value = "rows"

    def apply(self, operation: str, *inputs: str, **attributes: Any) -> str:
        """Append an operation; the name of its result, which becomes the value."""
        self.value = f"{operation.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operation, inputs, [self.value], **attributes))
        return self.value

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """Store an array under this name, once."""
        self.constants.setdefault(name, self.onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def normalize(self, program: Program) -> None:
        """:func:`pdadmm_g.data.propagation.normalized`."""
        if program.normalize != "none":
            self._unit_length(program.blocks)
        if program.normalize == "centered":
            assert program.mean is not None
            assert program.scale is not None
            self.apply("Sub", self.value, self.constant("mean", program.mean.numpy()))
            self.apply("Div", self.value, self.constant("scale", program.scale.numpy()))
            self._unit_length(program.blocks)

    def _unit_length(self, blocks: int) -> None:
        # A zero in the shape of a reshape keeps that dimension, -1 takes the rest.
        parts = self.apply("Reshape", self.value, self.constant("by_block", np.array([0, blocks, -1])))
        norm = self.apply("ReduceL2", parts, axes=[2], keepdims=1)
        positive = self.apply("Greater", norm, self.constant("zero", np.zeros(1, np.float32)))
        divisor = self.apply("Where", positive, norm, self.constant("one", np.ones(1, np.float32)))
        self.apply("Div", parts, divisor)
        self.apply("Reshape", self.value, self.constant("by_row", np.array([0, -1])))

    def network(self, model: GAMLP, int8: bool) -> None:
        """The layers, and the activation between them."""
        operation, attributes = _ONNX_ACTIVATIONS[model.activation]
        for index, (W, b) in enumerate(_parameters(model)):
            if index:
                self.apply(operation, self.value, **attributes)
            p = self.value
            weight = self._weight(f"linears.{index}.weight", W, int8)
            self.apply("Gemm", p, weight, self.constant(f"linears.{index}.bias", b.numpy()), transB=1)

    def _weight(self, name: str, W: Tensor, int8: bool) -> str:
        if not int8:
            return self.constant(name, W.numpy())
        integers, scale = _to_int8(W)
        zeros = np.zeros(len(W), np.int8)
        arrays = (self.constant(name, integers.numpy()), self.constant(f"{name}_scale", scale.numpy()))
        return self.apply("DequantizeLinear", *arrays, self.constant(f"{name}_zero", zeros), axis=0)

    def model(self, widths: tuple[int, ...], described: dict[str, Any]) -> Any:
        """The finished ONNX model, with rows of any number."""
        helper, kind = self.onnx.helper, self.onnx.TensorProto.FLOAT
        self.nodes[-1].output[0] = "logits"
        graph = helper.make_graph(
            self.nodes,
            "pdadmm_g",
            [helper.make_tensor_value_info("rows", kind, ["nodes", widths[0]])],
            [helper.make_tensor_value_info("logits", kind, ["nodes", widths[-1]])],
            list(self.constants.values()),
        )
        opset = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=IR_VERSION, producer_name="pdadmm-g")
        helper.set_model_props(model, {DESCRIPTION: json.dumps(described)})
        return model


def _to_int8(W: Tensor) -> tuple[Tensor, Tensor]:
    """Integers and one scale per row: W ~ scale * integers, each row's largest entry at 127."""
    largest = W.abs().amax(1)
    scale = largest.where(largest > 0, 127.0) / 127
    return (W / scale[:, None]).round().to(torch.int8), scale


def _rounded(model: GAMLP) -> GAMLP:
    """The model with the weights that the 8-bit integers stand for."""
    rounded = [(_to_int8(W), b) for W, b in _parameters(model)]
    parameters = [(integers * scale[:, None], b) for (integers, scale), b in rounded]
    return GAMLP.from_parameters(parameters, model.activation)


def _parameters(model: GAMLP) -> list[tuple[Tensor, Tensor]]:
    """(W, b) of each layer."""
    return [
        (linear.get_parameter("weight").detach(), linear.get_parameter("bias").detach()) for linear in model.linears
    ]
