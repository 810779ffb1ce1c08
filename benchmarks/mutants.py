"""Would the tests notice? Random small changes of the algorithm's code, each of which should make some test fail.

    python -m benchmarks.mutants --count 200 --seed 0 --jobs 16 --out results/mutants/mutants

A mutant is a copy of the package with one operator, comparison, constant or condition changed. First every test file
runs on the original, watched, so that it is known which tests reach a line and how long they take (kept in --map, by
the content of the files). A mutant meets those that reach its line, the fast first and those that start processes last,
and is killed as soon as one fails or takes ten times as long as it should; where processes were started the test must
pass on the original right after. What survives is printed: it wants a test, or does the same as the original,
which is then noted in equivalent_mutants.json. A command that was stopped goes on where it was, and tries the survivors
again.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import heapq
import itertools
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.results import write

from .mutant_tests import PACKAGE, ROOT, Run, Seen, copy_package, in_parallel, preload, watch

#: What is changed: the equations, the engine without what needs a GPU, and the rounds.
SOURCES = [path for part in ("admm/*.py", "engine/*.py", "training/round*.py") for path in sorted(PACKAGE.glob(part))]
NEED_A_GPU = ("kernels.py", "precision.py")
OF_A_GPU = tuple(f"test_{name}" for name in (*NEED_A_GPU, "gpu.py", "mesh_gpu.py"))
#: The tests that are asked.
ASKED = (
    "tests/admm/test_*.py", "tests/engine/test_*.py", "tests/training/test_*.py", "tests/test_digests.py",
    "tests/runs/test_sharded_r*.py",
)  # fmt: skip
#: Mutants that do the same as the original, as somebody has found: module, the line that was and became, and why.
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")
#: Seconds of tests in the first try of a mutant, and in each that follows.
FIRST, NEXT = 20.0, 60.0
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass
class Mutant:
    """One change: its module, the lines of its statement up to it, the text of the module, and what is known."""

    name: str
    module: str
    lines: tuple[int, int]
    text: str = field(repr=False)
    diff: str
    killed_by: str | None = None
    #: Why no test can notice: such a mutant is not tried.
    equivalent: str | None = None
    #: Tries that have not ended yet, and whether all tests have passed.
    waiting: int = 0
    survived: bool = False


@dataclass
class Try:
    """Some tests on a mutant, or a test on the original because it failed there."""

    mutant: Mutant
    tests: list[Seen]
    confirms: Try | None = None


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
    else:
        return None
    return node


def places(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int | None, ast.AST, tuple[int, int]]]:
    """Where a node may be changed: its parent, the field and place in it, the node instead, and the lines to reach."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    every = dict.fromkeys(node for function in functions for part in function.body for node in ast.walk(part))
    unreachable = {node for owner in every for part in _for_a_gpu(owner) for node in ast.walk(part)}
    for statement in (node for node in every if isinstance(node, ast.stmt) and node not in unreachable):
        for parent in _of_the_statement(statement):
            for name, value in ast.iter_fields(parent):
                for place, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
                    if not isinstance(node, ast.expr) or node in unreachable:
                        continue
                    lines = statement.lineno, node.end_lineno or statement.lineno
                    if (instead := changed(node)) is not None:
                        yield parent, name, place, instead, lines
                    if isinstance(parent, ast.If | ast.IfExp) and name == "test":
                        yield parent, name, place, ast.UnaryOp(ast.Not(), node), lines


def _for_a_gpu(node: ast.AST) -> Sequence[ast.AST]:
    """What of a statement or an expression runs on a GPU alone: a branch, or what is asked once that is known."""
    if isinstance(node, ast.If | ast.IfExp):
        branch = [node.body] * _says_gpu(node.test, True) + [node.orelse] * _says_gpu(node.test, False)
        return [part for found in branch for part in (found if isinstance(found, list) else [found])]
    if isinstance(node, ast.BoolOp):
        known = [_says_gpu(value, isinstance(node.op, ast.And)) for value in node.values]
        return node.values[known.index(True) + 1 :] if True in known else []
    return []


def _says_gpu(test: ast.expr, outcome: bool) -> bool:
    """Does a condition with this outcome mean that it runs on a GPU?"""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _says_gpu(test.operand, not outcome)
    if isinstance(test, ast.BoolOp):
        decide = any if isinstance(test.op, ast.And) is outcome else all
        return decide(_says_gpu(value, outcome) for value in test.values)
    differs = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq | ast.IsNot)
    return differs is not outcome and any(word in ast.unparse(test) for word in ("cuda", "_on_gpu"))


def _of_the_statement(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement, not those of the statements in it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        yield (node := waiting.pop())
        waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]


def mutant(source: Path, number: int) -> Mutant:
    """The mutant of a module whose place has this number."""
    module = str(source.relative_to(PACKAGE))
    tree = ast.parse(source.read_text())
    original = ast.unparse(tree).splitlines()
    parent, name, place, instead, lines = list(places(tree))[number]
    if place is None:
        setattr(parent, name, instead)
    else:
        getattr(parent, name)[place] = instead
    text = ast.unparse(tree)
    diff = list(difflib.unified_diff(original, text.splitlines(), n=0, lineterm=""))[3:]
    return Mutant(f"{module}:{lines[0]} #{number}", module, lines, text, "\n".join(diff))


def draw(count: int, seed: int, only: str) -> list[Mutant]:
    """So many of all mutants, none twice."""
    every = [
        (source, number)
        for source in SOURCES
        if source.name not in NEED_A_GPU and only in str(source)
        for number in range(len(list(places(ast.parse(source.read_text())))))
    ]
    return [mutant(*place) for place in random.Random(seed).sample(every, min(count, len(every)))]


