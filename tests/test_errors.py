from __future__ import annotations

from pdadmm_g import InputError


def test_messages_are_one_printable_line() -> None:
    assert str(InputError("a\n\tb\x1b[31mc")) == "a b [31mc"
