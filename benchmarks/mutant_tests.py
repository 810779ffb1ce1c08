"""Tests on a copy of the package, each try in a process of its own that begins with the heavy imports done."""

from __future__ import annotations

import compileall
import contextlib
import hashlib
import heapq
import importlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.soak.trial import MARK, kill_marked

from . import reached

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "pdadmm_g"
#: What a process of the package or of its tests would import first, seconds each time.
HEAVY = (
    "torch",
    "torch_geometric",
    "sklearn.base",
    "scipy.sparse",
    "pandas",
    "networkx",
    "pyarrow.parquet",
    "hypothesis",
)
#: The plain runner: one process, no limits but ours, the settings of pyproject.toml otherwise.
OPTIONS = ("-o", "addopts=", "--strict-markers", "--import-mode=importlib", "-q", "-x", "-p", "no:cacheprovider",
           "-p", "no:xdist", "-p", "no:timeout")  # fmt: skip
#: Seconds to collect tests, for a test that is watched, and for one on a mutant, with what it took then.
COLLECTING, WATCHED, LEAST, TIMES = 300, 600, 20, 10


@dataclass
class Seen:
    """A test that passes on the original: what it takes, whether it starts processes, the lines that it reaches."""

    name: str
    seconds: float
    processes: bool
    lines: dict[str, list[int]] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]

    @property
    def limit(self) -> int:
        return round(LEAST + TIMES * self.seconds)


def preload() -> None:
    """The heavy imports, on the CPU alone, as where there is no GPU."""
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    for name in HEAVY:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def copy_package(folder: Path, original: Path | None = None) -> Path:
    """The package in a new folder; linked to the files of an original that nobody writes to, with their bytecode."""
    package = folder / "pdadmm_g"
    if original is not None:
        shutil.copytree(original, package, copy_function=os.link)
        return package
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(package, quiet=1)
    return package


