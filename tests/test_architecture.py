"""The direction of dependence, as the contracts in pyproject.toml state it, and the size of what is written."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]
#: A function fits on a screen, and a constructor in the head of its reader.
LINES, ARGUMENTS = 60, 8
#: scikit-learn wants every parameter of an estimator to be an argument of its constructor.
ESTIMATOR = "estimator.py: Estimator.__init__"


def test_imports_go_one_way(capsys: pytest.CaptureFixture[str]) -> None:
    code = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert code == 0, capsys.readouterr().out


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    source = ROOT / "src" / "pdadmm_g"
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for inner in ast.iter_child_nodes(node):
                if isinstance(inner, ast.FunctionDef):
                    owner = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
                    yield f"{path.relative_to(source)}: {owner}{inner.name}", inner


def test_functions_fit_on_a_screen() -> None:
    lengths = {name: node.end_lineno - node.lineno + 1 for name, node in functions()}
    assert len(lengths) > 500
    assert {name: length for name, length in lengths.items() if length > LINES and name != ESTIMATOR} == {}


def test_constructors_take_few_arguments() -> None:
    counts = {
        name: len(node.args.args) - 1 + len(node.args.kwonlyargs)
        for name, node in functions()
        if name.endswith(".__init__")
    }
    assert counts[ESTIMATOR] > ARGUMENTS
    assert {name: count for name, count in counts.items() if count > ARGUMENTS and name != ESTIMATOR} == {}


def test_folders_say_what_is_in_them() -> None:
    """The docstring of a folder with a list of its modules names all of them, and no other."""
    for folder in ("admm", "data", "engine", "runs", "training"):
        path = ROOT / "src" / "pdadmm_g" / folder
        docstring = ast.get_docstring(ast.parse((path / "__init__.py").read_text())) or ""
        named = {line.split("``")[1] for line in docstring.splitlines() if line.startswith("``")}
        modules = {item.stem for item in path.iterdir() if item.suffix == ".py" or (item / "__init__.py").is_file()}
        assert named == modules - {"__init__"}, folder
