"""Whatever is put in: a sound result or an InputError of one line."""

from __future__ import annotations

from hypothesis import strategies as st

from pdadmm_g import InputError

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3)
)


def refused(error: InputError) -> None:
    """It says something, in one short line."""
    assert 0 < len(str(error)) <= 520
    assert str(error).isprintable()
