"""Python processes that begin with torch in them, forked from one that has it: most tests take less than its import.

``installed`` changes what ``subprocess`` does in this process with the commands of ``_is_warm``, here and in what they
start themselves. All else about such a process is as if it had been executed: its parent, its files, its environment,
its folder, its session, its exit code. What was in memory when it was forked is what ``PRELOADED`` names; where that
matters, tests say ``afresh``.
"""

from __future__ import annotations

import _posixsubprocess
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

#: What the programs that are started import first. Not themselves: they are to be run as __main__.
PRELOADED = ["torch.distributed", "pdadmm_g.training.fit", "pdadmm_g.runs.run", "pdadmm_g.cli.train"]
#: Programs that start others of these.
PARENTS = ("torch.distributed.run", "pdadmm_g")
#: How the names of variables begin that are read when Python and libraries are loaded, or from outside.
READ_EARLY = ("PYTHON", "MKL_", "ATEN_", "TRITON_", "PDADMM_G_SOAK")
_SUBREAPER = 36
#: Where the standard library looks for what starts a process: since Python 3.11, and before.
_PLACE = (subprocess, "_fork_exec") if hasattr(subprocess, "_fork_exec") else (_posixsubprocess, "fork_exec")
_FORK_EXEC = _posixsubprocess.fork_exec


class Server:
    """A child of this process that forks when it is asked to, from the first time on that it is."""

    def __init__(self) -> None:
        self.early, self.inherited = _early(os.environ), _inherited()
        self.requests: socket.socket | None = None
        self.lock = threading.Lock()

    def begin(self) -> socket.socket:
        """Be ready for a child that serves, whose end of the requests this is."""
        # What the server forks twice has lost its parent; then it is a child of this process.
        ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1)
        self.requests, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return end

    def start(self, *args: object) -> int:
        """As ``_fork_exec`` of the standard library, whose arguments these are."""
        command, folder, environment, session = args[0], args[4], args[5], args[15]
        words = [os.fsdecode(word) for word in command]  # type: ignore[attr-defined]
        variables = dict(os.environ)
        if environment is not None:
            variables = dict(os.fsdecode(entry).split("=", 1) for entry in environment)  # type: ignore[attr-defined]
        kept = args[3] != (args[13],)  # files beyond the three, and the one by which a failure would be told
        if kept or any(map(callable, args)) or not _is_warm(words) or self._differs(variables):
            return _FORK_EXEC(*args)
        request = [words[1:], os.fsdecode(folder or Path.cwd()), variables, bool(session)]
        ends = [fd if fd != -1 else standard for standard, fd in enumerate((args[6], args[9], args[11]))]
        with self.lock:
            if self.requests is None:
                self._execute()
            socket.send_fds(self.requests, [json.dumps(request).encode()], ends)
            return int(self.requests.recv(32))

    def _differs(self, variables: dict[str, str]) -> bool:
        return _early(variables) != self.early or _inherited() != self.inherited

    def _execute(self) -> None:
        with self.begin() as end:
            number = end.fileno()
            self.process = subprocess.Popen(
                [sys.executable, __file__, str(number)], pass_fds=[number], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )  # fmt: skip

    def end(self) -> None:
        """It ends where nobody can ask any more."""
        if self.requests is not None:
            self.requests.close()
            self.process.wait()


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Within, programs that ``_is_warm`` names are forked."""
    server = Server()
    setattr(*_PLACE, server.start)
    yield
    setattr(*_PLACE, _FORK_EXEC)
    server.end()


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Within, programs are executed."""
    before = getattr(*_PLACE)
    setattr(*_PLACE, _FORK_EXEC)
    yield
    setattr(*_PLACE, before)


def _is_warm(words: list[str]) -> bool:
    """A script in a file, a module of ours or torchrun, for this interpreter without options but -u."""
    if words[0] != sys.executable or len(words) < 2:
        return False
    rest = words[2:] if words[1] == "-u" else words[1:]
    if rest[0] == "-m":
        return rest[1] in PARENTS or rest[1].startswith("pdadmm_g.")
    return rest[0].endswith(".py") and Path(rest[0]).resolve() != Path(__file__).resolve()


def _early(variables: dict[str, str] | os._Environ[str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith(READ_EARLY)}


def _inherited() -> tuple[str, str, set[int]]:
    """What else an executed process would have of this one: network, limits (of a file's size, say), cores."""
    thread = Path("/proc/thread-self")
    return str((thread / "ns/net").readlink()), (thread / "limits").read_text(), os.sched_getaffinity(0)


# ----------------------------------------------------------------------------------------------------- in the server


def serve(requests: socket.socket) -> None:
    """Fork what is asked for until nobody can ask any more. Returns in what was forked, when it is to end."""
    while True:
        message, fds, _, _ = socket.recv_fds(requests, 1 << 20, 3)
        if not message:
            os._exit(0)
        reading, writing = os.pipe()
        between = os.fork()
        if between:
            os.close(writing)
            pid = os.read(reading, 32)
            os.waitpid(between, 0)
            requests.send(pid)  # now that it is a child of who asks
            for fd in (reading, *fds):
                os.close(fd)
            continue
        between = os.getpid()
        pid = os.fork()
        if pid:
            os.write(writing, str(pid).encode())
            os._exit(0)
        while os.getppid() == between:
            time.sleep(0.001)
        for end in (requests.fileno(), reading, writing):
            os.close(end)
        requests.detach()
        become(fds, *json.loads(message))
        return


def become(fds: list[int], words: list[str], folder: str, variables: dict[str, str], session: bool) -> None:
    """Be the process of this command."""
    import torch

    unbuffered = words[0] == "-u"
    words = words[unbuffered:]
    if words[0] == "-m" and words[1] in PARENTS:
        _serve_myself(fds)
    for standard, fd in enumerate(fds):
        os.dup2(fd, standard)
        os.close(fd)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace", buffering=1)  # noqa: SIM115
    if unbuffered:
        sys.stdout.reconfigure(write_through=True)
    if session:
        os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    if "OMP_NUM_THREADS" in variables:  # too late for torch to read
        torch.set_num_threads(int(variables["OMP_NUM_THREADS"]))
    if words[0] == "-m":
        sys.argv, sys.path[0] = words[1:], folder
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = words, str(Path(words[0]).resolve().parent)
        runpy.run_path(words[0], run_name="__main__")


def _serve_myself(fds: list[int]) -> None:
    """Have a server of one's own, which must be forked as long as there is one thread."""
    server = Server()
    end = server.begin()
    if os.fork() == 0:
        for fd in fds:
            os.close(fd)
        server.requests.close()
        serve(end)
        sys.exit()
    end.close()
    setattr(*_PLACE, server.start)


if __name__ == "__main__":
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
