"""Data sets: those known by name, and graphs as folders of shards."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

import click

from ..config import KINDS, RunConfig
from .common import DATASETS, Output, data_root_option, output_options, settings_options, words


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


#: The settings of a run that say how its data set is read.
READING = {
    "data_root", "edges", "target", "labels", "columns", "id_column", "source_column", "target_column", "skip_unknown",
}  # fmt: skip


@click.command(short_help="Write a graph as a folder of shards.")
@click.argument("graph", metavar="INPUT", shell_complete=words(DATASETS))
@click.option("--shards", type=click.IntRange(1, 10_000), required=True, metavar="N", help="number of shards")
@click.option("--out", required=True, metavar="FOLDER", help="folder to write", shell_complete=words())
@functools.partial(settings_options, without=KINDS.keys() - READING)
@click.option("--overwrite", is_flag=True, help="replace other shards in the folder")
@output_options
def shard(graph: str, shards: int, out: str, overwrite: bool, output: Output, **options: Any) -> None:
    """Write the graph INPUT as a folder of shards, of which each process of a training run reads only its own.

    INPUT is a data set, a file or a table of nodes as for 'pdadmm-g train', a folder of arrays (x.npy, edge_index.npy,
    y.npy, train_mask.npy, ...), or a folder of Parquet tables (nodes*.parquet, edges*.parquet). Folders are read in
    blocks: they may be larger than memory. Interrupted work goes on when the same command is given again
    (docs/guides/sharded.md).

    \b
    pdadmm-g shard graph/ --shards 8 --out graph-8
    pdadmm-g shard nodes.csv --edges edges.csv --labels price --target regression --shards 2 --out graph-2
    pdadmm-g train --dataset graph-8 --shards 8
    pdadmm-g predict runs/graph-8-0 --shards 8 --out predictions
    """
    folder = Path(graph)
    table = "x.npy" if (folder / "x.npy").exists() else "nodes.parquet"  # in a folder: one is as good as all
    given = {name: value for name, value in options.items() if value is not None}
    config = RunConfig(**given, dataset=str(folder / table) if folder.is_dir() else graph)

    from ..graph.shards import open_source, shard_graph

    shown = {"": 0.0}

    def show(what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done == total or now - shown.get(what, 0.0) >= 5.0:
            shown[what] = now
            output.progress(f"{what}: {done:,} of {total:,}")

    source = open_source(
        graph, config.data_root, edges=config.edges, target=config.target, columns=config.columns, **config.naming()
    )
    for note in source.data.get("notes", ()):
        output.progress(note)
    whole = shard_graph(source, shards, Path(out), overwrite=overwrite, on_progress=show)
    output.say(
        f"{whole.nodes:,} nodes with {whole.features} features and {whole.edges:,} edges in {whole.shards} shards, "
        f"written to {out}"
    )
    output.result(
        {name: getattr(whole, name) for name in ("nodes", "features", "edges", "shards", "classes")} | {"out": out}
    )
