"""Training over slow links: seconds per epoch, and to the accuracy that Adam reaches, against the speed of the links.

Every process is in a network namespace of its own, behind a link of 100 Mbit/s to as fast as the machine is
(:mod:`.namespaces`); :mod:`.paced` has what they do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from pdadmm_g.utils import usable_cores

from . import learning, paced
from .epochs import Size
from .learning import CLUSTERS, SAME_START, epochs_to
from .namespaces import SPEEDS, Network
from .paced import ADMM, HALF, SENDS
from .results import Results, Row, arranged, failures, markdown
from .speedup import ADAM, GPIPE, measure, spread

METHODS = (ADAM, HALF, GPIPE, *ADMM)
#: What epochs are timed on: their length does not depend on it.
RANDOM = "random"


def cases(workers: int, depth: int) -> list[Row]:
    """Every method as it is usual; pdADMM-G as a chain, and unquantized and at the fewest bits as two."""
    shapes: list[tuple[str, int, int]] = [(SENDS, workers, 1), (ADAM, 1, workers), (HALF, 1, workers)]
    shapes.append((GPIPE, workers, 1))
    shapes += [(method, workers, 1) for method in ADMM]
    shapes += [(method, workers // 2, 2) for method in (next(iter(ADMM)), list(ADMM)[-1])]
    return [
        {"dataset": RANDOM, "method": method, "depth": depth, "workers": chain, "shards": shards}
        for method, chain, shards in dict.fromkeys(shapes)
    ]


def run(results: Results, *, workers: int, depth: int, size: Size, repeats: int) -> Iterator[Row]:
    """Seconds per epoch of all cases at all speeds, ``repeats`` times."""
    for repeat in range(repeats):
        missing = []
        for case in cases(workers, depth):
            rows = [results.find(**case, link=link, repeat=repeat) for link in SPEEDS]
            known = [row for row in rows if row is not None and row["size"] == size and "error" not in row]
            if len(known) == len(SPEEDS):
                yield from known
            else:
                missing.append(case)
        if missing:
            order = {"size": size, "cases": missing, "links": list(SPEEDS)}
            yield from _measured(results, workers, repeat, order)


def _measured(results: Results, workers: int, repeat: int, order: Row) -> list[Row]:
    """Start the processes, each behind its link, and turn the links as they ask."""
    with Network(workers) as network:

        def turn(folder: Path, note: Row) -> bool:
            if "turn" not in note:
                return False
            network.limit(SPEEDS[note["link"]])
            (folder / f"turn-{note['turn']}").touch()
            return True

        return measure(
            results, paced.__name__, workers, repeat, order, answer=turn, interface="link", inside=network.inside
        )


def learn(results: Results, *, device: str, depth: int, size: Size, epochs: int, seeds: Sequence[int]) -> Iterator[Row]:
    """The validation accuracy of each method after every epoch, for each seed."""
    chosen: dict[str, Row] = {}
    for repeat, seed in enumerate(seeds):
        rows, missing = [], []
        for method in learning.METHODS:
            case = {"dataset": CLUSTERS, "method": method, "depth": depth}
            row = results.find(**case, repeat=repeat)
            if row is not None and row["size"] == size and row["seeds"] == [seed]:
                rows.append(row)
            else:
                missing.append(case)
        chosen = {row["method"]: row["settings"] for row in rows} | chosen
        if missing:
            order = {"size": size, "cases": missing, "epochs": epochs, "seed": seed, "chosen": chosen, "device": device}
            processes = min(16, usable_cores()) if device == "cpu" else 1
            rows += measure(results, learning.__name__, processes, repeat, order)
            chosen = {row["method"]: row["settings"] for row in rows} | chosen
        yield from rows


def render(rows: Sequence[Row]) -> str:
    """Markdown: seconds per epoch, epochs to the accuracy of Adam, and seconds to it."""
    timed = arranged([row for row in rows if row["dataset"] == RANDOM], method=METHODS)
    learnt = [row for row in rows if row["dataset"] == CLUSTERS]
    tables = [_per_epoch(timed)]
    if learnt:
        tables += [_accuracies(learnt), _to_accuracy(timed, learnt)]
    return "\n".join(tables)


def _per_epoch(timed: Sequence[Row]) -> str:
    """Seconds per epoch at each speed, median, least and greatest of the runs, and what was sent."""
    links, found = _by_case(timed)
    lines = []
    for (method, chain, shards), by_link in found.items():
        sent = statistics.median(row["megabytes"] for known in by_link.values() for row in known)
        entries = [spread([row["seconds"] for row in by_link.get(link, [])]) for link in links]
        lines.append([method, f"{chain} x {shards}", f"{sent:.3g}", *entries])
    table = markdown(["seconds per epoch", "chain x shards", "MB per epoch", *links], lines)
    return table + "".join(f"{line}\n" for line in _carried(timed)) + failures(timed)


def _by_case(timed: Sequence[Row]) -> tuple[list[str], dict[tuple[str, int, int], dict[str, list[Row]]]]:
    """The speeds that were measured, and the rows of each method and mesh by speed."""
    links = [link for link in SPEEDS if any(row["link"] == link for row in timed)]
    found: dict[tuple[str, int, int], dict[str, list[Row]]] = {}
    for row in timed:
        if "seconds" in row:
            case = (row["method"], row["workers"], row["shards"])
            found.setdefault(case, {}).setdefault(row["link"], []).append(row)
    return links, found


def _accuracies(learnt: Sequence[Row]) -> str:
    """What each method reached, and after how many epochs it had what Adam reached, from either start."""
    epochs = max(len(row["curve"]) for row in learnt)
    titles = ["", f"best of {epochs} epochs", "epochs to Adam's accuracy", "to that of Adam from pdADMM-G's start"]
    lines = []
    for method in learning.METHODS:
        best = [max(row["curve"]) for row in learnt if row["method"] == method]
        entries = [spread(best, ".3f"), *(_epochs(learnt, method, goal) for goal in (ADAM, SAME_START))]
        lines.append([method, *entries])
    return markdown(titles, lines)


def _epochs(learnt: Sequence[Row], method: str, goal: str) -> str:
    """The epochs that a method took to a goal, or how often it was not reached."""
    found = epochs_to(learnt, method, goal)
    reached = [count for count in found if count is not None]
    if len(reached) == len(found):
        return spread(reached, ".0f")
    return f"{spread(reached, '.0f')}, not reached by {len(found) - len(reached)} of {len(found)}"


def _to_accuracy(timed: Sequence[Row], learnt: Sequence[Row]) -> str:
    """Seconds to the accuracy of Adam: epochs, the median over the seeds, times the median of seconds per epoch.

    Where and how gradients travel changes nothing of what Adam learns, but for the rounding to float16: all its rows
    have the epochs of the start from which it takes fewer.
    """
    links, found = _by_case(timed)
    lines = []
    for (method, chain, shards), by_link in found.items():
        epochs = min(_median_epochs(learnt, name) for name in ((method,) if method in ADMM else (ADAM, SAME_START)))
        entries = ["not reached", *["-"] * len(links)]
        if epochs < math.inf:
            times = [[row["seconds"] for row in by_link.get(link, [])] for link in links]
            entries = [f"{epochs:.0f}", *(f"{epochs * statistics.median(part):.3g}" if part else "-" for part in times)]
        lines.append([method, f"{chain} x {shards}", *entries])
    return markdown(["seconds to Adam's accuracy", "chain x shards", "epochs", *links], lines)


def _median_epochs(learnt: Sequence[Row], method: str) -> float:
    """Epochs to the accuracy of Adam, the median over the seeds; infinite if one of them did not reach it."""
    counts = epochs_to(learnt, method, ADAM)
    return statistics.median(math.inf if None in counts else count or 0 for count in counts) if counts else math.inf


def _carried(rows: Sequence[Row]) -> list[str]:
    """A line on what the links carried when all processes sent at once."""
    carried: dict[str, list[float]] = {}
    for row in rows:
        if "mbit_per_second" in row:
            carried.setdefault(row["link"], []).append(row["mbit_per_second"])
    parts = [f"{link}: {spread(carried[link], '.0f')}" for link in SPEEDS if link in carried]
    return ["\nMbit/s that every link carried, all at once, in each direction: " + "; ".join(parts) + "."] * bool(parts)


def figure(rows: Sequence[Row], path: Path) -> None:
    """Seconds per epoch against the speed of the links, one line per method and mesh."""
    from .figures import new_figure, save_figure

    canvas, axes = new_figure(1, 1, height=5.0)
    axis = axes[0][0]
    timed = arranged([row for row in rows if row["dataset"] == RANDOM and "seconds" in row], method=METHODS)
    for method, chain, shards in dict.fromkeys((row["method"], row["workers"], row["shards"]) for row in timed):
        own = [row for row in timed if (row["method"], row["workers"], row["shards"]) == (method, chain, shards)]
        heights = [[row["seconds"] for row in own if row["link"] == link] for link in SPEEDS]
        points = [(place, statistics.median(seconds)) for place, seconds in enumerate(heights) if seconds]
        style = "-" if method in ADMM else "--"
        name = f"{method}, {chain} x {shards}" if method in ADMM else method
        axis.plot(*zip(*points, strict=True), style, marker="o", markersize=4, linewidth=1.6, label=name)
    axis.set_xticks(range(len(SPEEDS)), list(SPEEDS))
    axis.set_yscale("log")
    axis.set_xlabel("speed of every link")
    axis.set_ylabel("seconds per epoch")
    axis.legend(frameon=False, fontsize=8)
    save_figure(canvas, path)
