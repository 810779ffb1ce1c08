"""A folder of shards that is not a whole is refused, by one line that names shard and file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.communities import communities
from pdadmm_g.data.datasets import load_dataset
from pdadmm_g.data.sharding import graph_source, shard_graph
from pdadmm_g.data.shards import ShardFolder
from pdadmm_g.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shard_graph(graph_source(communities(nodes=60), "mark"), 4, tmp_path / "graph")
    return tmp_path / "graph"


def message(folder: Path, parts: int = 1) -> str:
    """What is said to whoever reads all parts."""
    with pytest.raises(InputError) as caught:
        [ShardFolder(folder).part(place, parts) for place in range(parts)]
    return str(caught.value).replace(str(folder), "F")


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_part_reads_its_own_shards_alone(folder: Path) -> None:
    first, second = (ShardFolder(folder).part(place, 2) for place in range(2))
    assert [shard.folder.name for shard in second.shards] == ["shard-3-of-4", "shard-4-of-4"]
    assert (first.first, first.count, second.first, second.count) == (0, 30, 30, 30)
    shutil.rmtree(folder / "shard-1-of-4")
    assert ShardFolder(folder).part(1, 2).count == 30


HOSTILE = {
    "digits": b"(9999999999999999999999,)", "minus": b"(-1, -1)", "open": b"(((", "nothing": b"(0, 0)", "object": b"|O",
}  # fmt: skip


@pytest.mark.parametrize("kind", [*HOSTILE, "empty", "archive"])
def test_an_array_whose_header_lies(folder: Path, kind: str) -> None:
    """Found by fuzzing: the reader of headers ends in many ways. An archive is no array, though numpy would read it."""
    file = folder / "shard-2-of-4/x.npy"
    if kind == "archive":
        with file.open("wb") as target:
            np.savez(target, x=np.zeros(3))
    else:
        shape = b"(3,)" if kind == "object" else HOSTILE.get(kind, b"")
        dtype = HOSTILE[kind] if kind == "object" else b"<f4"
        header = b"{'descr': '" + dtype + b"', 'fortran_order': False, 'shape': " + shape + b", }\n"
        file.write_bytes(b"" if kind == "empty" else b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    assert message(folder).startswith("F/shard-2-of-4/x.npy: ")


def test_a_missing_shard(folder: Path) -> None:
    shutil.rmtree(folder / "shard-3-of-4")
    expected = "F/shard-3-of-4: is missing: bring it here, or make the folder anew with 'pdadmm-g shard'"
    assert message(folder) == message(folder, 4) == expected


def test_a_shard_too_many(folder: Path) -> None:
    shutil.copytree(folder / "shard-1-of-4", folder / "shard-1-of-5")
    assert message(folder) == "F/shard-1-of-5: is none of the 4 shards here: remove it"


def test_a_shard_of_another_folder(folder: Path, tmp_path: Path) -> None:
    shard_graph(graph_source(communities(nodes=60, seed=1), "other"), 4, tmp_path / "other")
    shutil.rmtree(folder / "shard-2-of-4")
    shutil.copytree(tmp_path / "other" / "shard-2-of-4", folder / "shard-2-of-4")
    expected = "F/shard-2-of-4/description.json: is of another data set than F/description.json: bring the one of this"
    assert message(folder) == expected
    shutil.rmtree(folder / "shard-2-of-4")
    shutil.copytree(folder / "shard-1-of-4", folder / "shard-2-of-4")
    assert message(folder) == expected


def test_an_edge_out_of_range(folder: Path) -> None:
    file = folder / "shard-4-of-4" / "columns.npy"
    columns = np.load(file)
    columns[3] = 60
    np.save(file, columns)
    assert message(folder) == "F/shard-4-of-4/columns.npy: names node 60, but nodes are 0..59"
    np.save(file, columns[1:])
    assert message(folder).startswith("F/shard-4-of-4/columns.npy: has shape (")
    np.save(file, columns.astype(np.int64))
    assert message(folder) == "F/shard-4-of-4/columns.npy: holds int64, but the description says int32"
    file.write_bytes(file.read_bytes()[:-5])
    assert message(folder) == "F/shard-4-of-4/columns.npy: cannot read as an array: damaged, or cut off"
    file.unlink()
    assert message(folder) == "F/shard-4-of-4/columns.npy: is missing: bring it here, or make the folder anew"


def test_starts_that_do_not_fit(folder: Path) -> None:
    file = folder / "shard-1-of-4" / "starts.npy"
    starts = np.load(file)
    starts[4] = starts[-1] + 1
    np.save(file, starts)
    assert message(folder) == "F/shard-1-of-4/starts.npy: does not fit columns.npy: damaged"


def test_shards_that_cannot_be_dealt(folder: Path) -> None:
    assert message(folder, 3) == "F: its 4 shards cannot be dealt to 3 processes: set shards to 1, 2, 4"


def test_a_description_that_is_none(folder: Path) -> None:
    file = folder / "description.json"
    for changes, culprit in (
        ({"format": 2}, "format"),
        ({"nodes": 61}, ""),
        ({"counts": [60, 0]}, "counts"),
    ):
        edit(file, **{"format": 1} | changes)
        said = message(folder)
        assert said.startswith("F/description.json: cannot read the description: ")
        assert culprit in said
        assert said.endswith("; make it anew with 'pdadmm-g shard'")
    file.write_text("{")
    assert message(folder).startswith("F/description.json: cannot read the description: ")
    file.unlink()
    assert message(folder) == "F/description.json: cannot read the description: No such file or directory"


def test_it_is_no_data_set_of_one_process(folder: Path) -> None:
    with pytest.raises(InputError, match="is a folder of shards, for 'pdadmm-g train', 'predict' and 'evaluate' alone"):
        load_dataset(folder)