def tries(mutant: Mutant, tests: list[Seen]) -> list[list[Seen]]:
    """The tests that reach the mutant: first a few seconds of the fastest, those that start processes last, by file."""
    first, last = mutant.lines
    meets = [test for test in tests if any(first <= line <= last for line in test.lines.get(mutant.module, ()))]
    slow = {test.file for test in meets if test.processes}
    parts = [list[Seen]()]
    for test in sorted(meets, key=lambda test: (test.file in slow, test.file if test.file in slow else test.seconds)):
        limit = FIRST if len(parts) == 1 else NEXT
        if parts[-1] and sum(each.seconds for each in parts[-1]) + test.seconds > limit:
            parts.append([])
        parts[-1].append(test)
    return [part for part in parts if part]


class Check:
    """All mutants against the tests, ``jobs`` tries at a time."""

    def __init__(self, mutants: list[Mutant], tests: list[Seen], folder: Path, save: Callable[[], None]) -> None:
        self.folder = folder
        self.save = save
        self.original = copy_package(folder / "original")
        self.numbers = itertools.count()
        self.waiting: list[tuple[int, int, Try]] = []
        for mutant in mutants:
            parts = tries(mutant, tests) if mutant.killed_by is None and mutant.equivalent is None else []
            mutant.waiting = len(parts)
            for place, part in enumerate(parts):
                self._add(place, Try(mutant, part))
            if not parts and mutant.killed_by is None:
                self._done(mutant)

    def _add(self, place: int, what: Try) -> None:
        heapq.heappush(self.waiting, (place, next(self.numbers), what))

    def begin(self, entry: tuple[int, int, Try]) -> Run | None:
        _, number, what = entry
        if what.mutant.killed_by is not None:
            return None
        package = self.original
        if what.confirms is None:
            package = copy_package(self.folder / f"package-{number}", self.original)
            module = package / what.mutant.module
            module.unlink()
            module.write_text(what.mutant.text)
        chosen = {test.name: test.limit for test in what.tests}
        return Run(
            package, self.folder / f"run-{number}", list(dict.fromkeys(test.file for test in what.tests)), chosen
        )

    def end(self, entry: tuple[int, int, Try], failed: str | None) -> None:
        place, number, what = entry
        mutant = what.mutant
        for name in (f"package-{number}", f"run-{number}"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        culprit = next((test for test in what.tests if failed and failed.startswith(test.name)), None)
        if what.confirms is not None and failed:  # it fails on the original too: once more without it
            left = [test for test in what.confirms.tests if test.name != what.tests[0].name]
            self._add(place, Try(mutant, left))
        elif what.confirms is not None:
            self._kill(mutant, what.tests[0].name)
        elif failed and culprit is not None and culprit.processes:
            self._add(place, Try(mutant, [culprit], confirms=what))
        elif failed:
            self._kill(mutant, failed)
        elif mutant.killed_by is None:
            mutant.waiting -= 1
            if not mutant.waiting:
                self._done(mutant)

    def _kill(self, mutant: Mutant, test: str) -> None:
        if mutant.killed_by is None:
            mutant.killed_by = test
            self._done(mutant)

    def _done(self, mutant: Mutant) -> None:
        mutant.survived = mutant.killed_by is None
        print(f"{mutant.name}: {mutant.killed_by or mutant.equivalent or 'SURVIVED'}\n{mutant.diff}", flush=True)
        self.save()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only modules whose path contains this")
    parser.add_argument("--tests", nargs="+", default=ASKED, help="files of tests that are asked")
    parser.add_argument("--jobs", type=int, default=1, help="processes of tests at a time")
    parser.add_argument("--map", type=Path, default=ROOT / "build" / "reached.json", help="which test reaches what")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    mutants = draw(arguments.count, arguments.seed, arguments.only)
    if arguments.out.exists():
        before = {(entry["name"], entry["diff"]): entry for entry in json.loads(arguments.out.read_text())["mutants"]}
        for mutant in mutants:
            mutant.killed_by = before.get((mutant.name, mutant.diff), {}).get("killed_by")
    reasons = equivalents()
    for mutant in mutants:
        lines = (line[1:].strip() for line in mutant.diff.splitlines())
        mutant.equivalent = reasons.get((mutant.module, *lines))
    preload()
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        files = [path for part in arguments.tests for path in sorted(ROOT.glob(part)) if path.name not in OF_A_GPU]
        tests = watch(files, SOURCES, Path(name, "watch"), arguments.jobs, arguments.map)
        check = Check(mutants, tests, Path(name), lambda: write(arguments.out, figures(mutants)))
        in_parallel(check.waiting, arguments.jobs, check.begin, check.end)
    result = figures(mutants)
    print(f"{result['killed']} of {result['count']} killed")


def equivalents() -> dict[tuple[str, ...], str]:
    """Why no test can notice a change: by module, line before and line after, wherever in the module that is."""
    entries = json.loads(EQUIVALENT.read_text())
    for entry in entries:
        if entry["was"] not in ast.unparse(ast.parse((PACKAGE / entry["module"]).read_text())):
            raise SystemExit(f"{EQUIVALENT}: {entry['module']} no longer has {entry['was']}: remove the entry")
    return {(entry["module"], entry["was"], entry["became"]): entry["why"] for entry in entries}


def figures(mutants: list[Mutant]) -> dict[str, Any]:
    """What is known of the mutants that were tried."""
    tried = [mutant for mutant in mutants if mutant.killed_by is not None or mutant.survived]
    kept = ("name", "killed_by", "equivalent", "diff")
    entries = [{name: getattr(mutant, name) for name in kept} for mutant in tried]
    return {"count": len(tried), "killed": sum(not mutant.survived for mutant in tried), "mutants": entries}


if __name__ == "__main__":
    main()
