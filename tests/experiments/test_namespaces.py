from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments import namespaces
from experiments.namespaces import Network
from pdadmm_g.errors import InputError


@pytest.fixture
def network() -> Iterator[Network]:
    pytest.importorskip("pyroute2")
    try:
        made = Network(3)
    except InputError as error:
        pytest.skip(str(error))
    opened = open_files()
    with made:
        yield made
    assert open_files() < opened


def devices() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_every_worker_has_a_link_of_its_own_and_sees_no_other(network: Network) -> None:
    before, files = devices(), open_files()
    with network.inside(1):
        assert devices() == {"lo", "link"}
    with network.inside(None):
        assert devices() >= {"lo", "hub", "port0", "port1", "port2"}
    assert devices() == before
    assert open_files() == files
    assert namespaces.throughput(network, 0, 2, 2**20) > 0


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
