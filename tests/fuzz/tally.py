"""How the cases of a target ended, and what was found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: A case is accepted with a sound result, refused in one line, or violates the property.
ENDINGS = ("accepted", "refused", "violation")


class Tally:
    """Counts ``wanted`` cases and writes what was seen to ``report`` as it goes: a case may end the process."""

    def __init__(self, wanted: int, report: Path) -> None:
        self.wanted = wanted
        self.report = report
        self.counts = {"cases": 0, **dict.fromkeys(ENDINGS, 0)}
        self.found: dict[str, dict[str, Any]] = {}

    @property
    def complete(self) -> bool:
        """Were all cases seen?"""
        return self.counts["cases"] >= self.wanted

    def add(self, ending: str, what: str, **case: Any) -> None:
        """One more case. Of a violation the first ``case`` is kept, by which it can be repeated."""
        self.counts["cases"] += 1
        self.counts[ending] += 1
        if ending == "violation":
            self.found.setdefault(what, {**case, "times": 0})["times"] += 1
        if ending == "violation" or self.counts["cases"] % 100 == 0 or self.complete:
            self.report.write_text(json.dumps({**self.counts, "found": self.found}))
