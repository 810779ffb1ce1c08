from __future__ import annotations

import errno
import sys

import pytest

from experiments import namespaces
from experiments.namespaces import Network
from pdadmm_g.errors import InputError


def test_what_is_missing_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyroute2", None)
        with pytest.raises(InputError, match="pip install pyroute2"):
            Network(2)
    pytest.importorskip("pyroute2")

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "unshare: Operation not permitted")

    monkeypatch.setattr(namespaces, "_call", refuse)
    with pytest.raises(InputError, match="Linux and root needed.*unshare: Operation not permitted"):
        Network(2)
