"""NaN or infinity in any variable at any worker is caught in the same epoch and named, and the best model is kept.

On three workers: test_mesh.
"""

from __future__ import annotations

from helpers import poison
from pdadmm_g.engine.team import Team


def test_one_worker() -> None:
    poison.check([poison.run(Team(), case) for case in poison.cases()])
