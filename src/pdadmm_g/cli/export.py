"""The command that hands a model to other programs."""

from __future__ import annotations

from pathlib import Path

import click

from .common import Output, output_options, run_argument

FORMATS = ("safetensors", "torch-export", "onnx")


@click.command(name="export", short_help="Write the model as safetensors, torch.export or ONNX.")
@run_argument
@click.option("--format", "kind", type=click.Choice(FORMATS), default="onnx", show_default=True, help="kind of file")
@click.option(
    "--out", metavar="FILE", help="file to write [default: RUN's name with the format's ending, in this folder]"
)
@click.option("--int8", is_flag=True, help="weights as 8-bit integers, a quarter of the size (onnx only)")
@output_options
def export(run: str, kind: str, out: str | None, int8: bool, output: Output) -> None:
    """Write the model of the run folder RUN to one file for programs that do not have this package.

    torch-export and onnx: a program from rows of propagated features to logits, the normalisation inside, any number
    of rows at a time. safetensors: the weights as arrays. The file is compared with our model before it takes its
    place; docs/guides/export.md says how to use it.

    \b
    pdadmm-g export runs/cora-0 --format onnx                    writes cora-0.onnx (needs onnx, onnxruntime)
    pdadmm-g export runs/cora-0 --format onnx --int8 --out small.onnx
    pdadmm-g export runs/cora-0 --format torch-export            writes cora-0.pt2
    pdadmm-g export runs/cora-0 --format safetensors             writes cora-0.safetensors
    """
    from ..runs.export import FORMATS, export
    from ..runs.folder import RunFolder

    path = Path(out or Path(run).resolve().name + FORMATS[kind])
    difference = export(RunFolder(run).classifier(), path, kind, int8=int8)
    size = path.stat().st_size
    output.say(f"{path}: {size:,} bytes; logits within {difference:.1e} of the largest of ours on random rows")
    output.result({"file": str(path), "format": kind, "int8": int8, "bytes": size, "difference": difference})
