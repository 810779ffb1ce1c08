"""What is done to a valid input: to its bytes, to the values in it, to its arrays, to the file itself."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Values at which types, sizes and readers end.
NUMBERS = (0, 1, -1, 2, 3, 7, 20, 255, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30)
FLOATS = (0.0, -0.0, 1e-45, 1e-300, 0.5, 1.0, 1e15, 1.1e15, 1e38, 1e39, 1e308, math.inf, -math.inf, math.nan)
TEXTS = (
    "", " ", "none", "None", "null", "true", "yes", "nan", "inf", "-inf", "1e400", "0x10", "1_000", "1,2", ",", "2,,3",
    "\u0661\u0662", "é", "\U0001f4a5", "a\nb", "\x00", "\ufeff1", "/", "..", "~", "x" * 5000, "9" * 5000, "%s", "{}",
)  # fmt: skip


def mutate_bytes(rng: random.Random, content: bytes) -> bytes:
    """Flip, cut, repeat, overwrite or fill."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        if not data:
            return bytes(rng.randrange(256) for _ in range(rng.randrange(64)))
        place = rng.randrange(min(len(data), rng.choice((16, 256, len(data)))))
        match rng.randrange(7):
            case 0:
                data[place] ^= 1 << rng.randrange(8)
            case 1:
                data[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, ord("-"), ord("9"), rng.randrange(256)))
            case 2:
                del data[place:]
            case 3:
                del data[place : place + rng.randrange(1, 64)]
            case 4:
                data[place:place] = data[place : place + rng.randrange(1, 64)]
            case 5:
                value = rng.choice(NUMBERS) & (2**64 - 1)
                data[place : place + 8] = struct.pack("<Q", value)
            case 6:
                data[place : place + 4] = struct.pack("<f", rng.choice((math.nan, math.inf, -1e38, 1e38, 0.0)))
    return bytes(data)


def any_value(rng: random.Random, depth: int = 0) -> Any:
    """Something that YAML or JSON can hold."""
    kind = rng.randrange(8 if depth < 3 else 5)
    if kind < 2:
        return rng.choice(NUMBERS)
    if kind == 2:
        return rng.choice(FLOATS)
    if kind == 3:
        return rng.choice(TEXTS)
    if kind == 4:
        return rng.choice((None, True, False))
    if kind == 5:
        return {rng.choice(TEXTS)[:20]: any_value(rng, depth + 1) for _ in range(rng.randrange(3))}
    return [any_value(rng, depth + 1) for _ in range(rng.randrange(4))]


def mutate_json(rng: random.Random, value: Any) -> Any:
    """Replace, remove or add something somewhere in a JSON value."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        value = dict(value)
        key = rng.choice(list(value))
        match rng.randrange(5):
            case 0:
                del value[key]
            case 1:
                value[rng.choice(TEXTS)] = any_value(rng)
            case _:
                value[key] = mutate_json(rng, value[key])
        return value
    if isinstance(value, list) and value and rng.random() < 0.8:
        value = list(value)
        place = rng.randrange(len(value))
        if rng.random() < 0.3:
            del value[place]
        else:
            value[place] = mutate_json(rng, value[place])
        return value
    return any_value(rng)


def any_array(rng: random.Random) -> NDArray[Any]:
    """An array of any type and shape, with any values."""
    shape = tuple(rng.choice((0, 1, 2, 3, 11, 12, 13)) for _ in range(rng.choice((0, 1, 1, 2, 2, 2, 3))))
    kind = rng.choice("?bBhHiIlLefdgFDSUMmV")
    with np.errstate(all="ignore"):
        values = [rng.choice((rng.choice(FLOATS), rng.choice(NUMBERS), rng.randrange(-2, 14))) for _ in range(97)]
        flat = np.resize(np.array([float(value) for value in values]), int(np.prod(shape)))
        if kind in "SU":
            return flat.astype(kind + "8").reshape(shape)
        if kind in "Mm":
            return np.zeros(shape, dtype=f"{kind}8[s]")
        if kind == "V":
            return np.zeros(shape, dtype=[("a", "f4"), ("b", "i4")])
        array = flat.astype(kind).reshape(shape)
    return rng.choice((array, np.asfortranarray(array), array.astype(array.dtype.newbyteorder())))


def mutate_arrays(rng: random.Random, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Other types, shapes and values in one or two of the arrays."""
    arrays = dict(arrays)
    for _ in range(rng.choice((0, 1, 1, 2))):
        name = rng.choice(list(arrays))
        array = arrays[name]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            match rng.randrange(7):
                case 0:
                    arrays[name] = any_array(rng)
                case 1 if array.dtype.kind != "V":
                    with contextlib.suppress(ValueError, TypeError):  # text that is no number
                        arrays[name] = array.astype(rng.choice("?bBhHiIlLefdgFD"))
                case 2 if array.size:
                    array = array.copy()
                    value = rng.choice((rng.choice(FLOATS), rng.randrange(-3, 15)))
                    with contextlib.suppress(ValueError, OverflowError, TypeError):
                        array.reshape(-1)[rng.randrange(array.size)] = value
                    arrays[name] = array
                case 3:
                    arrays[name] = np.atleast_1d(array)[..., : rng.randrange(1, 12)]
                case 4:
                    arrays[name] = array[None] if rng.random() < 0.5 else array.reshape(-1)
                case 5:
                    del arrays[name]
                    arrays = arrays or {name: array}
                case 6:
                    arrays[rng.choice(("x", "adj", "../x", "é", "num_nodes", "edge_attr"))] = any_array(rng)
    return arrays


def mutate_safetensors(rng: random.Random, content: bytes) -> bytes:
    """The header as JSON, the metadata in it, the values, or plain bytes."""
    kind = rng.randrange(4)
    if kind == 0:
        return mutate_bytes(rng, content)
    length = struct.unpack("<Q", content[:8])[0]
    header, values = json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])
    if kind == 1:
        header = mutate_json(rng, header)
    elif kind == 2 and "pdadmm_g" in header.get("__metadata__", {}):
        about = mutate_json(rng, json.loads(header["__metadata__"]["pdadmm_g"]))
        header["__metadata__"]["pdadmm_g"] = json.dumps(about)
    else:
        place = 4 * rng.randrange(len(values) // 4)
        values[place : place + 4] = struct.pack("<f", rng.choice((math.nan, math.inf, 1e38, 0.0)))
    text = json.dumps(header).encode()
    return struct.pack("<Q", rng.choice((len(text),) * 9 + (0, 1, 2**63))) + text + bytes(values)


def odd_file(rng: random.Random, path: Path) -> bool:
    """Now and then something that is not a file with the wanted content at all; True if so."""
    kind = rng.randrange(60)
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        path.write_bytes(b"")
    elif kind == 2:
        path.symlink_to(path.name)
    elif kind == 3:
        path.symlink_to("/dev/null")
    elif kind == 4:
        path.symlink_to("missing")
    elif kind == 5:
        path.symlink_to("/dev/zero")
    elif kind == 6:
        os.mkfifo(path)
    return kind <= 6
