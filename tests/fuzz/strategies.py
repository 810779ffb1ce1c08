"""What is done to a valid input: to its bytes, to the values in it, to its arrays, to the file itself."""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from hypothesis.strategies import SearchStrategy
from numpy.typing import NDArray

Draw = Callable[[SearchStrategy[Any]], Any]
#: Values at which types, sizes and readers end.
LIMITS = (0, 1, -1, 2, 3, 7, 20, 255, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30)
FLOATS = (0.0, -0.0, 1e-45, 1e-300, 0.5, 1.0, 1e15, 1.1e15, 1e38, 1e39, 1e308, math.inf, -math.inf, math.nan)
WORDS = (
    "", " ", "none", "None", "null", "true", "yes", "nan", "inf", "-inf", "1e400", "0x10", "1_000", "1,2", ",", "2,,3",
    "\u0661\u0662", "é", "\U0001f4a5", "a\nb", "\x00", "\ufeff1", "/", "..", "~", "x" * 5000, "9" * 5000, "%s", "{}",
    "id", "label", "split", "train", "train_mask", "source", "target", "weight", "x", "y", "n1",
)  # fmt: skip
NUMBERS: SearchStrategy[Any] = st.sampled_from(LIMITS) | st.sampled_from(FLOATS) | st.integers() | st.floats()
TEXTS = st.sampled_from(WORDS) | st.text(max_size=20)
#: Something that YAML or JSON can hold.
VALUES: SearchStrategy[Any] = st.recursive(
    NUMBERS | TEXTS | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=6,
)
#: An array of any type and shape, with any values.
ARRAYS: SearchStrategy[NDArray[Any]] = hnp.arrays(
    hnp.scalar_dtypes() | hnp.byte_string_dtypes() | hnp.unicode_string_dtypes() | st.just(np.dtype([("a", "f4")])),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4) | st.sampled_from([(12,), (12, 3), (2, 60)]),
)
#: What bytes are written over with.
PIECES = [struct.pack("<Q", value & (2**64 - 1)) for value in LIMITS] + [struct.pack("<f", v) for v in (1e38, math.nan)]


def chance(draw: Draw, times: int) -> bool:
    """Once in so many times, and not in the simplest case."""
    return bool(draw(st.integers(1, times)) == times)


@st.composite
def damaged(draw: Draw, content: bytes) -> bytes:
    """Bytes with a few stretches of them replaced, removed or repeated."""
    data = bytearray(content)
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 4)))):
        place = draw(st.integers(0, min(len(data), draw(st.sampled_from((16, 256, len(data)))))))
        length = draw(st.sampled_from((0, 1, 4, 8, 64)))
        new = draw(st.binary(max_size=8) | st.sampled_from([*PIECES, bytes(data[place : place + length]) * 2]))
        data[place : place + draw(st.sampled_from((0, length, len(new), len(data))))] = new
    return bytes(data)


@st.composite
def altered(draw: Draw, value: Any, *, deep: bool = True) -> Any:
    """A JSON value in which something is replaced, removed or added somewhere; without ``deep`` not all of it."""
    if not isinstance(value, (dict, list)) or not value or (deep and chance(draw, 8)):
        return draw(VALUES)
    key = draw(st.sampled_from(list(value) if isinstance(value, dict) else range(len(value))))
    value = value.copy()
    what = draw(st.sampled_from(("alter", "alter", "remove", "add", "rename")))
    if what == "alter":
        value[key] = draw(altered(value[key], deep=deep))
    elif isinstance(value, dict):
        content = value[key] if what == "add" else value.pop(key)
        if what != "remove":
            value[draw(TEXTS)] = draw(st.just(content) | VALUES)
    elif what == "remove":
        del value[key]
    else:
        value.insert(key, draw(VALUES))
    return value


