"""What is published: the commands find every figure in results/, run nothing, and make the same tables again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from experiments import EXPERIMENTS, cells, communication, convergence, depth, standins
from experiments.__main__ import main
from experiments.results import ORIGIN, Results, origin

RESULTS = Path(__file__).parents[2] / "results"
#: With the options that were asked for. What was measured with other sizes is measured anew: what is timed is not here.
COMMANDS: dict[str, list[str]] = {
    **{name: [name] for name in EXPERIMENTS if not name.startswith(("speedup", "network"))},
    "depth": ["depth", "--seeds", "0,100,200"],
}


def trains(*_: object, **__: object) -> None:
    raise AssertionError("there is nothing to run")


@pytest.mark.parametrize("name", COMMANDS)
def test_everything_is_there_and_gives_the_published_table(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module, function in ((cells, "run_once"), (communication, "_figures"), (convergence, "_curves"),
                             (depth, "_run"), (standins, "make")):  # fmt: skip
        monkeypatch.setattr(module, function, trains)
    monkeypatch.delenv("PDADMM_G_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(RESULTS / name, tmp_path / name)
    (tmp_path / name / "table.md").unlink()
    main([*COMMANDS[name], "--out", str(tmp_path)])
    done, total = capsys.readouterr().err.splitlines()[-1].split()[0].split("/")
    assert done == total
    assert (tmp_path / name / "table.md").read_text() == (RESULTS / name / "table.md").read_text()
    assert (tmp_path / name / "results.jsonl").read_text() == (RESULTS / name / "results.jsonl").read_text()


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/results.jsonl")), ids=lambda path: path.parent.name)
def test_rows_say_where_they_come_from(path: Path) -> None:
    rows = Results(path.parent, "test").rows()
    for row in rows:
        assert set(ORIGIN) <= set(row)
        assert row["command"] is not None or "no command was recorded" in row["note"]
    assert "torch 2." in origin(rows)
