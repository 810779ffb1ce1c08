"""What processes tell each other: errors that all raise, sums over rows, and whom a line has lost."""

from __future__ import annotations

import pytest
import torch

from helpers.lines import ThreadLine, on_threads
from pdadmm_g.engine.team import SHORT, RowSums, agreed, same
from pdadmm_g.errors import InputError


def test_all_raise_what_the_first_to_fail_found() -> None:
    def check(line: ThreadLine) -> str:
        def action() -> int:
            if line.rank in (1, 2):
                raise InputError(f"shard-{line.rank + 1}-of-4: is missing é" + "." * 600)
            return line.rank

        with pytest.raises(InputError) as caught:
            agreed(line, action)
        return str(caught.value)

    messages = on_threads(4, check)
    assert messages == [messages[0]] * 4
    assert messages[0].startswith("shard-2-of-4: is missing é...")


def test_a_process_that_sees_another_file_is_named_by_all() -> None:
    def check(line: ThreadLine) -> str:
        same(line, "00ff", "F/description.json")
        with pytest.raises(InputError) as caught:
            same(line, "00ff" if line.rank != 2 else "00fe", "F/description.json")
        return str(caught.value)

    expected = "F/description.json: process 2 sees another file than process 0: give all the same folder"
    assert on_threads(3, check) == [expected] * 3


@pytest.mark.parametrize("size", [SHORT, SHORT + 2])
def test_short_sums_are_gathered_and_long_ones_go_round(size: int) -> None:
    """To two others, or twice two thirds of it around a ring."""

    def check(line: ThreadLine) -> int:
        part = torch.arange(size, dtype=torch.float32)
        assert torch.equal(RowSums(line).sum(part.clone()), 3 * part)  # type: ignore[arg-type]
        assert line.traffic.wait_seconds > 0
        return line.traffic.bytes_sent

    assert on_threads(3, check) == [2 * 4 * size if size == SHORT else 2 * 4 * size * 2 // 3] * 3
