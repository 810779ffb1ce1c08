"""The sum of the theory's rate, by hand. What the shares add up to: test_theory."""

from __future__ import annotations

import pytest
import torch

from pdadmm_g.admm.diagnostics import Moves, descent_constants, rate_term


def test_the_term_of_the_rate() -> None:
    nu, rho, lipschitz = 0.5, 4.0, 1.0
    C1, C2 = descent_constants(nu, rho, lipschitz)
    moves = Moves(*torch.tensor([(0, 2, 3, 5, 7), (11, 13, 17, 19, 23), (29, 31, 37, 41, 43)]).T)
    expected = (2 + 11 + 13 + 29 + 31) + nu / 2 * (3 + 17 + 37) + C1 * (5 + 19) + C2 * (7 + 23) + nu / 2 * 41
    assert rate_term(moves, nu=nu, rho=rho, lipschitz=lipschitz) == pytest.approx(expected)
