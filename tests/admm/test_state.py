from __future__ import annotations

import torch

from pdadmm_g.admm.activations import ACTIVATIONS
from pdadmm_g.admm.state import Quantization, Weights, forward_state


def test_u_is_always_kept_where_the_next_layer_is_elsewhere() -> None:
    weights = [Weights(torch.eye(3), torch.zeros(3), torch.zeros(3, 3)) for _ in range(3)]
    for last, kept in ((True, [False, False]), (False, [False, False, True])):
        _, boundaries = forward_state(
            weights, torch.ones(2, 3), ACTIVATIONS["relu"], Quantization(), last=last, keep_u=False
        )
        assert [boundary.u is not None for boundary in boundaries] == kept
