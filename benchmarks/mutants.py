"""Would the tests notice? Random small changes of the algorithm's code, each of which should make some test fail.

    python benchmarks/mutants.py --count 200 --seed 0 --out results/mutants.json

A mutant is a copy of the package with one operator, comparison, constant or condition changed. The tests of its module
run first, then those of its folder, then training as a whole; it is killed as soon as one fails, or takes ten
times as long as it should. What survives is printed: it wants a test, or does the same as the original.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from record import write

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "pdadmm_g"
#: What is changed: the equations, the engine without what needs a GPU, and the rounds.
SOURCES = [path for part in ("admm/*.py", "engine/*.py", "training/round*.py") for path in sorted(PACKAGE.glob(part))]
NEED_A_GPU = ("kernels.py", "cuda_graph.py", "precision.py")
#: The last to be asked: whole trainings.
WHOLE = ("tests/test_digests.py", "tests/engine/test_parallel.py", "tests/training/test_train.py")
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def changed(node: ast.AST) -> ast.AST | None:
    """The node with a small change, None if there is nothing to change in it."""
    node = copy.deepcopy(node)
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPS:
        node.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        node.ops[0] = SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        return node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        node.value += 1
    elif isinstance(node, ast.If):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    else:
        return None
    return node


def places(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Where a node may be changed: its parent, the field and place in it, and the node instead."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for parent in dict.fromkeys(node for function in functions for part in function.body for node in ast.walk(part)):
        for field, value in ast.iter_fields(parent):
            for place, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                instead = changed(node) if isinstance(node, ast.AST) else None
                if instead is not None:
                    yield parent, field, place, instead


def mutant(source: Path, dice: random.Random) -> tuple[str, str] | None:
    """The text of a module with one change, and what was changed."""
    tree = ast.parse(source.read_text())
    found = list(places(tree))
    if not found:
        return None
    parent, field, place, instead = dice.choice(found)
    before = ast.unparse(parent)
    if place is None:
        setattr(parent, field, instead)
    else:
        getattr(parent, field)[place] = instead
    line = getattr(parent, "lineno", 0)
    name = source.relative_to(PACKAGE)
    return ast.unparse(tree), f"{name}:{line}: {before.splitlines()[0]}  ->  {ast.unparse(parent).splitlines()[0]}"


def suites(source: Path) -> Iterator[list[str]]:
    """Tests, the nearest to the module first."""
    folder = source.parent.name
    own = ROOT / "tests" / folder / f"test_{source.stem}.py"
    if own.exists():
        yield [str(own)]
    yield [str(ROOT / "tests" / folder)]
    yield [str(ROOT / path) for path in WHOLE]


def survives(source: Path, text: str, seconds: float) -> bool:
    """Do all tests pass with this text in place of the module's?"""
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(PACKAGE, Path(name) / "pdadmm_g", ignore=shutil.ignore_patterns("__pycache__"))
        (Path(name) / "pdadmm_g" / source.relative_to(PACKAGE)).write_text(text)
        environment = os.environ | {"PYTHONPATH": name, "PYTHONDONTWRITEBYTECODE": "1"}
        for suite in suites(source):
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *suite]
            try:
                done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=seconds)
            except subprocess.TimeoutExpired:
                return False
            if done.returncode:
                return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only modules whose path contains this")
    parser.add_argument("--seconds", type=float, default=600.0, help="for one suite of one mutant")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    dice = random.Random(arguments.seed)
    sources = [path for path in SOURCES if path.name not in NEED_A_GPU and arguments.only in str(path)]
    # A long module has as many more mutants.
    lengths = [len(path.read_text().splitlines()) for path in sources]
    killed, survivors = 0, list[str]()
    while killed + len(survivors) < arguments.count:
        source = dice.choices(sources, lengths)[0]
        made = mutant(source, dice)
        if made is None:
            continue
        text, change = made
        if survives(source, text, arguments.seconds):
            survivors.append(change)
        else:
            killed += 1
        print(f"{killed} killed, {len(survivors)} survived; {change}", flush=True)
    write(arguments.out, {"killed": killed, "survivors": survivors})


if __name__ == "__main__":
    main()
