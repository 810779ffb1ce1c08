from __future__ import annotations

from pdadmm_g import Status


def test_every_status_has_a_sentence_of_advice() -> None:
    assert {status.name for status in Status} == {
        "CONVERGED", "MAX_EPOCHS", "EARLY_STOPPED", "DIVERGED", "NON_FINITE", "INTERRUPTED", "STOPPED", "PEER_LOST",
    }  # fmt: skip
    for status in Status:
        assert len(status.advice) > 20
        assert status.advice.endswith(".")
