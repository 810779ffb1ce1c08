r"""A trained model as one file for other programs: safetensors, ``torch.export`` or ONNX.

The two programs contain the normalisation and the network. Their input is what the graph products give, one row per
node (:meth:`~pdadmm_g.graph.augmentation.GraphAugment.propagated`), their output the logits in the order of
the classes:

.. math:: \mathrm{logits} = \mathrm{GAMLP}(\mathrm{normalize}(\psi(\tilde A) H))

A safetensors file holds the same as arrays. Each file describes itself, see :func:`description`.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from .. import __version__
from ..config import GRAPH, settings_where
from ..errors import InputError
from ..estimator import Estimator, load_estimator
from ..graph.augmentation import GraphAugment
from ..training.finish import Features
from ..utils import check_folder, temporary_folder, write_atomically

#: Formats with the ending of their files.
FORMATS = {"safetensors": ".safetensors", "torch-export": ".pt2", "onnx": ".onnx"}
#: Name of the description in an ONNX file's metadata and of the extra file in a torch.export archive.
DESCRIPTION = "pdadmm_g.json"
#: A file is refused where its logits differ from ours by more than this share of the largest.
TOLERANCE = 1e-4
#: One ONNX file cannot be larger.
ONNX_BYTES = 2**31 - 2**20
#: The oldest version of the operations that torch.onnx writes; every ONNX runtime since 2023 has it.
OPSET = 18


class Program(nn.Module):
    """Logits from propagated rows: the normalisation that the model was trained with, then the network.

    With ``int8`` the weights are 8-bit integers with one scale per neuron.
    """

    def __init__(self, estimator: Estimator, *, int8: bool = False) -> None:
        super().__init__()
        self.model = estimator.model_
        if int8:
            self.model = copy.deepcopy(self.model)
            self.model.linears = nn.ModuleList(map(Rounded, self.model.linears))
        # A model of a plain matrix takes it as it is.
        fitted = estimator.augmentation_ or GraphAugment("none", row_normalize=False, normalize="none")
        self.widths = [self.model.widths[0]]
        if fitted.others:
            self.widths = [part.own_width(estimator.n_features_in_) for part in fitted.parts]
        pairs = zip(fitted.parts, self.widths, strict=True)
        self.normalized = nn.ModuleList(Normalized(part, width) for part, width in pairs)

    def forward(self, rows: Tensor) -> Tensor:
        pairs = zip(self.normalized, rows.split(self.widths, dim=1), strict=True)
        return self.model(torch.cat([part(own) for part, own in pairs], dim=1))


class Normalized(nn.Module):
    """The normalisation of the propagated rows of one augmentation."""

    mean: Tensor
    scale: Tensor

    def __init__(self, fitted: GraphAugment, width: int) -> None:
        super().__init__()
        self.normalize, self.blocks = fitted.normalize, fitted.sizes(width)
        # Buffers, which move to a GPU with the weights.
        self.register_buffer("mean", torch.zeros(1) if fitted.mean is None else fitted.mean)
        self.register_buffer("scale", torch.ones(1) if fitted.scale is None else fitted.scale)

    def forward(self, rows: Tensor) -> Tensor:
        if self.normalize in ("unit", "centered"):
            rows = self._unit_length(rows)
        rows = (rows - self.mean) / self.scale
        return self._unit_length(rows) if self.normalize == "centered" else rows

    def _unit_length(self, rows: Tensor) -> Tensor:
        """As :func:`~pdadmm_g.graph.propagation.to_unit_length`, which overwrites what it is given."""
        blocks = rows.split(self.blocks, dim=1)
        norms = [torch.linalg.vector_norm(block, dim=1, keepdim=True) for block in blocks]
        return torch.cat([block / norm.where(norm > 0, 1.0) for block, norm in zip(blocks, norms, strict=True)], dim=1)


class Rounded(nn.Module):
    """A linear layer whose weights are integers times one scale per row: each row's largest entry is at 127."""

    integers: Tensor
    scale: Tensor
    bias: Tensor

    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        W = linear.get_parameter("weight").detach()
        largest = W.abs().amax(1, keepdim=True)
        scale = largest.where(largest > 0, 127.0) / 127
        self.register_buffer("integers", (W / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", linear.get_parameter("bias").detach())

    def forward(self, p: Tensor) -> Tensor:
        return nn.functional.linear(p, self.integers * self.scale, self.bias)


def description(estimator: Estimator) -> dict[str, Any]:
    """What a user of the file must know: what the outputs stand for, and how a graph becomes the input."""
    config, augment = estimator.config_, estimator.augmentation_
    return {
        "pdadmm_g": __version__,
        "target": config.target,
        "classes": estimator.outputs_.tolist(),
        "features": estimator.n_features_in_,
        "graph": estimator.augmentation_ is not None,
        **{name: getattr(config, name) for name in settings_where(config, group=GRAPH)},
        "others": [msgspec.to_builtins(Features.of(other)) for other in augment.others] if augment else [],
    }


def export(estimator: Estimator, path: str | Path, format: str, *, int8: bool = False) -> float:
    """Write the fitted model to ``path`` in one of :data:`FORMATS`.

    The file is written elsewhere, read back and compared with our model on random rows before it takes
    its place. Returns the largest difference of the logits in that comparison, as a share of the largest logit.

    Args:
        estimator: A fitted estimator.
        path: The file to write.
        format: One of :data:`FORMATS`.
        int8: Store the weights as 8-bit integers with one scale per neuron (ONNX only): a quarter of the size, at the
            cost of rounding. The comparison is then with our model on the rounded weights.
    """
    path = Path(path)
    if format not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}, got {format}")
    if int8 and format != "onnx":
        raise InputError(f"int8 weights are for format onnx, not for {format}")
    if format == "torch-export" and path.suffix != ".pt2":
        raise InputError(f"{path}: torch reads programs from files that end in .pt2 only; name it so")
    check_is_fitted(estimator)
    program, about = Program(estimator, int8=int8).eval(), description(estimator)
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is not a file; name the file to write")
    check_folder(path)
    # Elsewhere, so that nothing is left beside the file if this process is killed; libraries go by the ending.
    with torch.no_grad(), temporary_folder() as folder:
        file = folder / f"model{FORMATS[format]}"
        if format == "safetensors":
            estimator.save(file)
            exported: Callable[[Tensor], Tensor] = Program(load_estimator(file)).eval()
        elif format == "torch-export":
            archive = torch.export.export(program, **_input(program), strict=False)
            torch.export.save(archive, file, extra_files={DESCRIPTION: json.dumps(about)})
            exported = torch.export.load(file).module()
        else:
            _write_onnx(program, about | {"int8": int8}, file)
            exported = _read_onnx(file)
        difference = _compared(program, exported, path)
        write_atomically(path, file.read_bytes())
        return difference


def _compared(ours: Program, exported: Callable[[Tensor], Tensor], path: Path) -> float:
    rows = torch.randn(8, ours.model.widths[0], generator=torch.Generator().manual_seed(0))
    rows[0] = 0  # a node without features
    pairs = [(ours(part), exported(part)) for part in (rows, rows[1:2])]
    differences = [(own - theirs).abs().max() / own.abs().max().clamp(min=1e-30) for own, theirs in pairs]
    worst = float(torch.stack(differences).max())
    if not worst <= TOLERANCE:  # NaN is no better
        raise InputError(f"{path}: not written: its logits differ from ours by {worst:.1g} of the largest")
    return worst


def _input(program: Program) -> dict[str, Any]:
    """What a program is traced with: any number of rows."""
    rows = torch.zeros(3, program.model.widths[0])
    return {"args": (rows,), "dynamic_shapes": ({0: torch.export.Dim("nodes")},)}


def _write_onnx(program: Program, about: dict[str, Any], file: Path) -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        if importlib.util.find_spec(name) is None:
            raise InputError(f"format onnx needs the '{name}' package: pip install onnx onnxscript onnxruntime")
    size = sum(tensor.nbytes for tensor in program.state_dict().values())
    if size > ONNX_BYTES:
        raise InputError(f"the model is too large for one ONNX file ({size / 2**30:.1f} GiB); use torch-export")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # which misses torchvision
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch about itself
        exported = torch.onnx.export(
            program, **_input(program), dynamo=True, input_names=["rows"], output_names=["logits"],
            opset_version=OPSET, verbose=False,
            optimize=not about["int8"],  # which would make floats of small integer matrices
        )  # fmt: skip
    assert exported is not None
    model = exported.model
    model.producer_name = "pdadmm-g"
    model.metadata_props[DESCRIPTION] = json.dumps(about)
    for node in model.graph:  # without where in the source, on this machine, each comes from
        for each in (node, *node.inputs, *node.outputs):
            if each is not None:
                each.metadata_props.clear()
    exported.save(file, external_data=False)


def _read_onnx(file: Path) -> Callable[[Tensor], Tensor]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return lambda rows: torch.from_numpy(session.run(["logits"], {"rows": rows.numpy()})[0])
