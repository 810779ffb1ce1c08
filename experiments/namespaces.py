"""A network of this machine's own: for every worker a network namespace, and a link of a given speed to a bridge.

    worker 0 [link] ======== [port0] \\
    worker 1 [link] ======== [port1] -- bridge
    ...                              /

A link is a pair of virtual devices. A token bucket at either end limits what leaves there, so that each direction of
each link has the speed. The namespaces have no names: they are held by open files of this process and end with it,
however it ends. Linux, as root, with pyroute2: the commands ``ip`` and ``tc`` are not needed.

``python -m experiments.namespaces`` tries it: one line for each speed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any

from pdadmm_g.errors import InputError

#: Bits per second of the links that are compared, slowest first; None is as fast as the machine.
SPEEDS: dict[str, float | None] = {"100 Mbit/s": 1e8, "1 Gbit/s": 1e9, "10 Gbit/s": 1e10, "unlimited": None}

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_ROOT = 0xFFFFFFFF  # TC_H_ROOT: what leaves a device passes here
#: Nobody outside sees these addresses.
_ADDRESS, _PREFIX = "10.99.{}.{}", 16


class Network:
    """Namespaces and links for so many workers, until it is closed."""

    def __init__(self, workers: int) -> None:
        self._stack = ExitStack()
        #: What limits can be set on: a connection to the kernel, and the number of a device that it sees.
        self._ends: list[tuple[Any, int]] = []
        self._leaves: list[int] = []
        try:
            with _translated():
                self._hub = self._namespace()
                self._connect(workers)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Network:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def inside(self, worker: int | None) -> Iterator[None]:
        """This thread in the namespace of a worker, or of the bridge: so are its new sockets and processes."""
        home = _own_namespace()
        try:
            _call("setns", self._hub if worker is None else self._leaves[worker], _NEW_NETWORK)
            try:
                yield
            finally:
                _call("setns", home, _NEW_NETWORK)
        finally:
            os.close(home)

    def limit(self, bits_per_second: float | None) -> None:
        """Give every direction of every link this speed; None takes the limits away."""
        with _translated():
            for kernel, device in self._ends:
                if bits_per_second is None:
                    _unlimited(kernel, device)
                else:
                    kernel.tc("replace", "tbf", index=device, handle=0x10000, **bucket(bits_per_second))

    def address(self, worker: int) -> str:
        """Where the others find a worker."""
        return _ADDRESS.format(worker // 250, worker % 250 + 1)

    def close(self) -> None:
        """Take everything down: a namespace that nobody holds goes, and its devices with it."""
        self._stack.close()

    def _namespace(self) -> int:
        """A new one, as an open file."""
        home = _own_namespace()
        try:
            _call("unshare", _NEW_NETWORK)
            try:
                new = _own_namespace()
            finally:
                _call("setns", home, _NEW_NETWORK)
        finally:
            os.close(home)
        self._stack.callback(os.close, new)
        return new

    def _connect(self, workers: int) -> None:
        hub = self._kernel(None)
        hub.link("add", ifname="hub", kind="bridge")
        bridge = _up(hub, "hub")
        for worker in range(workers):
            self._leaves.append(self._namespace())
            peer = {"ifname": "link", "net_ns_fd": self._leaves[worker]}
            hub.link("add", ifname=f"port{worker}", kind="veth", peer=peer)
            kernel = self._kernel(worker)
            self._ends.append((kernel, _up(kernel, "link", self.address(worker))))
            self._ends.append((hub, _up(hub, f"port{worker}")))
            hub.link("set", index=self._ends[-1][1], master=bridge)

    def _kernel(self, worker: int | None) -> Any:
        """A connection to the kernel that sees the devices of that namespace, where the loopback is up."""
        from pyroute2 import IPRoute

        with self.inside(worker):
            kernel = self._stack.enter_context(IPRoute())
        _up(kernel, "lo")
        return kernel


def bucket(bits_per_second: float) -> dict[str, int]:
    """The token bucket of a link: bytes per second, bytes that may go at once, and bytes that wait before some drop.

    At once goes what a millisecond carries, no less than two of the largest packets that TCP hands over: far less than
    a message. What waits is 50 ms, as much as a good switch holds.
    """
    rate = bits_per_second / 8
    return {"rate": int(rate), "burst": int(max(2**17, rate / 1000)), "limit": int(max(2**20, rate / 20))}


def _unlimited(kernel: Any, device: int) -> None:
    from pyroute2 import NetlinkError

    try:
        kernel.tc("del", index=device, parent=_ROOT)
    except NetlinkError as error:
        if error.code not in (errno.ENOENT, errno.EINVAL):  # there was no limit
            raise


def _up(kernel: Any, name: str, address: str | None = None) -> int:
    """Give the device its address and switch it on; its number."""
    device = int(kernel.link_lookup(ifname=name)[0])
    if address is not None:
        kernel.addr("add", index=device, address=address, prefixlen=_PREFIX)
    kernel.link("set", index=device, state="up")
    return device


def _own_namespace() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _call(name: str, *arguments: int) -> None:
    """A function of the C library: ``os`` has these two from Python 3.12 on only."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


@contextmanager
def _translated() -> Iterator[None]:
    """What the kernel or the machine lacks, in one line."""
    try:
        from pyroute2 import NetlinkError
    except ImportError:
        raise InputError("links of a given speed need pyroute2: pip install pyroute2") from None
    try:
        yield
    except (NetlinkError, OSError, AttributeError) as error:
        raise InputError(f"this machine allows no links of a given speed (Linux and root needed): {error}") from None


def throughput(network: Network, source: int, target: int, size: int) -> float:
    """Bits per second of so many bytes by TCP from one worker to another, their acknowledgement included."""
    with network.inside(target):
        server = socket.create_server((network.address(target), 0))

    def receive() -> None:
        connection, _ = server.accept()
        with connection:
            left = size
            while left > 0:
                left -= len(connection.recv(2**20)) or left
            connection.sendall(b".")

    with server:
        receiver = threading.Thread(target=receive, daemon=True)
        receiver.start()
        with network.inside(source):
            connection = socket.create_connection(server.getsockname(), timeout=60)
        with connection:
            start = time.perf_counter()
            connection.sendall(bytes(size))
            connection.recv(1)
            seconds = time.perf_counter() - start
        receiver.join(timeout=60)
    return 8 * size / seconds


def main() -> None:
    """Try the links: one line for each speed, or one that says what is refused."""
    try:
        with Network(8) as network:
            for name, speed in SPEEDS.items():
                network.limit(speed)
                size = int(min(speed or 4e9, 4e9) / 16)
                reached = [throughput(network, source, (source + 1) % 8, size) / 1e6 for source in (0, 3, 7)]
                print(f"{name}: reached {min(reached):.0f} to {max(reached):.0f} Mbit/s", flush=True)
    except InputError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