class Runner:
    """A plugin of pytest: the chosen tests in their order, each within its limit, and how they went."""

    def __init__(self, chosen: dict[str, int] | None, out: Path) -> None:
        self.chosen = chosen
        self.out = out
        self.failed: str | None = None
        self.seconds: dict[str, float] = {}
        self.skipped: set[str] = set()

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "timeout(seconds): a limit of another plugin")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.chosen is not None:
            order = {name: place for place, name in enumerate(self.chosen)}
            items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        reached.current[0] = nodeid
        signal.alarm(self.chosen[nodeid] if self.chosen else WATCHED)
        (self.out / "at").write_text(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.skipped:
            self.skipped.add(report.nodeid)
        if report.failed:
            self.failed = report.nodeid
            self.seconds.pop(report.nodeid)

    def pytest_runtest_logfinish(self) -> None:
        """What is known so far: the next test may end the process."""
        report = {"failed": self.failed, "seconds": self.seconds, "skipped": sorted(self.skipped)}
        (self.out / "report.json").write_text(json.dumps(report))


@dataclass
class Run:
    """Tests on a package, in a process that leaves its report in the folder ``out``."""

    package: Path
    out: Path
    files: list[str]
    #: Those of the files that are run, in this order, and the seconds that each may take; None: all.
    chosen: dict[str, int] | None = None
    watched: bool = False

    def start(self) -> int:
        """Start the process; its id."""
        (self.out / "tmp").mkdir(parents=True)
        (self.out / "reached").mkdir()
        if pid := os.fork():
            return pid
        os.setsid()
        code = 70
        try:
            with (self.out / "log").open("w") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            code = self._run()
        finally:
            os._exit(code)

    def _run(self) -> int:
        signal.alarm(COLLECTING)
        path = os.pathsep.join([str(self.package.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {"PYTHONPATH": path, "TMPDIR": str(self.out / "tmp"), MARK: str(self.out)}
        if self.watched:
            environment |= {reached.OUT: str(self.out / "reached"), reached.WATCHED: str(self.package)}
        os.environ.update(environment)
        for name in [name for name in sys.modules if name.split(".")[0] == "pdadmm_g"]:
            del sys.modules[name]
        sys.path.insert(0, str(self.package.parent))
        (self.out / "pid").write_text(str(os.getpid()))
        reached.start()
        runner = Runner(self.chosen, self.out)
        more = [f"--basetemp={self.out / 'tmp' / 'pytest'}", *(() if self.chosen else ("--maxfail=1000",))]
        return int(pytest.main([*OPTIONS, *more, *self.files], plugins=[runner]))

    def end(self, status: int) -> str | None:
        """Clear up; the test that failed, with the reason where the process was ended, None if all passed."""
        kill_marked(str(self.out))
        shutil.rmtree(self.out / "tmp", ignore_errors=True)
        at = (self.out / "at").read_text() if (self.out / "at").exists() else "collecting"
        if os.WIFSIGNALED(status):
            return f"{at} (signal {os.WTERMSIG(status)})"
        report = self.out / "report.json"
        failed = json.loads(report.read_text())["failed"] if report.exists() else None
        return failed or (at if os.WEXITSTATUS(status) else None)


def in_parallel(
    waiting: list[Any], jobs: int, begin: Callable[[Any], Run | None], end: Callable[[Any, str | None], None]
) -> None:
    """Take the least of what is waiting, ``jobs`` at a time; ``end`` may add to it."""
    running: dict[int, tuple[Any, Run]] = {}
    heapq.heapify(waiting)
    while waiting or running:
        while waiting and len(running) < jobs:
            entry = heapq.heappop(waiting)
            if (run := begin(entry)) is not None:
                running[run.start()] = entry, run
        if running:
            pid, status = os.wait()
            entry, run = running.pop(pid)
            end(entry, run.end(status))


def digest(paths: Sequence[Path]) -> str:
    """Of the content of files."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]


def watch(files: Sequence[Path], sources: Sequence[Path], folder: Path, jobs: int, known: Path) -> list[Seen]:
    """Every test of the files that passes, with the lines of the sources that it reaches; ``known`` keeps them."""
    kept: dict[str, Any] = json.loads(known.read_text()) if known.exists() else {}
    keys = {str(path.relative_to(ROOT)): f"{digest(sources)} {digest([path])}" for path in files}
    package = copy_package(folder / "watched")
    (package.parent / "sitecustomize.py").write_text(reached.SITE)
    modules = {str(path.relative_to(PACKAGE)) for path in sources}

    def begin(name: str) -> Run:
        return Run(package, folder / name.replace("/", "-"), [name], watched=True)

    def end(name: str, failed: str | None) -> None:
        tests = seen_lines(folder / name.replace("/", "-"), modules)
        kept[name] = {"key": keys[name], "tests": [asdict(test) for test in tests]}
        known.parent.mkdir(parents=True, exist_ok=True)
        known.write_text(json.dumps(kept))
        shutil.rmtree(folder / name.replace("/", "-"))
        print(f"{name}: {len(tests)} tests pass{f', but not {failed}' if failed else ''}", flush=True)

    in_parallel([name for name, key in keys.items() if kept.get(name, {}).get("key") != key], jobs, begin, end)
    return [Seen(**test) for name in keys for test in kept[name]["tests"]]


def seen_lines(out: Path, modules: set[str]) -> list[Seen]:
    """What a watched run says of each test that passed."""
    report = {"seconds": {}, "skipped": []}
    if (out / "report.json").exists():
        report = json.loads((out / "report.json").read_text())
    passed = {name: round(seconds, 3) for name, seconds in report["seconds"].items() if name not in report["skipped"]}
    tests = {name: Seen(name, seconds, processes=False) for name, seconds in passed.items()}
    own = (out / "pid").read_text()
    for process in (out / "reached").iterdir():
        for entry in process.read_text().splitlines():
            module, line, name = entry.split("\t", 2)
            if name in tests:
                tests[name].processes |= process.name != own
                if module in modules:
                    tests[name].lines.setdefault(module, []).append(int(line))
    return list(tests.values())
