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


def buckets(network: Network) -> list[int]:
    """The rates of the token buckets at all ends, in bytes per second."""
    found = []
    for kernel, device in network._ends:
        for discipline in kernel.get_qdiscs(device):
            if discipline.get_attr("TCA_KIND") == "tbf":
                found.append(discipline.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")["rate"])
    return found


def test_every_worker_has_a_link_of_its_own_and_sees_no_other(network: Network) -> None:
    before, files = devices(), open_files()
    with network.inside(1):
        assert devices() == {"lo", "link"}
    with network.inside(None):
        assert devices() >= {"lo", "hub", "port0", "port1", "port2"}
    assert devices() == before
    assert open_files() == files
    assert namespaces.throughput(network, 0, 2, 2**20) > 0


def test_both_ends_of_all_links_are_limited_anew_and_set_free(network: Network) -> None:
    assert buckets(network) == []
    network.limit(1e8)
    assert buckets(network) == [12_500_000] * 6
    network.limit(1e9)
    assert buckets(network) == [125_000_000] * 6
    network.limit(None)
    network.limit(None)
    assert buckets(network) == []


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