@st.composite
def altered_arrays(draw: Draw, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Other types, shapes and values in up to two of the arrays, or arrays of other names."""
    arrays = dict(arrays)
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from([*arrays, "adj", "../x", "é", "num_nodes", "edge_attr"]))
        array, what = arrays.get(name), draw(st.sampled_from(("any", "type", "value", "cut", "shape", "remove")))
        if array is None or what == "any":
            arrays[name] = draw(ARRAYS)
        elif what == "remove" and len(arrays) > 1:
            del arrays[name]
        elif what == "cut":
            arrays[name] = np.atleast_1d(array)[..., : draw(st.integers(1, 11))]
        elif what == "shape":
            arrays[name] = array[None] if draw(st.booleans()) else array.reshape(-1)
        else:
            # Text that is no number, a number that is too large.
            with np.errstate(all="ignore"), contextlib.suppress(ValueError, TypeError, OverflowError):
                array = array.astype(draw(hnp.scalar_dtypes())) if what == "type" else array.copy()
                if what == "value" and array.size:
                    array.reshape(-1)[draw(st.integers(0, array.size - 1))] = draw(NUMBERS)
                arrays[name] = array
    return arrays


@st.composite
def altered_safetensors(draw: Draw, content: bytes) -> bytes:
    """The header as JSON, the description in it, the values, or plain bytes."""
    length = struct.unpack("<Q", content[:8])[0]
    header, values = json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])
    what = draw(st.sampled_from(("bytes", "header", "description", "values")))
    if what == "bytes":
        return bytes(draw(damaged(content)))
    if what == "header":
        header = draw(altered(header))
    elif what == "description" and "pdadmm_g" in header.get("__metadata__", {}):
        about = draw(altered(json.loads(header["__metadata__"]["pdadmm_g"])))
        header["__metadata__"]["pdadmm_g"] = json.dumps(about)
    else:
        place = 4 * draw(st.integers(0, len(values) // 4 - 1))
        values[place : place + 4] = struct.pack("<f", draw(st.sampled_from((math.nan, math.inf, 1e38, 0.0))))
    text = json.dumps(header).encode()
    return struct.pack("<Q", draw(st.sampled_from((len(text),) * 5 + (0, 1, 2**63)))) + text + bytes(values)


def write(draw: Draw, path: Path, content: bytes) -> None:
    """Write the content, now and then damaged, or something that is not a file with any content."""
    kind = draw(st.sampled_from(("folder", "", "pipe", path.name, "/dev/null", "missing", "/dev/zero")))
    if not chance(draw, 10):
        path.write_bytes(draw(damaged(content)) if chance(draw, 5) else content)
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind:
        path.symlink_to(kind)
    else:
        path.write_bytes(b"")


def alter_file(draw: Draw, path: Path) -> None:
    """Break one file, in the way of its format."""
    content = path.read_bytes()
    path.unlink()
    if chance(draw, 10):
        return
    if path.suffix == ".safetensors":
        content = draw(altered_safetensors(content))
    elif path.suffix in (".json", ".jsonl"):
        lines = content.decode().splitlines() if path.suffix == ".jsonl" else [content.decode()]
        place = draw(st.integers(0, len(lines) - 1))
        lines[place] = json.dumps(draw(altered(json.loads(lines[place]))))
        content = "\n".join(lines).encode(errors="replace")
    elif path.suffix == ".npy" and draw(st.booleans()):
        content = draw(NPY) + content[128:]
    else:
        content = draw(damaged(content))
    write(draw, path, content)


def _npy(shape: str, dtype: str) -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    pickle = b"cos\nsystem\n(S'false'\ntR." if dtype == "|O" else b""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + pickle


#: The header of an array as a file has it: too large, of objects, or not to be read at all.
NPY = st.builds(
    _npy,
    st.lists(st.sampled_from((*LIMITS, 4, 5, 12)), max_size=3).map(lambda sizes: repr(tuple(sizes)))
    | st.sampled_from(("(" * 300, "(1e9,)", "[3]", "None", "(-1,)", "(True,)", "(4194304,)", "(160000000,)")),
    st.sampled_from(("<f4", "<f8", "<i8", "|b1", "|O", "<U9999999", "|V0")),
)
