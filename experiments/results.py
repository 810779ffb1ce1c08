"""Where the results of an experiment are kept: one file of JSON lines, a row each, and nothing there is run twice.

A row is flat: what identifies it (those fields of :data:`KEY` that it has), its figures, and where they come from.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from pdadmm_g import __version__
from pdadmm_g.errors import InputError
from pdadmm_g.utils import decoded, locked, write_atomically, writing

Row = dict[str, Any]
#: What identifies a row, as far as it has these.
KEY = ("dataset", "method", "depth", "workers", "shards", "rows", "link", "repeat")
#: Options of where files are, which is a matter of each machine: recorded as a word in their place, or not at all.
PLACES = {"--out": None, "--data-root": None, "--map": None, "--disk": "FOLDER", "--folder": "FOLDER"}
#: Where a row comes from.
ORIGIN = ("command", "date", "hardware", "versions")


@dataclass(frozen=True)
class Results:
    """The rows in ``folder``, and the command that adds to them.

    Every row is saved as soon as it is known, the whole file at once, under a lock: the processes of a pool, or two
    commands, may add to it together. Rows are sorted by their key, whoever was first.
    """

    folder: Path
    command: str

    @property
    def path(self) -> Path:
        """The file with the rows."""
        return self.folder / "results.jsonl"

    def rows(self) -> list[Row]:
        """All rows that are known, none if there is no file."""
        if not self.path.exists():
            return []
        try:
            lines = self.path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{self.path}: cannot read the results: {error}") from None
        rows = []
        for number, line in enumerate(lines, start=1):
            try:
                row = decoded(Row, line)
            except ValueError as error:
                raise InputError(f"{self.path}: cannot read the results: line {number}: {error}") from None
            key = _key(row)
            if not key or not all(isinstance(value, (str, int)) for value in key.values()):
                raise InputError(f"{self.path}: cannot read the results: line {number} is not a row")
            rows.append(row)
        return rows

    def find(self, **key: Any) -> Row | None:
        """The row with that key, None if it is not known."""
        return next((row for row in self.rows() if _key(row) == key), None)

    def put(self, row: Row) -> Row:
        """Save a row in place of the one with its key; return it with where it comes from.

        A row that was begun on another machine, or with other versions, keeps what it said of them as ``earlier``.
        """
        before = {name: row[name] for name in ORIGIN if name in row}
        row = plain({name: value for name, value in row.items() if name not in ORIGIN}) | provenance(self.command)
        if before and any(before.get(name) != row[name] for name in ("hardware", "versions")):
            row["earlier"] = [*row.get("earlier", []), before]
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder / ".lock", wait=True):
            kept = [other for other in self.rows() if _key(other) != _key(row)]
            rows = sorted([*kept, row], key=lambda other: list(_key(other).values()))
            write_atomically(self.path, "".join(json.dumps(other, ensure_ascii=False) + "\n" for other in rows))
        return row


def _key(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in KEY if name in row}


def plain(value: Any) -> Any:
    """As JSON gives it back: lists for tuples."""
    return json.loads(json.dumps(value))


def arranged(rows: Sequence[Row], **orders: Sequence[Any]) -> list[Row]:
    """Rows in the order of a table: by each of these fields as its values are listed, those that are not last."""

    def place(row: Row) -> list[int]:
        return [list(order).index(row[name]) if row[name] in order else len(order) for name, order in orders.items()]

    return sorted(rows, key=place)


def markdown(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table; columns may be without title."""
    head = "|" + "|".join(f" {title} " if title else " " for title in titles) + "|"
    return "\n".join([head, "|---" * len(titles) + "|", *("| " + " | ".join(line) + " |" for line in lines)]) + "\n"


def failures(rows: Sequence[Row]) -> str:
    """What could not be measured, and why, below a table."""
    failed = {(row["method"], row["error"]) for row in rows if "error" in row}
    return "".join(f"\n{method}: {error}\n" for method, error in sorted(failed))


def origin(rows: Sequence[Row]) -> str:
    """Where these rows come from, in a line: seeds, dates, machines and versions."""
    runs = [run for row in rows if isinstance(row.get("runs"), list) for run in row["runs"]]  # a soak has their number
    seeds = {seed for row in rows for seed in row.get("seeds", ())} | {run["seed"] for run in runs}
    parts = ["seeds " + ", ".join(map(str, sorted(seeds)))] if len(seeds) > 1 else [f"seed {seed}" for seed in seeds]
    machines = Counter(_machine(row, source) for row in rows for source in (row, *row.get("earlier", ())))
    for machine, count in machines.most_common():
        parts.append(machine if len(machines) == 1 else f"{count} rows: {machine}")
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _machine(row: Row, source: Row) -> str:
    """Date, hardware and versions; the graphics card only where it was used."""
    hardware = source["hardware"]
    used = row.get("device") == "cuda" or "--device cuda" in (source["command"] or "")
    card = [hardware["gpu"]] if used and "gpu" in hardware else []
    versions = [f"{name} {version}" for name, version in source["versions"].items()]
    return ", ".join([source["date"], hardware["cpu"], f"{hardware['cores']} cores", *card, *versions])


def provenance(command: str) -> dict[str, Any]:
    """Where a result comes from."""
    import torch  # the names of the experiments are known without it

    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "command": command,
        "date": str(date.today()),
        "hardware": {
            "cpu": names[0] if names else platform.processor(),
            "cores": os.cpu_count(),
            **({"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}),
        },
        "versions": {"pdadmm_g": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }


def command_line(module: str, arguments: Sequence[str]) -> str:
    """The command that makes the same figures again."""
    words = ["python", "-m", module]
    rest = iter(arguments)
    for argument in rest:
        name, _, value = argument.partition("=")
        if name not in PLACES:
            words.append(argument)
            continue
        if not value:
            next(rest)
        if PLACES[name]:
            words += [name, str(PLACES[name])]
    return shlex.join(words)


def write(out: Path | None, figures: Row) -> None:
    """Keep the figures of a script, if it was given a place for them: a folder of results, and the name of the row."""
    if out is not None:
        specification = sys.modules["__main__"].__spec__
        module = specification.name.removesuffix(".__main__") if specification else Path(sys.argv[0]).stem
        Results(out.parent, command_line(module, sys.argv[1:])).put({"method": out.name, **figures})


def read(out: Path | None) -> Row:
    """What was kept there before; empty if nothing was."""
    return {} if out is None else Results(out.parent, "").find(method=out.name) or {}
