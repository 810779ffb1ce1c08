"""The constants and sums of the theory, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from pdadmm_g.admm.diagnostics import Moves, boundary_shares, descent_constants, rate_term, rho_bound


def test_constants_of_the_descent_lemma() -> None:
    assert rho_bound(0.1, 0.5) == pytest.approx((math.sqrt(17) + 1) * 0.05)
    assert rho_bound(0.1, 2.0) == pytest.approx(4 * 0.1 * 4)
    assert descent_constants(0.5, 4.0, 3.0) == pytest.approx((0.25 - 2 * 0.25 * 9 / 4, 2 - 2 * 0.25 / 4 - 0.25))
    for lipschitz in (0.5, 2.0):  # the smaller of the two is 0 at the bound
        assert min(descent_constants(0.3, rho_bound(0.3, lipschitz), lipschitz)) == pytest.approx(0, abs=1e-12)


def test_the_term_of_the_rate() -> None:
    nu, rho, lipschitz = 0.5, 4.0, 1.0
    C1, C2 = descent_constants(nu, rho, lipschitz)
    moves = [
        Moves(p=p, W=W, b=b, z=z, q=q)
        for p, W, b, z, q in ((0, 2, 3, 5, 7), (11, 13, 17, 19, 23), (29, 31, 37, 41, 43))
    ]
    expected = (2 + 11 + 13 + 29 + 31) + nu / 2 * (3 + 17 + 37) + C1 * (5 + 19) + C2 * (7 + 23) + nu / 2 * 41
    assert rate_term(moves, nu=nu, rho=rho, lipschitz=lipschitz) == pytest.approx(expected)


def test_shares_of_the_lagrangian() -> None:
    rows = ([1.0, 2.0], [3.0, 5.0], [7.0, -1.0], [1.0, 4.0])
    gap, q, u, fz = (torch.tensor(values).view(1, 2, 1) for values in rows)
    share, squared, _ = boundary_shares(gap, q, u, fz, None, nu=0.5, rho=3.0)
    assert float(squared) == 5
    assert float(share) == pytest.approx(0.25 * (4 + 1) + (7 - 2) + 1.5 * 5)
    weights = torch.tensor([[[2.0], [1.0]]])
    share, squared, _ = boundary_shares(gap, q, u, fz, weights, nu=0.5, rho=3.0)
    assert float(squared) == 6
    assert float(share) == pytest.approx(0.25 * (8 + 1) + (14 - 2) + 1.5 * 6)
