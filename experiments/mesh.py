"""Which mesh? Time per epoch for every way to share layers and rows among so many processes.

Beside each mesh of pdADMM-G the bare products of the same work on the same mesh, one after the other, in every repeat:
what a machine delivers differs between its cores and from minute to minute, and so does what the algorithm can reach.
"""

from __future__ import annotations

from collections.abc import Sequence

from .results import Row, arranged, failures, markdown
from .speedup import ADAM, BARE, GPIPE, METHODS, spread

#: One process has at most so many rows: more take as much longer, and minutes.
MOST_ROWS_ALONE = 5000
ADMM = ("pdADMM-G",)
#: Method, rows, length of the chain and number of shards.
Case = tuple[str, int, int, int]
#: Seconds per epoch of each case, by repeat.
Times = dict[Case, dict[int, float]]


def shapes(count: int) -> list[tuple[int, int]]:
    """All ways to share: length of the chain and number of shards, the longest chain first."""
    return [(chain, count // chain) for chain in range(count, 0, -1) if count % chain == 0]


def cases(counts: Sequence[int], rows: Sequence[int], depth: int) -> list[Row]:
    """One process, and every mesh of so many, with data parallel and pipelined Adam on as many.

    Of many rows, which take long, the chain and two of half its length.
    """

    def case(method: str, chain: int, shards: int, number: int) -> Row:
        return {"method": method, "depth": depth, "workers": chain, "shards": shards, "rows": number}

    few = dict.fromkeys(min(number, MOST_ROWS_ALONE) for number in rows)
    result = [case(method, 1, 1, number) for number in few for method in (BARE, *ADMM, ADAM)]
    for count in counts:
        for number in rows:
            for chain, shards in shapes(count):
                if chain <= depth and (number <= MOST_ROWS_ALONE or shards <= 2):
                    result += [case(method, chain, shards, number) for method in (BARE, *ADMM)]
            result += [case(ADAM, 1, count, number), case(GPIPE, count, 1, number)]
    return result


def render(rows: Sequence[Row]) -> str:
    """Markdown: seconds, the speedup over one process of the same run, and its share of that of bare products."""
    known = [row for row in arranged(rows, method=list(METHODS)) if "seconds" in row]
    times: Times = {}
    for row in known:
        case = (row["method"], row["rows"], row["workers"], row["shards"])
        times.setdefault(case, {})[row["repeat"]] = row["seconds"]
    titles = ["processes", "rows", "chain x shards", "", "runs", "seconds per epoch", "speedup"]
    lines = []
    for case in sorted(times, key=_place):
        method, number, chain, shards = case
        gain = _speedups(times, case)
        bare = _speedups(times, (BARE, *case[1:])) if method in ADMM else {}
        shares = [gain[repeat] / bare[repeat] for repeat in gain if repeat in bare]
        entries = [f"{chain * shards}", f"{number}", f"{chain} x {shards}", method, f"{len(times[case])}"]
        entries += [spread(list(times[case].values()), ".3g"), spread(list(gain.values()), ".2f", " x")]
        lines.append([*entries, spread(shares, ".2f")])
    return markdown([*titles, "of that of bare products"], lines) + failures(rows)


def _place(case: Case) -> tuple[int, int, bool, int, int]:
    """In the table: by processes and rows, Adam below all meshes, these from long to wide."""
    method, number, chain, shards = case
    return chain * shards, number, method in (ADAM, GPIPE), -chain, list(METHODS).index(method)


def _speedups(times: Times, case: Case) -> dict[int, float]:
    """Over one process of the same repeat, by repeat; that of fewer rows takes as much longer as there are more."""
    method, number, chain, shards = case
    if chain * shards == 1:
        return {}
    few = min(number, MOST_ROWS_ALONE)
    alone = times.get((ADAM if method == GPIPE else method, few, 1, 1), {})
    return {
        repeat: alone[repeat] * number / few / seconds
        for repeat, seconds in times.get(case, {}).items()
        if repeat in alone
    }
