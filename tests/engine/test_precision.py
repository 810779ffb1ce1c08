"""Copies in shared memory: what was overwritten cannot be read."""

from __future__ import annotations

import torch

from pdadmm_g.engine.precision import Workspace

X = torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(0))


def workspace(precision: str = "fp32", solver: str = "linearized") -> Workspace:
    return Workspace(precision, solver, torch.empty(0))


def test_rounded_copies_serve_the_group_that_made_them() -> None:
    work = workspace("bf16")
    copy = work.copy_of("r", 1, X)
    assert copy is not None
    copy.copy_(X)
    assert work.factor("r", 1, X) is copy
    other = 2 * X
    assert torch.equal(work.factor("r", 0, other), other.bfloat16()), "another group gets its own"
    assert work.kept_copy("r", 1) is None, "whose copy took the place of the first"


def test_what_the_p_step_rounds_is_not_kept_for_the_w_step() -> None:
    """r moves between the two."""
    work = workspace("bf16")
    work.rounded("r", X)
    moved = X + 1
    assert torch.equal(work.factor("r", 0, moved), moved.bfloat16())
