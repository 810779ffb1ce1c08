from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

from pdadmm_g import InputError
from pdadmm_g.decoding import Check, Count, Number, Text, decoded, parsed, reading
from pdadmm_g.training.checkpoint import Description

Even = Annotated[Count, Check(lambda value: value % 2 == 0, "is odd")]


@dataclass(frozen=True)
class Record:
    name: Text
    size: Even
    best: Number


SOUND = {"name": "a", "size": 2, "best": -1e308}


def test_a_record_has_its_fields_and_leaves_others_out() -> None:
    assert decoded(Record, SOUND | {"more": 1}) == Record("a", 2, -1e308)
    assert decoded(Record, parsed('{"name": "a", "size": 2, "best": -Infinity}')).best == float("-inf")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 3}, "name is missing"),
        ({"size": True}, "size is missing or not a number"),
        ({"size": 2.0}, "size is not a count"),
        ({"size": 3}, "size is odd"),
        ({"best": float("nan")}, "best is missing or not a number"),
        ({"best": 10**400}, "best is missing or not a number"),
    ],
)
def test_the_field_that_is_wrong_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        decoded(Record, SOUND | change)
    for name in change:
        with pytest.raises(ValueError, match=f"^{name} is missing"):
            decoded(Record, {key: value for key, value in SOUND.items() if key != name})


@pytest.mark.parametrize("text", ["[]", "[" * 100_000, "1", "{", "9" * 5000, "\ud800"])
def test_text_that_is_no_record_is_one_line(text: str) -> None:
    with (
        pytest.raises(InputError, match=r"^file: cannot read it: .*; start over$"),
        reading(Path("file"), "it", "; start over"),
    ):
        decoded(Record, parsed(text))


NOW = (
    '{"stage": 1, "epoch": 5, "depth": 2, "round": 0, "sizes": [6, 6, 5, 2], "chosen": {"directed": "symmetric", '
    '"target": "classification", "augment": "average", "hops": 16, "teleport": 0.2, "normalize": "unit", '
    '"components": null, '
    '"weight_decay": 0.1, "unlabelled": 0, "drop_entries": null, "sharpness": null}, "worker_epochs": 5, '
    '"best_score": [-Infinity, -Infinity], "best_epoch": 0, "scale": 4.1, "rate": Infinity, "shards": 1, '
    '"total_epochs": 5, "history_bytes": 2000, "settings": {"stages": [2], "teleport": 0.2}, "data": "digest", '
    '"reasons": []}'
)
#: Before nodes without labels could teach.
BEFORE = (
    '{"stage": 1, "epoch": 5, "depth": 2, "sizes": [6, 6, 5, 2], "chosen": {"augment": "average", "hops": 16, '
    '"normalize": "unit", "weight_decay": 0.1}, "rho": 5.0, "worker_epochs": 5, "schedule": {"epochs": 5, "start": '
    '5.0, "before": Infinity}, "best_score": [-Infinity, -Infinity], "best_epoch": 0, "scale": 4.1, '
    '"rate": Infinity, "total_epochs": 5, "history_bytes": 2000, "settings": {"stages": [2], "teleport": 0.2}, '
    '"data": "digest"}'
)


@pytest.mark.parametrize("text", [NOW, BEFORE], ids=["now", "before rounds"])
def test_descriptions_of_checkpoints_keep_their_format(tmp_path: Path, text: str) -> None:
    """Those that users have are to be read for good."""
    (tmp_path / "meta.json").write_text(text)
    description = Description.read(tmp_path)
    assert (description.stage, description.sizes) == (1, [6, 6, 5, 2])
    description.write(tmp_path)
    written = (tmp_path / "meta.json").read_text()
    assert json.loads(written) == json.loads(NOW)
    assert text == BEFORE or written == text
    assert sorted(json.loads(NOW)) == sorted(vars(description))
