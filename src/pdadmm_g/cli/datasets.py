"""The data sets known by name."""

from __future__ import annotations

import click

from .common import Output, data_root_option, output_options


@click.command(short_help="List the data sets known by name.")
@data_root_option
@output_options
def datasets(data_root: str | None, output: Output) -> None:
    """List the data sets known by name, and whether their raw files are under the data root."""
    from ..graph.datasets import BENCHMARKS, missing_raw_files

    rows = [{"name": "digits", "nodes": 1797, "features": 64, "classes": 10, "files": "embedded"}]
    for name, benchmark in BENCHMARKS.items():
        missing = missing_raw_files(benchmark, data_root)
        files = "found" if not missing else f"not found: {benchmark.folder}/"
        if 0 < len(missing) < len(benchmark.raw_files):
            files = f"missing: {', '.join(missing)}"
        sizes = {key: getattr(benchmark, key) for key in ("nodes", "features", "classes")}
        rows.append({"name": name, **sizes, "files": files})
    output.say(f"{'name':<18}{'nodes':>8}{'features':>10}{'classes':>9}  raw files")
    for row in rows:
        output.say("{name:<18}{nodes:>8}{features:>10}{classes:>9}  {files}".format(**row))
    output.result({"datasets": rows})
