"""Memory that knows what it holds: what was overwritten cannot be read."""

from __future__ import annotations

import pytest
import torch

from pdadmm_g.engine.workspace import Workspace

X = torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(0))


def workspace(precision: str = "fp32", solver: str = "linearized") -> Workspace:
    return Workspace(precision, solver, torch.empty(0))


def test_what_was_written_is_there_until_it_is_overwritten() -> None:
    work = workspace()
    work.write("gWt", 0, X.shape).copy_(X)
    work.check("gWt", 0)
    work.write("pGt", 0, X.shape)
    with pytest.raises(AssertionError, match="gWt of group 0 was overwritten by pGt of group 0"):
        work.check("gWt", 0)


def test_another_group_is_another_content() -> None:
    work = workspace()
    work.write("g", 2, X.shape)
    with pytest.raises(AssertionError, match="g of group 1 was overwritten by g of group 2"):
        work.check("g", 1)
    with pytest.raises(AssertionError, match="pGt of group 1 was never written"):
        work.check("pGt", 1)


def test_gradient_and_product_do_not_share_memory() -> None:
    work = workspace()
    g, gWt = work.write("g", 0, X.shape), work.write("gWt", 0, X.shape)
    assert g.untyped_storage().data_ptr() != gWt.untyped_storage().data_ptr()
    work.check("g", 0)


def test_what_a_group_has_in_memory_of_its_own_is_there_until_the_next() -> None:
    work = workspace()
    assert work.adopt("g", 0, X) is X
    work.check("g", 0)
    work.write("g", 1, X.shape)
    with pytest.raises(AssertionError, match="g of group 0 was overwritten by g of group 1"):
        work.check("g", 0)


def test_in_full_precision_nothing_is_copied() -> None:
    work = workspace()
    assert work.copy_of("r", 0, X) is None
    assert work.factor("r", 0, X) is X
    assert work.rounded("r", X) is X


def test_rounded_copies_serve_the_group_that_made_them() -> None:
    work = workspace("bf16")
    copy = work.copy_of("r", 1, X)
    assert copy is not None
    copy.copy_(X)
    assert work.factor("r", 1, X) is copy
    other = 2 * X
    assert torch.equal(work.factor("r", 0, other), other.bfloat16()), "another group gets its own"
    assert work.kept_copy("r", 1, X) is None, "whose copy took the place of the first"


def test_a_copy_is_not_valid_once_its_group_is_done() -> None:
    work = workspace("bf16")
    copy = work.copy_of("r", 0, X)
    assert copy is not None
    copy.copy_(X)
    work.done(0)
    moved = X + 1
    assert torch.equal(work.factor("r", 0, moved), moved.bfloat16())


def test_what_the_p_step_rounds_is_not_kept_for_the_w_step() -> None:
    """r moves between the two."""
    work = workspace("bf16")
    work.rounded("r", X)
    moved = X + 1
    assert torch.equal(work.factor("r", 0, moved), moved.bfloat16())


def test_the_exact_solver_rounds_in_its_products() -> None:
    assert workspace("bf16", "exact").copy_of("p", 0, X) is None
